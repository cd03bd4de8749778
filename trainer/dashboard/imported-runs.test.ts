import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync, statSync, symlinkSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parquetWriteFile } from 'hyparquet-writer';
import t from 'tap';
import {
  ATIF_DOCUMENT,
  jsonLines,
  TRL_ROWS,
  VERIFIERS_ROWS,
  VERL_ROWS,
} from '../../site/compute/formats/samples.test-data.ts';
import {
  accessibilityProblems,
  PHONE_AND_SCREEN,
  seeLooks,
  skip,
} from '../../site/playground/browser.test-data.ts';
import { RunReader } from '../../site/server/reader/run-reader.ts';
import { openPage, serveDashboard } from './dashboard.test-data.ts';
import { importRuns } from './imported-runs.ts';

/** TRL's rows as pandas writes them: 64-bit steps, null where a function has no reward. */
function writeParquet(filename: string, rows: readonly (typeof TRL_ROWS)[number][]): void {
  const column = (name: keyof (typeof TRL_ROWS)[number]) => rows.map(row => row[name]);
  parquetWriteFile({
    filename,
    columnData: [
      { name: 'step', data: column('step').map(step => BigInt(step!)), type: 'INT64' },
      { name: 'prompt', data: column('prompt'), type: 'STRING' },
      { name: 'completion', data: column('completion'), type: 'STRING' },
      { name: 'accuracy_reward', data: column('accuracy_reward'), type: 'DOUBLE' },
      { name: 'format_reward', data: column('format_reward'), type: 'DOUBLE', nullable: true },
      { name: 'advantage', data: column('advantage'), type: 'DOUBLE' },
    ],
  });
}

t.test('files and folders become runs, a run for each path', async t => {
  const folder = t.testdir({
    root: {},
    rollouts: {
      '3.jsonl': jsonLines(VERL_ROWS),
      '12.jsonl': jsonLines([{ ...VERL_ROWS[0], step: 12 }]),
      'x.txt': '',
    },
    completions: {},
    'results.jsonl': jsonLines(VERIFIERS_ROWS).slice(0, -5),
    job: {
      'trial-a': {
        agent: { 'trajectory.json': JSON.stringify(ATIF_DOCUMENT, null, 2) },
        'result.json': '{}',
      },
    },
  });
  writeParquet(join(folder, 'completions/completions_00010.parquet'), TRL_ROWS);
  symlinkSync('/etc', join(folder, 'rollouts/link'));
  const root = join(folder, 'root');
  const paths = ['rollouts', 'completions', 'results.jsonl', 'job', 'results.jsonl'].map(name =>
    join(folder, name),
  );
  const runs = await importRuns(paths, root);
  t.match(runs, [
    { id: 'rollouts', episodes: 3, formats: ['verl'], notes: [] },
    { id: 'completions', episodes: 3, formats: ['TRL'] },
    {
      id: 'results',
      episodes: 2,
      formats: ['verifiers'],
      notes: [/results\.jsonl: its last line is half written/],
    },
    { id: 'job', episodes: 1, formats: ['ATIF'] },
    { id: 'results-2' },
  ]);
  const reader = new RunReader(root);
  t.match(await reader.run('rollouts'), {
    row: { run: { format: 'verl' } },
    files: [
      { name: 'train-000003', step: 3 },
      { name: 'train-000012', step: 12 },
    ],
  });
  t.match(await reader.episodes('rollouts', 'train-000003'), [
    { success: true, return: 1, seed: null, turns: 1, invalid: 0 },
    { success: false, return: -1, turns: 2 },
  ]);
  t.match(await reader.episodes('completions', 'train-000010'), [
    { success: null, return: 1.5, group_id: 0, member: 0, advantage: 0.7 },
    { success: null, return: 0.5, group_id: 0, member: 1 },
  ]);
  t.match(await reader.episode('job', 'train-000000', 0), { episode: { return: null, format: 'ATIF' } });
  t.match(await reader.search('results', { q: 'rome?' }), { hits: [{ turn: 0, where: 'prompt' }] });
});

t.test('a run folder is copied without its checkpoints, and a folder of runs refused', async t => {
  const folder = t.testdir({
    root: {},
    runs: {
      a: {
        'status.json': '{"format": 1, "state": "running"}',
        'groups.jsonl': '{"step": 1}\n',
        'metrics.jsonl': '{"step": 1}\n',
        trajectories: {
          'train-000001.jsonl': '{"turns": [], "samples": []}\n{"turns": [], "samples": []}\n',
          'validation-000001.jsonl': '{"turns": [], "samples": []}\n',
        },
        checkpoints: { 'step-000001': { 'model.safetensors': 'x' } },
      },
    },
  });
  const root = join(folder, 'root');
  const runs = await importRuns([join(folder, 'runs/a')], root);
  t.match(runs, [{ id: 'a', episodes: 3, formats: ['ragen'], notes: [/a copy of a run that is training/] }]);
  t.same(readdirSync(join(root, 'a')).sort(), [
    'groups.jsonl',
    'metrics.jsonl',
    'status.json',
    'trajectories',
  ]);
  t.match(await new RunReader(root).run('a'), {
    files: [{ name: 'train-000001' }, { name: 'validation-000001' }],
  });
  await t.rejects(
    importRuns([join(folder, 'runs')], root),
    /runs holds the runs of ragen a: name one of them, or show all with the command `dashboard`/,
  );
});

t.test('of a run folder, links and pipes are left out, and a status that is none is refused', async t => {
  const trajectories = () => ({ 'train-000001.jsonl': '{"turns": [], "samples": []}\n' });
  const folder = t.testdir({
    outside: { 'private.jsonl': 'private\n' },
    linked: { 'status.json': '{"format": 1, "state": "finished"}', trajectories: trajectories() },
    none: { 'status.json': 'null', trajectories: trajectories() },
    endless: { trajectories: trajectories() },
    away: { 'status.json': '{"format": 1, "state": "finished"}' },
  });
  symlinkSync('/dev/zero', join(folder, 'linked/metrics.jsonl'));
  execFileSync('mkfifo', [join(folder, 'linked/log.txt')]);
  symlinkSync('/dev/zero', join(folder, 'endless/status.json'));
  symlinkSync(join(folder, 'outside'), join(folder, 'away/trajectories'));
  const root = join(folder, 'root');
  t.match(await importRuns([join(folder, 'linked')], root), [{ id: 'linked', episodes: 1 }]);
  t.same(readdirSync(join(root, 'linked')).sort(), ['status.json', 'trajectories']);
  for (const name of ['none', 'endless'])
    await t.rejects(
      importRuns([join(folder, name)], root),
      /status\.json must be a regular file with a JSON object/,
      name,
    );
  await t.rejects(importRuns([join(folder, 'away')], root), /no episodes in it/);
  t.notOk(existsSync(join(root, 'away/trajectories')), 'nothing outside of the run folder is copied');
});

t.test('an unreadable record is refused with its file and line', async t => {
  const folder = t.testdir({
    root: {},
    empty: {},
    none: { 'a.jsonl': '\n' },
    'bad.jsonl': `${JSON.stringify(VERL_ROWS[0])}\n{"input": 1}\n`,
    'bad.parquet': 'PAR1 and nothing else',
  });
  const refuses = (name: string, message: RegExp) =>
    t.rejects(importRuns([join(folder, name)], join(folder, 'root')), { message });
  await refuses('missing', /missing does not exist$/);
  await refuses('empty', /empty has no \.jsonl, \.parquet or trajectory\.json in it/);
  await refuses('none', /none\/a\.jsonl: no episodes in it$/);
  await refuses('bad.jsonl', /bad\.jsonl: line 2 is not of the format of the lines before it, verl/);
  await refuses('bad.parquet', /bad\.parquet: not readable Parquet: /);
  const large = join(folder, 'large.jsonl');
  writeFileSync(large, '');
  truncateSync(large, 3 * 2 ** 30);
  await refuses('large.jsonl', /more than 2048 MiB together/);
  const controller = new AbortController();
  controller.abort();
  await t.rejects(importRuns([join(folder, 'bad.jsonl')], join(folder, 'root'), controller.signal), {
    name: 'AbortError',
  });
});

/** Parquet of 50 bytes without columns, with a row group that claims 10⁹ rows. */
const CLAIMING = 'UEFSMRUEGRxIBHJvb3QVAAAWgKjWuQcZHBkAFgAWgKjWuQcAKAF4GQAAJgAAAFBBUjE=';

t.test('small Parquet files that unpack without end are refused', async t => {
  const folder = t.testdir({ root: {} });
  const root = join(folder, 'root');
  const claiming = join(folder, 'claiming.parquet');
  writeFileSync(claiming, Buffer.from(CLAIMING, 'base64'));
  await t.rejects(importRuns([claiming], root), { message: /row group 1 has 1000000000 rows, more than/ });
  const equal = join(folder, 'equal.parquet');
  writeParquet(
    equal,
    Array.from({ length: 50 }, () => ({ ...TRL_ROWS[0], completion: 'x'.repeat(50_000) })),
  );
  const most = 1024 * 1024;
  t.ok(statSync(equal).size < most, 'the file itself is small');
  await t.rejects(importRuns([equal], root, undefined, most), {
    message: /too large when they are unpacked/,
  });
  t.equal((await importRuns([equal], root))[0].episodes, 50);
});

t.test('a steps file of many steps is written in pieces, in the order of its rows', async t => {
  const folder = t.testdir({ root: {} });
  const file = join(folder, 'mixed.jsonl');
  const output = 'x'.repeat(40_000);
  const rows = Array.from({ length: 600 }, (_, i) => ({ ...VERL_ROWS[0], output, step: i % 3, score: i }));
  writeFileSync(file, jsonLines(rows));
  await importRuns([file], join(folder, 'root'));
  const reader = new RunReader(join(folder, 'root'));
  for (const step of [0, 1, 2]) {
    const episodes = await reader.episodes('mixed', `train-00000${step}`);
    t.same(
      episodes!.map(one => one.return),
      rows.filter(row => row.step === step).map(row => row.score),
    );
  }
});

t.test('the pages of another program’s episodes are readable and accessible', { skip }, async t => {
  const folder = t.testdir({
    root: {},
    'verl.jsonl': jsonLines(VERL_ROWS),
    'results.jsonl': jsonLines(VERIFIERS_ROWS),
    'trajectory.json': JSON.stringify(ATIF_DOCUMENT),
  });
  const paths = ['verl.jsonl', 'results.jsonl', 'trajectory.json'].map(name => join(folder, name));
  await importRuns(paths, join(folder, 'root'));
  const origin = await serveDashboard(t, { runs: join(folder, 'root') });
  const page = await openPage(t, `${origin}/runs/#/run/verl`);
  await page.getByText('2 episodes of 2 in 2 groups; 50 % succeed').waitFor();
  t.same(
    await page.getByRole('navigation', { name: 'Views of the run' }).getByRole('link').allTextContents(),
    ['Episodes'],
  );
  await page.goto(`${origin}/runs/#/run/verl/episode?file=train-000003&index=1&turn=1`);
  await page.getByText('expected answer: 5').waitFor();
  await page.getByLabel('Prompt').getByText('You see 2 apples.').waitFor();
  await page.getByLabel('Response').getByText('4').waitFor();
  await page.getByText('overlong_reward −0.2').first().waitFor();
  t.notMatch(await page.locator('main').textContent(), /seed|played on|actions left|undefined|null|NaN/);
  await page.goto(`${origin}/runs/#/run/results/episode?file=train-000000&index=0`);
  await page.getByText('weather({"city":"Rome"})').first().waitFor();
  t.equal(await page.getByText('no success').count(), 0, 'nobody said so');
  for (const view of [
    'run/results/episode?file=train-000000&index=0',
    'run/trajectory/episode?file=train-000000&index=0',
    'run/results',
  ]) {
    await page.goto(`${origin}/runs/#/${view}`);
    await page.locator('.member, .turn-strip').first().waitFor();
    await seeLooks(t, page, view.replaceAll(/\W/g, '-'), PHONE_AND_SCREEN);
  }
});

t.test('a file is opened in the page, by a button or dropped, and never sent', { skip }, async t => {
  const folder = t.testdir({ runs: {}, 'verl.jsonl': jsonLines(VERL_ROWS), 'bad.jsonl': '{"input": \n' });
  const origin = await serveDashboard(t, { runs: join(folder, 'runs') });
  const page = await openPage(t, `${origin}/runs/`);
  const sent: string[] = [];
  page.on('request', request => request.method() !== 'GET' && sent.push(request.url()));
  await page.getByLabel('Files of trajectories').setInputFiles(join(folder, 'bad.jsonl'));
  await page.getByRole('alert').getByText('bad.jsonl: neither JSON Lines nor one JSON document').waitFor();
  t.same(await accessibilityProblems(page), []);
  await page.getByLabel('Files of trajectories').setInputFiles(join(folder, 'verl.jsonl'));
  await page.getByText('2 episodes of 2 in 2 groups').waitFor();
  await page.getByLabel('Search prompts and responses').fill('APPLES');
  await page.getByText('Found in 1 episode.').waitFor();
  await page.locator('.member').first().click();
  await page.getByLabel('Response').getByText('It is 5.').waitFor();
  await page.reload();
  await page.getByText('is gone after a reload: open it again').waitFor();
  await page.goto(`${origin}/runs/`);
  await page.getByRole('button', { name: 'Open trajectories' }).waitFor();
  const transfer = await page.evaluateHandle(text => {
    const data = new DataTransfer();
    data.items.add(new File([text], 'dropped.jsonl'));
    return data;
  }, jsonLines(TRL_ROWS));
  await page.dispatchEvent('body', 'dragover', { dataTransfer: transfer });
  await page.getByRole('button', { name: 'Drop to open' }).waitFor();
  await page.dispatchEvent('body', 'drop', { dataTransfer: transfer });
  await page.getByText('1 episode of 1 in 1 group').waitFor();
  t.same(sent, []);
});
