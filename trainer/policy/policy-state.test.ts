import t from 'tap';
import { ParameterStore } from '../tensor/runtime/parameter-store.ts';
import { WeightAverage } from './policy-state.ts';

t.test('the average follows the weights by its formula, and an exchange is undone by the next', async t => {
  const weights = new ParameterStore([{ name: 'w', shape: [2] }]);
  weights.array('w').set([1, -2]);
  const average = new WeightAverage(weights, 0.75);
  const expected = [1, -2];
  for (const step of [
    [3, 0],
    [-1, 4],
    [0.5, 8],
  ]) {
    weights.array('w').set(step);
    average.follow();
    step.forEach((value, i) => {
      expected[i] = 0.75 * expected[i] + 0.25 * value;
    });
  }
  const near = (values: Float32Array) => values.every((value, i) => Math.abs(value - expected[i]) < 1e-6);
  t.ok(near(average.average.array('w')), `${[...average.average.array('w')]} against ${expected}`);
  average.swap();
  t.ok(average.swapped && near(weights.array('w')));
  t.same([...average.average.array('w')], [0.5, 8]);
  average.swap();
  t.same([...weights.array('w')], [0.5, 8]);
  t.throws(() => new WeightAverage(weights, 1), /decay of averaged weights is 1/);
});
