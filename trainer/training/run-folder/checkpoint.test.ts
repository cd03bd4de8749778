import { existsSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { initialState, latestCheckpoint, saveCheckpoint } from './checkpoint.ts';
import { runFolderAt } from './run-folder.ts';

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

t.test('a checkpoint of another format is refused', async t => {
  const run = runFolderAt(t.testdir({ checkpoints: { 'step-000001': { 'trainer.json': '{"format":7}' } } }));
  t.throws(() => latestCheckpoint(run), /format 7; this version reads 1/);
});
