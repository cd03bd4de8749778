import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import t from 'tap';
import { validateConfig } from '../../../shared/config.ts';
import { RunSettings } from '../../config/settings.ts';
import { createRunFolder, latestRun, openRunFolder, removeUnused } from './run-folder.ts';

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
