import t from 'tap';
import { halvingRounds, roundValue, survivors } from './sweep.ts';

const result = (variant: string, value: number | undefined) => ({ variant, value });

t.test('rounds grow by the factor and stop before the end', async t => {
  t.same(halvingRounds({ first_steps: 10, factor: 3 }, 100), [10, 30, 90]);
  t.same(halvingRounds({ first_steps: 10, factor: 2 }, 40), [10, 20]);
  t.same(halvingRounds({ first_steps: 50, factor: 2 }, 40), []);
});

t.test('one variant in `factor` continues, by the mean over its seeds', async t => {
  const results = [
    result('a', 0.9),
    result('b', 0.5),
    result('c', 0.4),
    result('a', 0.1),
    result('b', 0.6),
    result('c', 0.4),
  ];
  t.same(survivors(results, 3, 'max'), ['b']);
  t.same(survivors(results, 2, 'min'), ['c']);
  t.same(survivors(results, 9, 'max'), ['b'], 'at least one');
  t.same(survivors([result('a', 0.5), result('b', 0.5)], 2, 'max'), ['a']);
  t.same(survivors([result('a', undefined), result('a', 1), result('b', 0)], 2, 'max'), ['b']);
});

t.test('a run that is over before a round counts with its last validation', async t => {
  const at = (step: number, success: number) => ({
    step,
    seconds: 0,
    metrics: { 'val-env/success': success },
  });
  const metric = 'val-env/success';
  const reachedTarget = [at(0, 0.2), at(10, 0.9)];
  t.equal(roundValue(reachedTarget, { step: 20, metric, isOver: true }), 0.9);
  t.equal(roundValue(reachedTarget, { step: 20, metric, isOver: false }), undefined, 'failed');
  t.equal(roundValue([...reachedTarget, at(20, 0.7), at(40, 1)], { step: 20, metric, isOver: true }), 0.7);
  t.equal(roundValue([], { step: 20, metric, isOver: true }), undefined);
});
