import { mkdirSync, readFileSync } from 'node:fs';
import t from 'tap';
import { settingsOf } from '../../config/settings.test-data.ts';
import { initialState } from './checkpoint.ts';
import { writeReport } from './report.ts';
import { runFolderAt } from './run-folder.ts';

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
