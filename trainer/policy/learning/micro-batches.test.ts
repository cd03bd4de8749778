import t from 'tap';
import { Random } from '../../../shared/random.ts';
import { scratchConfig } from '../../models/config.ts';
import { dealSequences, planMicroBatches, timeBucket } from './micro-batches.ts';

const BUDGET = 1024;
const config = scratchConfig({ vocabularySize: 46, hiddenSize: 128 });

/** Sequences of given lengths that are masked in every fourth token. */
const ofLengths = (lengths: readonly number[]) =>
  lengths.map(length => ({
    tokenIds: { length },
    lossMask: Array.from({ length }, (_, t) => (t % 4 === 3 ? 1 : 0)),
  }));

const sum = <T>(items: readonly T[], of: (item: T) => number) =>
  items.reduce((total, item) => total + of(item), 0);

t.test('plans hold every sequence once, long enough and within the budget', async t => {
  const rng = Random.fromSeed(3);
  for (let trial = 0; trial < 50; trial++) {
    const lengths = Array.from({ length: 1 + rng.integer(70) }, () => 2 + rng.integer(300));
    const options = { tokenBudget: BUDGET, packing: trial % 2 === 0, config };
    const plan = planMicroBatches(ofLengths(lengths), options);
    const members = plan.flatMap(batch => batch.members).sort((a, b) => a - b);
    t.same(
      members,
      lengths.map((_, i) => i),
    );
    for (const { rows, time, members, predictions, packed } of plan) {
      t.ok(predictions <= time && members.every(index => Math.floor(lengths[index] / 4) <= predictions));
      t.ok(members.length <= rows && members.every(index => lengths[index] - 1 <= time));
      if (packed === null) t.ok(rows === 1 || rows * time <= BUDGET);
      else {
        t.ok(options.packing);
        const [tokens, masked] = [sum(members, i => lengths[i] - 1), sum(members, i => lengths[i] >> 2)];
        t.ok(tokens <= BUDGET && tokens < packed.tokens && packed.tokens < rows * time);
        const all = predictions === time;
        t.equal(all, packed.predictions === packed.tokens);
        t.ok(all || (masked < packed.predictions && masked < rows * predictions), 'room for padding');
      }
    }
    t.same(planMicroBatches(ofLengths(lengths), options), plan, 'the same again');
  }
});

t.test('packed rows leave little padding where lengths are mixed', async t => {
  const rng = Random.fromSeed(5);
  const lengths = Array.from({ length: 128 }, () => 20 + rng.integer(140));
  const tokens = sum(lengths, length => length - 1);
  const computed = (packing: boolean) =>
    sum(
      planMicroBatches(ofLengths(lengths), { tokenBudget: 2048, packing, config }),
      ({ rows, time, packed }) => packed?.tokens ?? rows * time,
    );
  t.ok(computed(true) < 1.04 * tokens, `${computed(true)} tokens computed for ${tokens}`);
  t.ok(computed(false) < 1.25 * tokens, `${computed(false)} padded tokens for ${tokens}`);
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
