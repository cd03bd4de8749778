import t from 'tap';
import { Random } from '../../../shared/random.ts';
import type { FilterFill } from '../../algorithms/filters/settings.ts';
import type { TrainingSequence } from '../../algorithms/training-sequence.ts';
import { fillBatch } from './update.ts';

/** Positions and weights of what fills mini-batches, from this many sequences. */
const plan = (mode: FilterFill | 'none', count: number, multiple = 4) => {
  const sequences = Array.from(
    { length: count },
    (_, i) => ({ tokenIds: Int32Array.of(i) }) as TrainingSequence,
  );
  const filled = fillBatch(sequences, mode, multiple, Random.fromSeed(3));
  return {
    indices: filled.map(({ tokenIds }) => tokenIds[0]),
    weights: filled.map(({ weight = 1 }) => weight),
  };
};

t.test('without a fill, and with one that collects what is missing, the batch stays as it is', async t => {
  for (const mode of ['none', 'refill'] as const) {
    t.same(plan(mode, 6), { indices: [0, 1, 2, 3, 4, 5], weights: [1, 1, 1, 1, 1, 1] }, mode);
  }
});

t.test('copy repeats sequences up to the next multiple, none twice before all once', async t => {
  const { indices } = plan('copy', 3, 8);
  t.equal(indices.length, 8);
  const counts = [0, 1, 2].map(i => indices.filter(index => index === i).length);
  t.ok(Math.max(...counts) - Math.min(...counts) <= 1);
  t.same(plan('copy', 4).indices, [0, 1, 2, 3]);
});

t.test('delete drops down to the last multiple', async t => {
  const { indices } = plan('delete', 7);
  t.equal(indices.length, 4);
  t.equal(new Set(indices).size, 4);
  t.same(plan('delete', 3).indices, []);
});

t.test('pad adds sequences of weight 0', async t => {
  t.same(plan('pad', 3), { indices: [0, 1, 2, 0], weights: [1, 1, 1, 0] });
});

t.test('an empty selection stays empty', async t => {
  for (const mode of ['copy', 'delete', 'pad'] as const) t.same(plan(mode, 0).indices, [], mode);
});

t.test('an unknown mode is refused with the valid ones', async t => {
  t.throws(() => plan('drop' as FilterFill, 3), {
    message: 'no fill mode "drop"; choose one of refill, copy, delete, pad',
  });
});
