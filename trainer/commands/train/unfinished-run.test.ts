import { join } from 'node:path';
import t from 'tap';
import { validateConfig } from '../../../shared/config.ts';
import { RunSettings } from '../../config/settings.ts';
import { initialState, saveCheckpoint } from '../../training/run-folder/checkpoint.ts';
import { createRunFolder } from '../../training/run-folder/run-folder.ts';
import { saveWarmStart } from '../../training/supervised/warm-start.ts';
import { unfinishedRun } from '../processes/trainer-process.ts';

const STEPS = 5;
const nothing = async () => {};

t.test('the newest run is unfinished in its warm start and until its last step', async t => {
  const folder = t.testdir();
  const settings = validateConfig({ run: { folder }, training: { steps: STEPS } }, RunSettings);
  t.equal(unfinishedRun(folder, 'lake'), undefined);
  const run = createRunFolder(settings, 'lake');
  t.equal(unfinishedRun(folder, 'lake'), undefined, 'nothing is kept yet');

  const kept = { updates: 7, epochMetrics: [], demonstrations: 1, learnedTokens: 1, rows: [], seconds: 1 };
  await saveWarmStart(run, kept, { save: nothing });
  const path = join(folder, 'lake-001');
  t.same(unfinishedRun(folder, 'lake'), {
    path,
    position: 'in its warm start, after 7 optimizer steps',
  });
  await saveCheckpoint(run, { ...initialState(0), step: STEPS - 1 }, nothing, 1);
  t.same(unfinishedRun(folder, 'lake'), { path, position: 'at step 4' });
  await saveCheckpoint(run, { ...initialState(0), step: STEPS }, nothing, 1);
  t.equal(unfinishedRun(folder, 'lake'), undefined);
  createRunFolder(settings, 'lake');
  t.equal(unfinishedRun(folder, 'lake'), undefined, 'a newer one has kept nothing');
});
