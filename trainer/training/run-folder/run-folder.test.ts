import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
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
