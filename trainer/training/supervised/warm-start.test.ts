import t from 'tap';
import { validateConfig } from '../../../shared/config.ts';
import { WarmStart } from '../../config/sections/training.ts';
import { closing, policyWith, vocabularySize } from '../../policy/policies.test-data.ts';
import type { UpdateBatch, UpdateSettings } from '../../policy/policy.ts';
import { warmStart } from './warm-start.ts';

const settings = validateConfig(
  { epochs: 2, batch_size: 2, learning_rate: 1, warmup_steps: 2, final_share: 0.1, weight_decay: 0.5 },
  WarmStart,
);
const demonstration = (id: number, trained = 1) => ({
  tokenIds: Int32Array.of(id, id),
  lossMask: Uint8Array.of(0, trained),
});
const never = new AbortController().signal;

/** A policy that notes what it is taught. */
const pupil = () => {
  const seen: { ids: number[]; settings: UpdateSettings }[] = [];
  return {
    seen,
    async update({ sequences }: UpdateBatch, settings: UpdateSettings) {
      seen.push({ ids: sequences.map(({ tokenIds }) => tokenIds[0]), settings });
      return { 'sft/loss': seen.length };
    },
  };
};

t.test('every demonstration is trained once per epoch, with warm-up and cosine', async t => {
  const policy = pupil();
  const epochs: number[] = [];
  await warmStart(
    policy,
    [0, 1, 2, 3].map(id => demonstration(id)),
    settings,
    {
      seed: 1,
      signal: never,
      onEpoch: (_, metrics) => void epochs.push(metrics['sft/loss']),
    },
  );
  t.same(epochs, [1.5, 3.5]);
  t.same(
    policy.seen
      .slice(0, 2)
      .flatMap(({ ids }) => ids)
      .sort(),
    [0, 1, 2, 3],
  );
  t.same(
    policy.seen
      .slice(2)
      .flatMap(({ ids }) => ids)
      .sort(),
    [0, 1, 2, 3],
  );
  t.same(
    policy.seen.map(({ settings }) => Number(settings.optimizer.learningRate.toFixed(3))),
    [0.5, 1, 1, 0.55],
  );
  t.match(policy.seen[0].settings, { loss: { policy: 'cross_entropy' }, optimizer: { weightDecay: 0.5 } });
});

t.test('demonstrations without a response token are left out', async t => {
  const policy = pupil();
  await warmStart(policy, [demonstration(0), demonstration(1, 0)], settings, { seed: 1, signal: never });
  t.same(
    policy.seen.map(({ ids }) => ids),
    [[0], [0]],
  );
});

t.test('supervised training stops between epochs on request', async t => {
  const policy = pupil();
  const stop = new AbortController();
  const run = warmStart(policy, [demonstration(0)], settings, {
    seed: 1,
    signal: stop.signal,
    onEpoch: () => stop.abort(),
  });
  await t.rejects(run, { name: 'AbortError' });
  t.equal(policy.seen.length, 1);
});

t.test('a demonstration is learned under the mask that sampling takes, as float64 has it', async t => {
  const policy = await closing(t, policyWith());
  const tokenIds = Int32Array.of(3, 7, 11, 4, 20, 6);
  const lossMask = Uint8Array.of(0, 0, 1, 0, 1, 1);
  const allowed = new Map([
    [2, Int32Array.of(11)],
    [4, Int32Array.of(2, 9, 20)],
    [5, Int32Array.from({ length: vocabularySize / 2 }, (_, i) => 2 * i)],
  ]);
  /** Log-probability of each token of the vocabulary at a position, under no mask. */
  const free = async (position: number): Promise<number[]> => {
    const scores = await policy.score(
      Array.from({ length: vocabularySize }, (_, id) => ({
        tokenIds: tokenIds.slice(0, position + 1).fill(id, position),
        lossMask: new Uint8Array(position + 1).fill(1, position),
      })),
    );
    return scores.map(({ logProbs }) => logProbs[position]);
  };
  let masked = 0;
  let unmasked = 0;
  for (const [position, set] of allowed) {
    const logProbs = await free(position);
    const all = (ids: Iterable<number>) =>
      Math.log([...ids].reduce((sum, id) => sum + Math.exp(logProbs[id]), 0));
    masked += (all(set) - logProbs[tokenIds[position]]) / allowed.size;
    unmasked -= logProbs[tokenIds[position]] / allowed.size;
  }
  const losses: number[] = [];
  const learn = async (demonstration: Parameters<typeof warmStart>[1][number]) =>
    warmStart(
      policy,
      [demonstration],
      { ...settings, epochs: 1, learning_rate: 1e-9 },
      {
        seed: 1,
        signal: never,
        onEpoch: (_, metrics) => void losses.push(metrics['sft/loss']),
      },
    );
  await learn({ tokenIds, lossMask, allowed });
  await learn({ tokenIds, lossMask });
  t.ok(Math.abs(losses[0] - masked) < 1e-5, `${losses[0]}, not ${masked}`);
  t.ok(Math.abs(losses[1] - unmasked) < 1e-5, `${losses[1]}, not ${unmasked}`);
  t.ok(unmasked - masked > 1);
});
