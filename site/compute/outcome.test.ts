import t from 'tap';
import { outcomeOf, verdictOf } from './outcome.ts';

const at = (success: number, low?: number, high?: number) => ({ step: 0, success, low, high });

t.test('the verdict is by the interval, and by the number where there is none', async t => {
  t.equal(verdictOf([]), undefined);
  t.equal(verdictOf([at(0.2)]), undefined);
  t.equal(verdictOf([at(0.2), at(0.5, 0.4, 0.6)]), 'improved');
  t.equal(verdictOf([at(0.2), at(0.25, 0.15, 0.35)]), 'flat');
  t.equal(verdictOf([at(0.9), at(0.5), at(0.1, 0.05, 0.2)]), 'worse');
  t.same(
    [verdictOf([at(0.2), at(0.3)]), verdictOf([at(0.2), at(0.2)]), verdictOf([at(0.2), at(0.1)])],
    ['improved', 'flat', 'worse'],
  );
});

t.test('a run that continues, failed or stalled says so; others say their outcome', async t => {
  const validations = [at(0.2), at(0.5, 0.4, 0.6)];
  for (const state of ['running', 'failed', 'stalled'] as const)
    t.equal(outcomeOf({ state, validations }), state);
  for (const state of ['finished', 'stopped', 'unknown'] as const) {
    t.equal(outcomeOf({ state, validations }), 'improved');
    t.equal(outcomeOf({ state, validations: [] }), state);
  }
});
