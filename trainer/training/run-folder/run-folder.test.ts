import { execFileSync, spawnSync } from 'node:child_process';
import fs, {
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { basename, join } from 'node:path';
import t from 'tap';
import { validateConfig } from '../../../shared/config.ts';
import type { ControlCommand } from '../../../shared/run-folder/requests.ts';
import { settingsOf } from '../../config/settings.test-data.ts';
import { RunSettings } from '../../config/settings.ts';
import {
  initialState,
  latestCheckpoint,
  mendBestCheckpoint,
  readCheckpoint,
  saveBestCheckpoint,
  saveCheckpoint,
} from './checkpoint.ts';
import { writeReport } from './report.ts';
import { RunControl } from './run-control.ts';
import { createRunFolder, latestRun, openRunFolder, removeUnused, runFolderAt } from './run-folder.ts';

const settingsIn = (folder: string, name: string | null = null) =>
  validateConfig(
    { run: { folder, name }, tags: { Lake: { env_id: 'FrozenLake-v0' } }, train_tags: ['Lake'] },
    RunSettings,
  );

t.test('unnamed runs are numbered and the latest is found', async t => {
  const folder = t.testdir();
  t.equal(latestRun(folder, 'demo'), undefined);
  t.equal(basename(createRunFolder(settingsIn(folder), 'demo').path), 'demo-001');
  t.equal(basename(createRunFolder(settingsIn(folder), 'demo').path), 'demo-002');
  mkdirSync(join(folder, 'demo-010-notes'));
  mkdirSync(join(folder, 'demo-999'));
  t.equal(basename(latestRun(folder, 'demo')!), 'demo-002', 'a folder without a config is not a run');
});

t.test('the resolved settings come back from the folder', async t => {
  const folder = t.testdir();
  const settings = settingsIn(folder, 'mine');
  const run = createRunFolder(settings, 'demo');
  t.same(openRunFolder(run.path).settings, settings);
});

t.test('a run that measured and saved nothing is removed, any other stays', async t => {
  const folder = t.testdir();
  const failed = createRunFolder(settingsIn(folder), 'demo');
  removeUnused(failed);
  t.notOk(existsSync(failed.path));
  const measured = createRunFolder(settingsIn(folder), 'demo');
  writeFileSync(measured.metrics, '{"step":1}\n');
  const saved = createRunFolder(settingsIn(folder), 'demo');
  mkdirSync(join(saved.checkpoints, 'step-000000'));
  for (const run of [measured, saved]) {
    removeUnused(run);
    t.ok(existsSync(run.config));
  }
});

t.test('a taken name and a folder without a run are refused with what to do', async t => {
  const folder = t.testdir();
  createRunFolder(settingsIn(folder, 'mine'), 'demo');
  t.throws(
    () => createRunFolder(settingsIn(folder, 'mine'), 'demo'),
    /already holds a run; resume it with --resume/,
  );
  t.throws(() => openRunFolder(join(folder, 'other')), /holds no run.*runs in .*: mine/);
  writeFileSync(join(folder, 'mine', 'config.yaml'), 'seed: 1\nseed: 2');
  t.throws(() => openRunFolder(join(folder, 'mine')), /mine.config.yaml: `seed` is there twice/);
});

t.test('a disk without room for the config is named, and no empty run is left', async t => {
  const folder = t.testdir();
  const program = `
    import { createRunFolder } from ${JSON.stringify(new URL('./run-folder.ts', import.meta.url).href)};
    createRunFolder({ run: { folder: ${JSON.stringify(folder)}, name: null } }, 'demo');`;
  // Files of no bytes at most: the write fails as on a full disk.
  const { stderr } = spawnSync(
    'sh',
    ['-c', 'ulimit -f 0; exec "$@"', 'sh', process.execPath, '--input-type=module', '-e', program],
    { encoding: 'utf8' },
  );
  t.match(stderr, /cannot write .*demo-001\/config\.yaml: EFBIG.*; runs are kept in run\.folder/);
  t.same(readdirSync(folder), []);
});

const save = async (folder: string) => {
  mkdirSync(folder);
  writeFileSync(join(folder, 'weights'), 'w');
};

t.test('the newest whole checkpoint is found and only as many as asked are kept', async t => {
  const run = runFolderAt(t.testdir());
  t.equal(latestCheckpoint(run), undefined);
  for (const step of [5, 10, 1_000_000]) {
    await saveCheckpoint(run, { ...initialState(10_000), step }, save, 2);
  }
  t.same(readdirSync(run.checkpoints).sort(), ['step-000010', 'step-1000000']);
  const latest = latestCheckpoint(run)!;
  t.same(latest.state, { ...initialState(10_000), step: 1_000_000 });
  t.ok(existsSync(join(latest.policy, 'weights')));
});

t.test('a checkpoint that failed half-way is not there, and the next attempt succeeds', async t => {
  const run = runFolderAt(t.testdir());
  await saveCheckpoint(run, { ...initialState(0), step: 1 }, save, 2);
  const broken = saveCheckpoint(
    run,
    { ...initialState(0), step: 2 },
    () => Promise.reject(new Error('disk full')),
    2,
  );
  await t.rejects(broken, /disk full/);
  t.equal(latestCheckpoint(run)!.state.step, 1);
  await saveCheckpoint(run, { ...initialState(0), step: 2 }, save, 2);
  t.equal(latestCheckpoint(run)!.state.step, 2);
});

t.test('there is a best checkpoint wherever the replacement of one is killed', async t => {
  const run = runFolderAt(t.testdir());
  const saveBest = (step: number) => saveBestCheckpoint(run, { ...initialState(0), step }, save);
  const best = () => readCheckpoint(run.best).state.step;
  mendBestCheckpoint(run);
  await saveBest(1);
  const moves = fs.renameSync;
  const killedAfter = async (count: number, step: number) => {
    let left = count;
    fs.renameSync = (from, to) => {
      if (left-- === 0) throw new Error('killed');
      moves(from, to);
    };
    syncBuiltinESMExports();
    try {
      await t.rejects(saveBest(step), /killed/);
    } finally {
      fs.renameSync = moves;
      syncBuiltinESMExports();
    }
    mendBestCheckpoint(run);
  };
  await killedAfter(0, 2);
  t.equal(best(), 1, 'before anything was moved');
  await killedAfter(1, 2);
  t.equal(best(), 1, 'when the old one was aside and the new one not yet in place');
  await saveBest(2);
  cpSync(run.best, `${run.best}.replaced`, { recursive: true });
  mendBestCheckpoint(run);
  t.equal(best(), 2, 'when both were there');
  t.same(readdirSync(run.checkpoints), ['best']);
});

t.test('a checkpoint of another format is refused', async t => {
  const run = runFolderAt(t.testdir({ checkpoints: { 'step-000001': { 'trainer.json': '{"format":7}' } } }));
  t.throws(() => latestCheckpoint(run), /format 7; this version reads 1/);
});

t.test('a checkpoint with a pipe or a device as its state is damaged, and waits for nothing', async t => {
  for (const make of [
    (file: string) => void execFileSync('mkfifo', [file]),
    (file: string) => symlinkSync('/dev/zero', file),
  ]) {
    const run = runFolderAt(t.testdir({ checkpoints: { 'step-000001': {} } }));
    make(join(run.checkpoints, 'step-000001/trainer.json'));
    t.throws(() => latestCheckpoint(run), /trainer\.json: it is not a regular file/);
  }
});

t.test('a state with an edited part is refused by the name of the part', async t => {
  const run = runFolderAt(t.testdir());
  await saveCheckpoint(run, { ...initialState(0), step: 1 }, save, 2);
  const folder = await saveCheckpoint(run, { ...initialState(0), step: 2 }, save, 2);
  const good = { ...initialState(0), step: 2 };
  for (const [state, message] of [
    [null, /trainer.json: it must hold an object, got null/],
    [{ format: 1 }, /`step` must be an integer from 0, got undefined/],
    [{ ...good, step: 'x' }, /`step` must be an integer from 0, got "x"/],
    [{ ...good, step: -3 }, /`step` must be an integer from 0, got -3/],
    [{ ...good, nextSeed: 1.5 }, /`nextSeed` must be an integer from 0, got 1.5/],
    [{ ...good, seconds: null }, /`seconds` must be a number, got null/],
    [{ ...good, validations: [{ step: 1 }] }, /`validations` must list objects with `step`/],
  ] as const) {
    writeFileSync(join(folder, 'trainer.json'), JSON.stringify(state));
    t.throws(() => latestCheckpoint(run), message);
    t.throws(() => latestCheckpoint(run), /the one before it is .*step-000001/);
  }
});

const validated = (step: number, success: number) => ({
  step,
  seconds: 10 * step,
  metrics: {
    'val-env/success': success,
    'val-env/Lake/success': success,
    'val-env/Lake/success_low': success - 0.1,
    'val-env/Lake/success_high': success + 0.1,
    'val-env/Lake/episodic_return': step - 16.54,
  },
});
const state = {
  ...initialState(10_000),
  step: 4,
  episodes: 1234,
  seconds: 40,
  validations: [validated(0, 0.2), validated(4, 0.6)],
};
const settings = settingsOf({
  run: { name: 'demo' },
  tags: { Lake: { env_id: 'FrozenLake-v0', random_success: 0.25, optimum_success: 0.94 } },
  training: { steps: 4 },
});

t.test('before and after stand next to the random and the optimal policy', async t => {
  const run = runFolderAt(t.testdir());
  mkdirSync(run.path, { recursive: true });
  const summary = writeReport(run, settings, { state, ended: 'finished' });
  t.match(summary, {
    ended: 'finished',
    before: { step: 0, success: 0.2 },
    after: { step: 4, tags: { Lake: { success: 0.6, low: 0.5, high: 0.7, return: -12.54 } } },
    references: { Lake: { random: 0.25, optimum: 0.94 } },
  });
  t.same(JSON.parse(readFileSync(run.summary, 'utf8')), summary);
  const text = readFileSync(run.report, 'utf8');
  t.match(text, /^# demo\n/);
  t.match(text, /\| 4 \| 40 s \| 60 % \(50 % to 70 %\) \|/);
  t.match(text, /Lake \(FrozenLake-v0\): random policy 25 %, optimum 94 %/);
});

t.test('returns are reported where nothing counts as a success', async t => {
  const run = runFolderAt(t.testdir());
  writeReport(run, settings, {
    state: { ...state, validations: [validated(0, 0), validated(4, 0)] },
    ended: 'finished',
  });
  t.match(readFileSync(run.report, 'utf8'), /\| 0 \|.*, return -16\.5 \|\n\| 4 \|.*, return -12\.5 \|\n/);
});

t.test('an early stop says why; a run without validations reports none', async t => {
  const run = runFolderAt(t.testdir());
  const summary = writeReport(run, settings, {
    state: { ...state, validations: [] },
    ended: 'empty_batches',
  });
  t.match(summary.reason, /kept no group/);
  t.equal(summary.after, undefined);
  t.match(readFileSync(run.report, 'utf8'), /empty_batches \(the filter kept no group/);
});

const SESSION = '2026-11-26T10:00:00.000Z';
const command = (
  id: string,
  action: ControlCommand['action'],
  more: Partial<ControlCommand> = {},
): ControlCommand => ({
  id,
  session: SESSION,
  action,
  ...more,
});

function controlled(path: string) {
  const notes: string[] = [];
  const warnings: string[] = [];
  const control = new RunControl(path, SESSION, {
    note: text => notes.push(text),
    warn: text => warnings.push(text),
  });
  const send = (value: ControlCommand, name = value.id) =>
    writeFileSync(join(path, 'control', `${name}.json`), JSON.stringify(value));
  return { control, notes, warnings, send };
}

t.test('commands are carried out once, and removed', async t => {
  const path = t.testdir({ control: {} });
  const { control, notes, send } = controlled(path);
  t.teardown(() => control[Symbol.dispose]());
  send(command('checkpoint-1', 'checkpoint'));
  send(command('schedule-1', 'schedule', { schedule: { validate_every: 3 } }));
  control.look();
  t.same([control.takeCheckpointRequest(), control.takeCheckpointRequest()], [true, false]);
  send(command('schedule-2', 'schedule', { schedule: { stop_after: 9, validate_every: 4 } }));
  control.look();
  t.same(control.schedule, { validate_every: 4, stop_after: 9 });
  t.same(readdirSync(join(path, 'control')), []);
  send(command('checkpoint-1', 'checkpoint'));
  control.look();
  t.equal(control.takeCheckpointRequest(), false, 'a replay does nothing');
  t.equal(control.signal.aborted, false);
  send(command('stop-0001', 'stop'));
  control.look();
  t.match(control.signal, { aborted: true, reason: { name: 'AbortError' } });
  t.equal(notes.length, 4);
});

t.test('a command for an earlier session is removed and does nothing', async t => {
  const path = t.testdir({ control: {} });
  const { control, notes, send } = controlled(path);
  t.teardown(() => control[Symbol.dispose]());
  send(command('stop-0001', 'stop', { session: '2026-11-25T10:00:00.000Z' }));
  control.look();
  t.same([control.signal.aborted, notes.length, readdirSync(join(path, 'control'))], [false, 0, []]);
});

t.test('files that are no commands cost a warning each', async t => {
  const path = t.testdir({ control: { 'notes.txt': '', 'short.json': '{}', 'half-written.partial': '{' } });
  const folder = join(path, 'control');
  const { control, warnings, send } = controlled(path);
  t.teardown(() => control[Symbol.dispose]());
  writeFileSync(join(folder, 'garbage-1.json'), '{');
  writeFileSync(join(folder, 'too-large1.json'), `{"id": "${'a'.repeat(5000)}"}`);
  symlinkSync('/etc/passwd', join(folder, 'link-0001.json'));
  mkdirSync(join(folder, 'folder-01.json'));
  execFileSync('mkfifo', [join(folder, 'pipe-0001.json')]);
  send(command('stop-0001', 'stop'), 'other-name');
  send({ ...command('unknown-1', 'stop'), action: 'reboot' as 'stop' });
  send(command('schedule-1', 'schedule', { schedule: { validate_every: -1 } }));
  control.look();
  control.look();
  t.equal(control.signal.aborted, false);
  t.equal(warnings.length, 8, 'once each');
  t.match(warnings.join('\n'), /folder-01\.json is not a command: it is not a regular file/);
  t.match(warnings.join('\n'), /link-0001\.json is not a command: ELOOP/);
  t.match(warnings.join('\n'), /too-large1\.json is not a command: it has more than 2048 bytes/);
  t.match(warnings.join('\n'), /other-name\.json is not a command: its `id` is stop-0001/);
  t.match(warnings.join('\n'), /`action` must be one of stop, checkpoint, schedule/);
  t.match(warnings.join('\n'), /`schedule.validate_every` must be a whole number from 1/);
  t.same(readdirSync(folder).sort(), ['folder-01.json', 'half-written.partial', 'notes.txt', 'short.json']);
  t.ok(existsSync('/etc/passwd'));
});

t.test('a run folder without the folder of commands has none, until one comes', async t => {
  const path = t.testdir({});
  const { control, send } = controlled(path);
  t.teardown(() => control[Symbol.dispose]());
  control.look();
  const alive = setInterval(() => {}, 1000);
  t.teardown(() => clearInterval(alive));
  mkdirSync(join(path, 'control'));
  send(command('stop-0001', 'stop'));
  await new Promise(done => control.signal.addEventListener('abort', done));
  t.ok(control.signal.aborted);
});
