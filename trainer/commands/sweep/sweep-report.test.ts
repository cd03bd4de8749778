import t from 'tap';
import type { RunSummary } from '../../training/run-folder/report.ts';
import { type SweepOutcome, sweepReport } from './sweep.ts';
import type { SweepPlan } from './sweep-plan.ts';

const plan = { name: 'two', baseline: 'a' } as SweepPlan;

function outcome(variant: string, seed: number, status: SweepOutcome['status'], success: number, step = 40) {
  const tags = { Lake: { success, low: 0, high: 1 } };
  const summary = { step, seconds: 60, after: { step, success, tags } } as Partial<RunSummary> as RunSummary;
  return { name: `${variant}-seed-${seed}`, variant, seed, overrides: [], status, summary };
}

t.test('runs that are not done are shown with their iteration, and not compared', async t => {
  const report = sweepReport(plan, [
    outcome('a', 0, 'done', 0.5),
    outcome('a', 1, 'done', 0.6),
    outcome('b', 0, 'dropped', 0.25, 10),
    outcome('b', 1, 'dropped', 0.35, 10),
    { ...outcome('c', 0, 'waiting', 0), summary: undefined },
  ]);
  t.match(report, /2 of 5 runs done, 2 dropped\./);
  t.match(report, '| a | Lake |  | 55 % ± 7.1 % | 50 %, 60 % |');
  t.match(report, '| b | Lake |  | 30 % ± 7.1 % | 25 % (dropped at step 10), 35 % (dropped at step 10) |');
  t.match(report, '| c |  |  |  | waiting |  |');
  t.notMatch(report, /against a/);
});

t.test('variants are compared with the baseline seed by seed', async t => {
  const report = sweepReport(plan, [
    outcome('a', 0, 'done', 0.5),
    outcome('a', 1, 'done', 0.6),
    outcome('b', 0, 'done', 0.6),
    outcome('b', 1, 'done', 0.7),
  ]);
  t.match(report, /\| b \| 2 \| 10\.0 \| 10\.0 to 10\.0 \| 0\.500 \|/);
});
