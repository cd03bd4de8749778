import {
  appendFileSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  statSync,
  symlinkSync,
  truncateSync,
  unlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { open } from 'node:fs/promises';
import { hostname } from 'node:os';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import t from 'tap';
import { until } from '../../../test/until.test-data.ts';
import type { SearchQuery } from '../../compute/episode-digest.ts';
import { LiveRuns } from '../live.ts';
import { writeSampleRun } from '../sample-runs.test-data.ts';
import { RunReader } from './run-reader.ts';
import type { SearchHit } from './trajectories.ts';

/** A pid that no process has. */
const NOBODY = 2 ** 22 + 1;

t.test('runs are found at every depth, the latest first, with what their status says', async t => {
  const root = t.testdir();
  writeSampleRun(root, 'a');
  writeSampleRun(root, 'sweeps/lr/b', {
    status: { state: 'failed', last_error: { time: 'now', text: 'no room' } },
  });
  utimesSync(join(root, 'a/status.json'), 1, 1);
  mkdirSync(join(root, 'empty'));
  const { total, rows } = await new RunReader(root).runs();
  t.equal(total, 2);
  t.match(rows, [
    { id: 'sweeps/lr/b', state: 'failed', last_error: { text: 'no room' } },
    { id: 'a', state: 'finished', step: 30, run: { recipe: ['grpo'], tags: [{ optimum: 0.94 }] } },
  ]);
  t.equal((await new RunReader(root).runs({ limit: 1 })).rows.length, 1);
  t.match(await new RunReader(root).runs({ q: 'FAILED sweeps' }), {
    total: 2,
    matching: 1,
    rows: [{ id: 'sweeps/lr/b' }],
  });
});

t.test('a run that begins while the list of runs is old is found at once', async t => {
  const root = t.testdir();
  const reader = new RunReader(root);
  t.equal((await reader.runs()).total, 0);
  const now = performance.now();
  t.intercept(performance, 'now', { value: () => now + 1100 });
  writeSampleRun(root, 'new', { steps: 0 });
  t.match(await reader.run('new'), { row: { id: 'new' } });
});

t.test(
  'a running run without its process has stalled, as has one that is silent on another machine',
  async t => {
    const root = t.testdir();
    const running = { state: 'running', host: hostname() } as const;
    writeSampleRun(root, 'alive', { status: { ...running, pid: process.pid } });
    writeSampleRun(root, 'gone', { status: { ...running, pid: NOBODY } });
    const updated_at = new Date().toISOString();
    writeSampleRun(root, 'far', { status: { ...running, host: 'far', updated_at } });
    writeSampleRun(root, 'silent', { status: { ...running, host: 'far' } });
    const { rows } = await new RunReader(root).runs();
    const states = Object.fromEntries(rows.map(({ id, state }) => [id, state]));
    t.same(states, { alive: 'running', gone: 'stalled', far: 'running', silent: 'stalled' });
  },
);

t.test('a run of a machine with a fast clock stalls when its status stays as it was', async t => {
  const root = t.testdir();
  const updated_at = new Date(Date.now() + 86_400_000).toISOString();
  const path = writeSampleRun(root, 'far', { status: { state: 'running', host: 'far', updated_at } });
  const reader = new RunReader(root);
  const state = async () => (await reader.runs()).rows[0].state;
  t.equal(await state(), 'running');
  const { now } = Date;
  t.intercept(Date, 'now', { value: () => now() + 31_000 });
  t.equal(await state(), 'stalled');
  // The next sign of life; the list of runs is read again after a second.
  utimesSync(join(path, 'status.json'), 1, 1);
  await until(async () => (await state()) === 'running');
});

t.test('a run of a machine with a slow clock runs as long as its status changes', async t => {
  const root = t.testdir();
  const updated_at = new Date(Date.now() - 86_400_000).toISOString();
  const path = writeSampleRun(root, 'far', { status: { state: 'running', host: 'far', updated_at } });
  const reader = new RunReader(root);
  const state = async () => (await reader.runs()).rows[0].state;
  t.equal(await state(), 'stalled');
  utimesSync(join(path, 'status.json'), 1, 1);
  await until(async () => (await state()) === 'running');
  const { now } = Date;
  t.intercept(Date, 'now', { value: () => now() + 31_000 });
  t.equal(await state(), 'stalled');
});

t.test('metrics are read on from where they ended; half a line waits', async t => {
  const root = t.testdir();
  const file = join(writeSampleRun(root, 'a', { steps: 4 }), 'metrics.jsonl');
  const reader = new RunReader(root);
  const first = await reader.metrics('a', ['train/success', 'nothing']);
  t.same(first!.series['train/success'].x, [1, 2, 3, 4]);
  t.notOk('nothing' in first!.series);
  appendFileSync(file, '{"step":5,"train/success":0.5}\n{"step":6,"train/su');
  t.same((await reader.metrics('a', ['train/success']))!.series['train/success'].x, [1, 2, 3, 4, 5]);
  appendFileSync(file, 'ccess":"NaN"}\n');
  const { x, y } = (await reader.metrics('a', ['train/success']))!.series['train/success'];
  t.same([x.at(-1), y.at(-1)], [6, Number.NaN]);
  // A resumed run replaces the file.
  writeFileSync(`${file}.partial`, '{"step":1,"train/success":0.1}\n');
  renameSync(`${file}.partial`, file);
  t.same((await reader.metrics('a', ['train/success']))!.series['train/success'], { x: [1], y: [0.1] });
});

t.test('a long series is thinned out without losing its extremes', async t => {
  const root = t.testdir();
  const folder = writeSampleRun(root, 'a', { steps: 0 });
  const rows = Array.from({ length: 100_000 }, (_, step) =>
    JSON.stringify({ step, v: step === 77_777 ? 9 : step % 2 }),
  );
  writeFileSync(join(folder, 'metrics.jsonl'), `${rows.join('\n')}\n`);
  const { rows: count, series } = (await new RunReader(root).metrics('a', ['v']))!;
  const { x, y } = series.v;
  t.equal(count, 100_000);
  t.ok(x.length <= 2049, String(x.length));
  t.same((await new RunReader(root).metrics('a', ['v'], 4))!.series.v.y.includes(9), true);
  t.equal(x[y.indexOf(9)], 77_777);
  t.ok(
    x.every((step, i) => i === 0 || step >= x[i - 1]),
    'in order',
  );
});

t.test('episodes are listed, read one by one and searched', async t => {
  const root = t.testdir();
  writeSampleRun(root, 'a');
  const reader = new RunReader(root);
  const { files } = (await reader.run('a'))!;
  t.same(
    files.filter(({ kind }) => kind === 'train').map(({ step }) => step),
    [10, 20, 30],
  );
  const episodes = (await reader.episodes('a', 'train-000010'))!;
  t.match(episodes[1], {
    index: 1,
    group_id: 0,
    member: 1,
    success: false,
    invalid: 1,
    penalty: -0.1,
    filter: { kept: false },
  });
  const reply = (await reader.episode('a', 'train-000010', 5))!;
  t.match(reply, { index: 5, count: 16, episode: { group_id: 1, member: 1 }, texts: { 0: '<think>' } });
  const found = (await reader.search('a', { q: 'QUIET walk', file: 'train-000010' }))!;
  t.match(found, { complete: true, hits: [{ turn: 0, where: 'response', snippet: /quiet walk/ }] });
  t.equal((await reader.search('a', { q: 'no such text' }))!.hits.length, 0);
  t.match((await reader.search('a', { q: 'think>' }))!.hits[0], { where: 'prompt' });
  t.equal((await reader.groups('a'))!.length, 30);
});

t.test('a search continues after 100 hits, and finds only episodes that pass the filters', async t => {
  const root = t.testdir();
  writeSampleRun(root, 'a', { groups: 40 });
  const reader = new RunReader(root);
  const searchAll = async (query: SearchQuery) => {
    const hits: SearchHit[] = [];
    let reply = (await reader.search('a', query))!;
    for (; ; reply = (await reader.search('a', { ...query, from: reply.next }))!) {
      hits.push(...reply.hits);
      t.ok(reply.hits.length <= 100);
      if (reply.complete) return hits;
    }
  };
  const hits = await searchAll({ q: 'quiet walk', file: 'train-000010' });
  t.same(
    hits.map(({ index }) => index),
    Array.from({ length: 160 }, (_, i) => i),
  );
  const everywhere = await searchAll({ q: 'quiet walk' });
  const places = new Set(everywhere.map(({ file, index }) => `${file} ${index}`));
  t.equal(places.size, everywhere.length, 'none twice');
  t.equal(everywhere.length, 3 * 160 + 7 * 40);
  const failed = await searchAll({ q: 'quiet walk', file: 'train-000010', success: 'no', kept: 'yes' });
  t.equal(failed.length, 78);
  t.ok(failed.every(({ digest }) => !digest.success && digest.filter?.kept));
});

t.test('only groups of new steps are read; a replaced file is read again', async t => {
  const root = t.testdir();
  writeSampleRun(root, 'a');
  const reader = new RunReader(root);
  const file = join(root, 'a/groups.jsonl');
  const [first] = (await reader.groups('a'))!;
  const line = (step: number) => `${JSON.stringify({ ...first, step })}\n`;
  t.same(await reader.groups('a', 30), []);
  appendFileSync(file, `${line(31)}{"step":32,`);
  t.same(await reader.groups('a', 30), [{ ...first, step: 31 }]);
  writeFileSync(`${file}.new`, line(5));
  renameSync(`${file}.new`, file);
  t.same(await reader.groups('a'), [{ ...first, step: 5 }]);
  appendFileSync(file, Array.from({ length: 1000 }, (_, i) => line(i + 6)).join(''));
  const thinned = (await reader.groups('a'))!;
  t.ok(thinned.length > 200 && thinned.length <= 401, String(thinned.length));
  t.match([thinned[0].step, thinned.at(-1)!.step], [5, 1005], 'the last one stays');
});

t.test('nothing outside of the folder is read', async t => {
  const outside = t.testdir({
    root: {},
    'secret.jsonl': '{"step":1,"secret":1}\n',
    secrets: { 'train-000001.jsonl': '{"turns":[]}\n' },
  });
  const root = join(outside, 'root');
  const folder = writeSampleRun(root, 'a', { steps: 0 });
  symlinkSync(join(outside, 'secrets'), join(root, 'linked-run'));
  symlinkSync(join(outside, 'secret.jsonl'), join(folder, 'groups-link.jsonl'));
  renameSync(join(folder, 'metrics.jsonl'), join(folder, 'old'));
  symlinkSync(join(outside, 'secret.jsonl'), join(folder, 'metrics.jsonl'));
  renameSync(join(folder, 'trajectories'), join(folder, 'old-trajectories'));
  symlinkSync(join(outside, 'secrets'), join(folder, 'trajectories'));
  const reader = new RunReader(root);
  t.same(
    (await reader.runs()).rows.map(({ id }) => id),
    ['a'],
  );
  t.same((await reader.metrics('a'))!.names, [], 'a linked file');
  t.same((await reader.run('a'))!.files, [], 'a linked folder');
  for (const id of ['..', '../root/a', 'a/..', '/etc', 'a/trajectories', '.', '']) {
    t.equal(await reader.run(id), undefined, id);
  }
  for (const file of [
    '../metrics',
    '../../secret',
    'train-000001/../../x',
    'train-1.jsonl',
    '..%2fmetrics',
  ]) {
    t.equal(await reader.episodes('a', file), undefined, file);
    t.equal(await reader.episode('a', file, 0), undefined, file);
  }
});

t.test('hostile contents are shown as nothing', async t => {
  const root = t.testdir();
  const folder = writeSampleRun(root, 'a', { steps: 10 });
  const deep = `${'['.repeat(20_000)}${']'.repeat(20_000)}`;
  const hostile = [
    'nonsense',
    '[]',
    'null',
    '"text"',
    '{"__proto__":{"polluted":1},"step":3,"constructor":4}',
    '{"turns":7,"samples":"x","step":"y"}',
    '\u0000\u0001',
    '{"step":1e999,"turns":[{"actions":3}]}',
    `{"step":1,"groups":${deep},"samples":${deep}}`,
  ];
  for (const name of ['metrics.jsonl', 'groups.jsonl', 'tokens.jsonl', 'trajectories/train-000010.jsonl']) {
    writeFileSync(join(folder, name), hostile.map(line => `${line}\n`).join(''));
  }
  writeFileSync(join(folder, 'config.yaml'), 'a: &a [x]\nb: [*a, *a]\n');
  for (const status of [
    '',
    'null',
    '[]',
    '{"run":null}',
    '{"run":{"tags":[null,3],"recipe":{}},"validations":{"a":1},"state":"<b>"}',
    `{"run":{"tags":[{"config":{"a":${deep}}}]}}`,
  ]) {
    writeFileSync(join(folder, 'status.json'), status);
    t.match(
      JSON.parse(JSON.stringify((await new RunReader(root).runs()).rows)),
      [{ id: 'a', state: 'unknown', validations: [] }],
      status.slice(0, 80),
    );
  }
  const reader = new RunReader(root);
  t.ok(await reader.metrics('a'));
  t.ok(JSON.stringify(await reader.groups('a')));
  t.equal((await reader.run('a'))!.config, null, 'aliases can grow without end');
  for (const [index] of (await reader.episodes('a', 'train-000010'))!.entries()) {
    t.ok(await reader.episode('a', 'train-000010', index));
  }
  t.ok(await reader.search('a', { q: 'x' }));
  t.notOk('polluted' in {});
});

t.test('a run of very many validations and names has a short row in the table', async t => {
  const root = t.testdir();
  const validations = Array.from({ length: 5000 }, (_, step) => ({ step, success: (step % 100) / 100 }));
  const changed = Array.from({ length: 5000 }, (_, i) => `a.b${i}=1`);
  mkdirSync(join(root, 'long'));
  writeFileSync(
    join(root, 'long/status.json'),
    JSON.stringify({ state: 'finished', validations, run: { changed, recipe: changed } }),
  );
  const reader = new RunReader(root);
  const [row] = (await reader.runs()).rows;
  t.equal(row.validations.length, 100);
  t.match([row.validations[0], row.validations.at(-1)], [{ step: 0 }, { step: 4999 }]);
  t.ok(row.validations.every(({ step }, i) => i === 0 || step > row.validations[i - 1].step));
  t.ok(JSON.stringify(row).length < 16_384, `${JSON.stringify(row).length} bytes`);
  t.equal((await reader.run('long'))!.row.validations.length, 5000, 'its own page has all');
});

t.test('tokens of servers are not handed out', async t => {
  const root = t.testdir();
  writeSampleRun(root, 'a', { steps: 0 });
  t.notMatch(JSON.stringify(await new RunReader(root).run('a')), /secret/);
  t.match(readFileSync(join(root, 'a/config.yaml'), 'utf8'), /secret/);
});

t.test('passwords in addresses are not handed out', async t => {
  const root = t.testdir();
  const failed = { time: 'now', text: 'no answer of http://ann:secret@host' };
  const path = writeSampleRun(root, 'a', {
    status: { state: 'failed', last_error: failed, notes: [failed] },
  });
  writeFileSync(
    join(path, 'config.yaml'),
    'servers:\n  - url: http://ann:secret@host:8080\nrun: { name: a }\n',
  );
  const reader = new RunReader(root);
  const shown = JSON.stringify([await reader.run('a'), await reader.runs({ settings: ['servers'] })]);
  t.notMatch(shown, /secret|ann/);
  t.match(shown, /no answer of http:\/\/\*\*\*@host.*http:\/\/\*\*\*@host:8080/);
});

t.test('the leaderboard has validations, evaluations and published results', async t => {
  const root = t.testdir();
  const folder = writeSampleRun(root, 'a');
  mkdirSync(join(folder, 'evaluations'));
  const greedy = { tag: 'Lake', mode: 'greedy', success_low: 0.8, success_high: 0.95, episodes: 64 };
  const older = 'a/checkpoints/step-000010/policy';
  const document = {
    date: '2026-01-02',
    command: 'evaluate a --attempts 2',
    rows: [
      { ...greedy, policy: 'checkpoint', success: 0.9, trained: { step: 30, sampled_tokens: 9, seconds: 3 } },
      { ...greedy, policy: older, success: 0.85, trained: { step: 10, sampled_tokens: 3, seconds: 1 } },
      { ...greedy, policy: 'b/checkpoints/step-000010/policy', success: 0.7 },
    ],
  };
  // As earlier versions wrote them.
  const rows = [
    { ...greedy, policy: 'checkpoint', success: 0.6 },
    { ...greedy, policy: older, success: 0.55 },
  ];
  const old = { date: '2026-01-01', command: 'evaluate a', trained: { step: 20 }, rows };
  writeFileSync(join(folder, 'evaluations/1.json'), JSON.stringify(old));
  writeFileSync(join(folder, 'evaluations/2.json'), JSON.stringify(document));
  const published = join(root, 'published.yaml');
  writeFileSync(
    published,
    '- {env_id: FrozenLake-v0, policy: paper, success: 0.99, source: "https://example.org/paper"}\n',
  );
  t.match(await new RunReader(root, published).leaderboard(), [
    { policy: 'paper', source: 'https://example.org/paper', success: 0.99 },
    { policy: 'a, checkpoint (greedy)', success: 0.9, size: 120_000, steps: 30, tokens: 9, seconds: 3 },
    { policy: `a, ${older} (greedy)`, size: 120_000, steps: 10, tokens: 3, seconds: 1 },
    { policy: 'a, step 30', run: 'a' },
    { policy: 'b/checkpoints/step-000010/policy (greedy)', size: null, steps: null, tokens: null },
    { policy: 'a, checkpoint (greedy)', success: 0.6, steps: 20, command: 'evaluate a' },
    { policy: `${older} (greedy)`, success: 0.55, steps: null },
  ]);
  writeFileSync(published, '- {env_id: FrozenLake-v0, policy: paper, success: 99, source: x}\n');
  await t.rejects(new RunReader(root, published).leaderboard(), /`success` of entry 1 is a share/);
});

/** Collects what a stream of events says until it has a text. */
async function heard(stream: Readable, text: string): Promise<string> {
  let all = '';
  for await (const chunk of stream.iterator({ destroyOnReturn: false })) {
    all += String(chunk);
    if (all.includes(text)) return all;
  }
  return all;
}

t.test('200 pages that watch a run hear of each row once, wherever they begin', async t => {
  const root = t.testdir();
  const file = join(writeSampleRun(root, 'a', { steps: 3 }), 'metrics.jsonl');
  const reader = new RunReader(root);
  const run = (await reader.find('a'))!;
  const live = new LiveRuns(reader);
  t.teardown(() => live.close());
  const { size } = statSync(file);
  const streams = Array.from({ length: 200 }, (_, i) => live.open(run, i % 2 === 0 ? size : 0)!);
  const ready = await Promise.all(streams.map(stream => heard(stream, 'event: files')));
  t.notMatch(ready[0], /event: metrics/);
  t.equal(ready[1].match(/"step":1,/g)!.length, 1, 'one that begins at the first byte gets all rows');
  appendFileSync(file, '{"step":99,"train/return":1}\n');
  for (const text of await Promise.all(streams.map(stream => heard(stream, '"step":99')))) {
    t.equal(text.match(/"step":99/g)!.length, 1);
  }
  writeFileSync(`${file}.partial`, '{"step":1}\n');
  renameSync(`${file}.partial`, file);
  for (const text of await Promise.all(streams.map(stream => heard(stream, 'event: replaced')))) {
    t.match(text, /data: \{"offset":11\}/);
  }
  const late = live.open(run, 5000)!;
  t.match(await heard(late, 'event: replaced'), /"offset":11/, 'the file is shorter than the page knows');
  for (const stream of [...streams, late]) stream.destroy();
});

t.test('a long row that is half written is searched once, and its page reads nothing again', async t => {
  const root = t.testdir();
  const folder = writeSampleRun(root, 'a', { steps: 3 });
  const [file, log] = [join(folder, 'metrics.jsonl'), join(folder, 'log.txt')];
  const reader = new RunReader(root);
  const live = new LiveRuns(reader);
  t.teardown(() => live.close());
  const stream = live.open((await reader.find('a'))!, statSync(file).size)!;
  await heard(stream, 'event: files');
  appendFileSync(file, `{"step":99,"x":"${'x'.repeat(2 * 2 ** 20)}`);
  appendFileSync(log, 'first\n');
  t.notMatch(await heard(stream, 'first'), /event: replaced/);
  const handle = await open(file);
  const kind = Object.getPrototypeOf(handle);
  const reads = t.capture(kind, 'read', kind.read);
  await handle.close();
  appendFileSync(log, 'second\n');
  t.notMatch(await heard(stream, 'second'), /event: replaced/);
  const again = reads().filter(({ args }) => args[3] >= 2 ** 20);
  t.equal(again.length, 0, 'the row is read no more');
  appendFileSync(file, '","train/return":1}\n');
  t.match(await heard(stream, 'event: replaced'), `"offset":${statSync(file).size}`, 'until its end comes');
  stream.destroy();
});

t.test('a row is sent when the system reports the change, not when it is time to look', async t => {
  t.intercept(globalThis, 'setInterval', { value: () => undefined });
  const root = t.testdir();
  const file = join(writeSampleRun(root, 'a', { steps: 3 }), 'metrics.jsonl');
  const reader = new RunReader(root);
  const live = new LiveRuns(reader);
  t.teardown(() => live.close());
  const stream = live.open((await reader.find('a'))!, statSync(file).size)!;
  await heard(stream, 'event: files');
  appendFileSync(file, '{"step":99,"tr');
  appendFileSync(file, 'ain/return":1}\n');
  t.match(await heard(stream, '"step":99'), /"train\/return":1/);
  stream.destroy();
});

t.test('pages hear that the folder of their run is gone, and that it is back', async t => {
  const root = t.testdir();
  const folder = writeSampleRun(root, 'a', { steps: 3 });
  const reader = new RunReader(root);
  const run = (await reader.find('a'))!;
  const live = new LiveRuns(reader);
  t.teardown(() => live.close());
  const stream = live.open(run, 0)!;
  await heard(stream, 'event: files');
  renameSync(folder, join(root, '.away'));
  t.equal((await heard(stream, 'event: gone')).match(/event: gone/g)!.length, 1);
  renameSync(join(root, '.away'), folder);
  t.match(await heard(stream, 'event: files'), /event: row\n/);
  stream.destroy();
});

t.test('a page that reads nothing is cut at a bound in bytes, while another hears every row', async t => {
  const root = t.testdir();
  const file = join(writeSampleRun(root, 'a', { steps: 3 }), 'metrics.jsonl');
  const reader = new RunReader(root);
  const live = new LiveRuns(reader);
  t.teardown(() => live.close());
  const run = (await reader.find('a'))!;
  const { size } = statSync(file);
  const [deaf, listening] = [live.open(run, size)!, live.open(run, size)!];
  await heard(listening, 'event: files');
  let most = 0;
  for (let step = 100; !deaf.destroyed; step++) {
    appendFileSync(file, `{"step":${step},"text":"${'x'.repeat(200 * 1024)}"}\n`);
    t.match(await heard(listening, `"step":${step},`), /event: metrics/);
    most = Math.max(most, deaf.writableLength + deaf.readableLength);
  }
  t.ok(most < 1.5 * 1024 * 1024, `${most} bytes wait`);
  listening.destroy();
});

t.test('lines of many megabytes and binary files are passed over', async t => {
  const root = t.testdir();
  const file = join(writeSampleRun(root, 'a', { steps: 0 }), 'metrics.jsonl');
  const long = `{"step":1,"x":"${'a'.repeat(10 * 1024 * 1024)}"}\n`;
  writeFileSync(file, `${long}\u0000\u0001\n{"step":2,"ok":1}\n${long}`);
  const { series } = (await new RunReader(root).metrics('a'))!;
  t.same(series, { ok: { x: [2], y: [1] } });
  // A sparse file of 512 MB without a line end: nothing is kept of it.
  truncateSync(file, 0);
  truncateSync(file, 2 ** 29);
  const before = process.memoryUsage.rss();
  t.same((await new RunReader(root).metrics('a'))!.names, []);
  t.ok(process.memoryUsage.rss() - before < 128 * 1024 * 1024, 'memory stays flat');
});

t.test('runs are filtered, ordered and grouped by settings, and summed up', async t => {
  const root = t.testdir();
  for (const [i, id] of ['a', 'b', 'c'].entries()) {
    const folder = writeSampleRun(root, id, { seed: i });
    writeFileSync(
      join(folder, 'config.yaml'),
      `seed: ${i}\nrollout:\n  group_size: ${4 * i}\nservers:\n  - token: secret\n`,
    );
  }
  writeFileSync(join(root, 'c/config.yaml'), 'seed: {2: [}');
  const reader = new RunReader(root);
  const ids = async (query: object) => (await reader.runs(query)).rows.map(({ id }) => id);
  t.same(await ids({ q: 'group_size>=4' }), ['b']);
  t.same(await ids({ sort: '-rollout.group_size' }), ['b', 'a', 'c']);
  t.same((await reader.runs({ q: 'b', settings: ['group_size', 'nothing'] })).rows[0].settings, {
    group_size: 4,
  });
  t.match(await reader.runGroups('group_size'), [{ runs: 1 }, { runs: 1 }, { runs: 1 }]);
  const summary = await reader.summary('state:flat');
  t.same(summary, {
    outcomes: { improved: 3 },
    archived: 0,
    tags: [],
    settings: ['rollout.group_size', 'seed'],
  });
  t.notMatch(JSON.stringify(await reader.runs({ settings: 'all' })), /secret/);
  writeFileSync(join(root, 'a/config.yaml'), 'seed: 7\nrollout:\n  group_size: 99\n');
  utimesSync(join(root, 'a/status.json'), 9, 9);
  // The list of runs is made again while an old one is handed out.
  while ((await ids({ q: 'group_size=99' })).length === 0)
    await new Promise(resolve => setTimeout(resolve, 50));
  t.same(await ids({ q: 'group_size=99' }), ['a'], 'a run that went on is read again');
  const many = Array.from({ length: 9000 }, (_, i) => `key${i}: ${i}\n`).join('');
  writeFileSync(join(writeSampleRun(t.testdir({ many: {} }), 'many'), 'config.yaml'), many);
  const { settings } = await new RunReader(t.testdirName).summary();
  t.equal(settings.length, 2000, 'a config of many keys is bounded');
});

t.test('tags, notes and the archive mark are kept in the folder of a run, within bounds', async t => {
  const root = t.testdir();
  for (const id of ['a', 'b']) writeSampleRun(root, id);
  const reader = new RunReader(root);
  await reader.runs();
  const words = { tags: ['baseline'], note: 'keep', archived: true };
  t.equal(await reader.annotate('a', words), true);
  t.equal(await reader.annotate('nobody', words), false);
  t.same(JSON.parse(readFileSync(join(root, 'a/annotations.json'), 'utf8')), words);
  t.match(await reader.runs(), { total: 2, matching: 1, rows: [{ id: 'b' }] });
  t.match(await reader.runs({ q: 'is:archived tag:baseline' }), { rows: [{ id: 'a', annotations: words }] });
  t.match(await reader.summary(), { archived: 1, tags: ['baseline'], outcomes: { improved: 1 } });
  t.match(await new RunReader(root).run('a'), { row: { annotations: words } });
  t.same(
    readdirSync(join(root, 'a')).filter(name => name.includes('partial')),
    [],
  );
  for (const wrong of ['{', '[]', JSON.stringify({ ...words, tags: ['a b'] }), 'x'.repeat(20_000)]) {
    writeFileSync(join(root, 'b/annotations.json'), wrong);
    t.equal((await new RunReader(root).runs()).rows[0].annotations?.archived, false, wrong.slice(0, 40));
  }
  unlinkSync(join(root, 'b/annotations.json'));
  symlinkSync(join(root, 'a/annotations.json'), join(root, 'b/annotations.json'));
  t.match(await new RunReader(root).runs(), { rows: [{ id: 'b' }] }, 'a link is not followed');
  await new RunReader(root).annotate('b', { ...words, tags: [] });
  t.same(JSON.parse(readFileSync(join(root, 'a/annotations.json'), 'utf8')), words, 'nor written through');
});
