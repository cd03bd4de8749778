import fs, { cpSync, existsSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { join } from 'node:path';
import t from 'tap';
import {
  initialState,
  latestCheckpoint,
  mendBestCheckpoint,
  readCheckpoint,
  saveBestCheckpoint,
  saveCheckpoint,
} from './checkpoint.ts';
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
