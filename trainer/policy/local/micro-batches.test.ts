import t from 'tap';
import { Random } from '../../../shared/random.ts';
import { dealSequences, planMicroBatches, timeBucket } from './micro-batches.ts';

const BUDGET = 1024;

/** Sequences of given lengths that are masked in every fourth token. */
const ofLengths = (lengths: readonly number[]) =>
  lengths.map(length => ({
    tokenIds: { length },
    mask: Array.from({ length }, (_, t) => (t % 4 === 3 ? 1 : 0)),
  }));

t.test('plans hold every sequence once, long enough and within the budget', async t => {
  const rng = Random.fromSeed(3);
  for (let trial = 0; trial < 50; trial++) {
    const lengths = Array.from({ length: 1 + rng.integer(70) }, () => 2 + rng.integer(300));
    const plan = planMicroBatches(ofLengths(lengths), BUDGET);
    const members = plan.flatMap(batch => batch.members).sort((a, b) => a - b);
    t.same(
      members,
      lengths.map((_, i) => i),
    );
    for (const { rows, time, members, predictions } of plan) {
      t.ok(predictions <= time && members.every(index => Math.floor(lengths[index] / 4) <= predictions));
      t.ok(members.length <= rows && members.every(index => lengths[index] - 1 <= time));
      t.ok(rows === 1 || rows * time <= BUDGET);
    }
    t.same(planMicroBatches(ofLengths(lengths), BUDGET), plan, 'the same again');
  }
});

t.test('padding stays small where lengths are mixed', async t => {
  const lengths = Array.from({ length: 64 }, (_, i) => 34 + 32 * (i % 5));
  const tokens = lengths.reduce((a, b) => a + b);
  const padded = planMicroBatches(ofLengths(lengths), 2048).reduce(
    (sum, { rows, time }) => sum + rows * time,
    0,
  );
  t.ok(padded < 1.25 * tokens, `${padded} padded tokens for ${tokens}`);
});

t.test('few shapes serve all lengths', async t => {
  const buckets = new Set(Array.from({ length: 4096 }, (_, i) => timeBucket(i + 2)));
  t.ok(buckets.size < 80, `${buckets.size} lengths`);
  t.equal(timeBucket(2), 16);
  t.equal(timeBucket(161), 160);
});

t.test('workers get about as many tokens each', async t => {
  const rng = Random.fromSeed(4);
  const lengths = Array.from({ length: 33 }, () => 20 + rng.integer(140));
  const shares = dealSequences(lengths, 4);
  t.same(
    shares.flat().sort((a, b) => a - b),
    lengths.map((_, i) => i),
  );
  const loads = shares.map(share => share.reduce((sum, index) => sum + lengths[index], 0));
  t.ok(Math.max(...loads) - Math.min(...loads) <= 160, loads.join(', '));
});
