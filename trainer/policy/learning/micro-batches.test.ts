import t from 'tap';
import { Random } from '../../../shared/random.ts';
import { scratchConfig } from '../../models/config.ts';
import { dealPrompts, dealSequences, planMicroBatches, timeBucket } from './micro-batches.ts';

const BUDGET = 1024;
const config = scratchConfig({ vocabularySize: 46, hiddenSize: 128 });

/** Sequences of given lengths that are masked in every fourth token. */
const ofLengths = (lengths: readonly number[]) =>
  lengths.map((length, i) => ({
    tokenIds: Array.from({ length }, () => i),
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

/** Groups of sequences that begin with the same prompt. */
const ofPrompts = (prompts: number, members: number, promptLength: number, responseLength: number) =>
  Array.from({ length: prompts * members }, (_, i) => ({
    tokenIds: Array.from({ length: promptLength + responseLength }, (_, t) =>
      t < promptLength ? 1000 * (i % prompts) + t : i,
    ),
    lossMask: Array.from({ length: promptLength + responseLength }, (_, t) => (t < promptLength ? 0 : 1)),
  }));

t.test(
  'rows compute once what their prompts begin with in a large model, where responses are short',
  async t => {
    const large = {
      ...config,
      hiddenSize: 576,
      intermediateSize: 1536,
      layers: 30,
      heads: 9,
      headDimension: 64,
    };
    const options = { tokenBudget: 2048, packing: true, config: { ...large, keyValueHeads: 3 } };
    const computed = (sequences: ReturnType<typeof ofPrompts>) => {
      const plan = planMicroBatches(sequences, options);
      t.same(
        plan.flatMap(batch => batch.members).sort((a, b) => a - b),
        sequences.map((_, i) => i),
      );
      return sum(plan, ({ rows, time, packed }) => packed?.tokens ?? rows * time);
    };
    const short = computed(ofPrompts(16, 8, 135, 6));
    t.ok(short < 1.2 * (16 * 135 + 128 * 7), `${short} tokens`);
    t.ok(computed(ofPrompts(1, 64, 100, 3)) < 1.2 * (100 + 64 * 4));
    const long = ofPrompts(4, 4, 10, 200);
    t.ok(
      planMicroBatches(long, options).every(({ packed }) => !packed?.shared),
      'long ones are not selected from',
    );
    const alike = ofPrompts(16, 8, 160, 8).map(({ tokenIds, lossMask }) => ({
      tokenIds: tokenIds.map((token, t) => (t < 110 ? t : token)),
      lossMask,
    }));
    const once = computed(alike);
    t.ok(once < 1.2 * (110 + 16 * 50 + 128 * 9), `${once} tokens of prompts that begin alike`);
    const one = {
      tokenIds: new Array<number>(30_000).fill(1),
      lossMask: new Array<number>(30_000).fill(0).fill(1, 29_998),
    };
    t.equal(
      planMicroBatches([one, one, one, one], { ...options, tokenBudget: 40_000 }).length > 0,
      true,
      'long ones',
    );
    const apart = ofPrompts(8, 1, 100, 5);
    t.ok(planMicroBatches(apart, options).every(({ packed }) => !packed?.shared));
  },
);

t.test('sequences of one prompt go to one worker as far as the load allows', async t => {
  const shares = dealPrompts(ofPrompts(16, 8, 100, 5), 2);
  t.same(
    shares.map(share => share.length),
    [64, 64],
  );
  for (const share of shares) t.equal(new Set(share.map(index => index % 16)).size, 8);
  t.same(
    dealPrompts(ofPrompts(1, 8, 100, 5), 2).map(share => share.length),
    [4, 4],
    'a single group is cut',
  );
  const lengths = Array.from({ length: 33 }, (_, i) => 20 + ((i * 37) % 140));
  t.same(
    dealPrompts(ofLengths(lengths), 4),
    dealSequences(lengths, 4),
    'without prompts in common as before',
  );
  t.same(dealPrompts([], 2), [[], []]);
});
