import t from 'tap';
import { countLossTokens } from '../algorithms/losses/aggregation.ts';
import type { LossSettings } from '../algorithms/losses/settings.ts';
import { DEFAULT_LOSS_SETTINGS } from '../algorithms/losses/settings.ts';
import type { TrainingSequence } from '../algorithms/training-sequence.ts';
import { WebGpuRuntime } from '../tensor/runtime/webgpu/webgpu-runtime.ts';
import type { LocalPolicy, LocalPolicyOptions } from './local-policy.ts';
import { closing, config, largestDifference, play, policyWith, settingsWith } from './policies.test-data.ts';

/** Plain losses: no entropy bonus. */
const LOSSES: readonly (Partial<LossSettings> & { readonly policy: string })[] = [
  { policy: 'cross_entropy' },
  { policy: 'ppo', dualClip: 0 },
  { policy: 'cispo' },
  { policy: 'dro', dro: { beta: 0.05 } },
];
/** With an epsilon this large a step of Adam is its gradient times the rate. */
const { optimizer } = settingsWith(
  {},
  { learningRate: 1e3, epsilon: 1e3, beta1: 0, beta2: 0, weightDecay: 0, clipNorm: 0 },
);
const found = await WebGpuRuntime.open();
await found?.close();

const flatOf = async (policy: LocalPolicy): Promise<Float32Array> => (await policy.copyWeights()).flat;

/** Σ over a batch as the mean that `update` takes. */
function scaled(sequences: readonly TrainingSequence[]): TrainingSequence[] {
  const { tokens } = countLossTokens(sequences);
  return sequences.map(({ returns: _, values: __, ...sequence }) => ({
    ...sequence,
    policyGradientWeights: Float32Array.from(sequence.lossMask, on => on / tokens),
    crossEntropyWeights: Float32Array.from(sequence.lossMask, on => on / tokens),
  }));
}

/** Largest difference of two moves of the weights, relative to the largest move. */
function relative(from: Float32Array, a: Float32Array, b: Float32Array): number {
  const move = (to: Float32Array) => to.map((x, i) => x - from[i]);
  return largestDifference(move(a), move(b)) / Math.max(...move(b).map(Math.abs));
}

const places: readonly [string, Partial<LocalPolicyOptions>, boolean][] = [
  ['the processor', { workers: 2 }, true],
  ['a GPU', { runtime: 'webgpu' }, found !== null],
];
for (const [place, where, exists] of places) {
  t.test(
    `added gradients are those of an update on ${place}`,
    { skip: !exists && 'no GPU here' },
    async t => {
      const options = { ...where, valueHead: false, model: { ...config, initializerRange: 0.5 } };
      const player = await closing(t, policyWith(where));
      const episodes = (await play(player, 7)).map(({ returns: _, values: __, ...rest }) => rest);
      for (const own of place === 'a GPU' ? LOSSES.slice(0, 2) : LOSSES) {
        const loss = { ...DEFAULT_LOSS_SETTINGS, entropyCoefficient: 0, ...own };
        const [whole, parts] = [await policyWith(options), await policyWith(options)];
        const start = await flatOf(whole);
        const metrics = await whole.update({ sequences: episodes }, { loss, optimizer, temperature: 1 });
        const sums = scaled(episodes);
        const logProbs: Float32Array[] = [];
        for (const [from, to] of [
          [0, 3],
          [3, 4],
          [4, 7],
        ])
          logProbs.push(...(await parts.addGradient(sums.slice(from, to), loss)));
        const scores = await parts.score(episodes);
        const norm = await parts.step(optimizer);
        t.ok(Math.abs(norm / metrics['actor/grad_norm'] - 1) < 1e-5, `${own.policy}: norm ${norm}`);
        const difference = relative(start, await flatOf(parts), await flatOf(whole));
        t.ok(difference < 1e-5, `${own.policy}: relative difference ${difference}`);
        scores.forEach((score, i) => {
          t.ok(largestDifference(logProbs[i], score.logProbs) < 1e-5, `${own.policy}: log p of ${i}`);
        });
        t.equal(parts.version, 1);
        await Promise.all([whole.close(), parts.close()]);
      }
    },
  );
}

const crossEntropy = { ...DEFAULT_LOSS_SETTINGS, policy: 'cross_entropy', entropyCoefficient: 0 };

t.test('targets replace the next tokens in gradient and score', async t => {
  const policy = await closing(t, policyWith({ workers: 1, valueHead: false }));
  const prompt = Int32Array.of(3, 5, 7, 11);
  const targets = Int32Array.of(0, 9, 2, 21);
  const sequence = {
    tokenIds: prompt,
    targets,
    lossMask: Uint8Array.of(0, 1, 1, 1),
    logProbs: new Float32Array(4),
    advantages: new Float32Array(4),
    crossEntropyWeights: Float32Array.of(0, 1, 0, -2),
  };
  const wanted = await policy.scoreContinuations(
    [1, 2, 3].map(t => ({ prompt: prompt.slice(0, t), continuations: [Int32Array.of(targets[t])] })),
  );
  const [score] = await policy.score([sequence]);
  const [logProbs] = await policy.addGradient([sequence], crossEntropy);
  for (const own of [score.logProbs, logProbs]) {
    t.ok(
      largestDifference(
        own.slice(1),
        wanted.map(([x]) => x),
      ) < 1e-5,
    );
  }
  const last = async () =>
    (
      await policy.scoreContinuations([
        { prompt: prompt.slice(0, 1), continuations: [Int32Array.of(9)] },
        { prompt: prompt.slice(0, 3), continuations: [Int32Array.of(21)] },
      ])
    ).map(([x]) => x);
  const before = await last();
  await policy.step(settingsWith({}, { learningRate: 1e-2, weightDecay: 0 }).optimizer);
  const after = await last();
  t.ok(after[0] > before[0] && after[1] < before[1], 'a weight below 0 makes a target less likely');
  await t.rejects(policy.score([{ ...sequence, targets: Int32Array.of(0, 99, 2, 3) }]), {
    message: /the targets of sequence 0 to score: token id 99 at 1 is outside the vocabulary of 24/,
  });
});

t.test('a step uses what was added since the last one, whole or not at all', async t => {
  const policy = await closing(t, policyWith({ workers: 2, valueHead: false }));
  const episodes = (await play(await closing(t, policyWith()), 4)).map(
    ({ returns: _, values: __, ...rest }) => rest,
  );
  const { loss, optimizer: adam } = settingsWith({ entropyCoefficient: 0 });
  const start = await flatOf(policy);
  t.equal(await policy.step(adam), 0, 'nothing was added: the gradient is 0');
  await policy.addGradient(episodes, loss);
  await t.rejects(policy.update({ sequences: episodes }, { loss, optimizer: adam, temperature: 1 }), {
    message: /added gradients wait for their step/,
  });
  await policy.dropGradients();
  t.equal(await policy.step(adam), 0, 'what was dropped is not used');
  const before = await flatOf(policy);
  const bad = episodes.map(one => ({ ...one, advantages: one.advantages.map(() => NaN) }));
  await policy.addGradient(episodes, loss);
  await policy.addGradient(bad, loss);
  await t.rejects(policy.step(adam), { message: /the gradient's norm is NaN; the step was not taken/ });
  t.same(await flatOf(policy), before, 'the weights are as they were');
  await t.rejects(policy.addGradient([{ ...episodes[0], grammar: 'none' }], loss), { message: /no grammar/ });
  await t.rejects(policy.step(adam), { message: /a gradient of this step could not be added: no grammar/ });
  await t.rejects(policy.addGradient([{ ...episodes[0], logProbs: new Float32Array(1) }], loss), RangeError);
  await policy.addGradient(episodes, loss);
  t.ok((await policy.step(adam)) > 0, 'the next step is not touched');
  t.ok(relative(start, await flatOf(policy), before) > 0);
  t.equal(
    (await policy.generate({ sequenceId: 900, append: [3], sampling: SHORT, seed: 1 })).tokenIds.length,
    2,
  );
});

const SHORT = { temperature: 1, topK: 0, topP: 1, maxNewTokens: 2, stopTokenIds: [] };

t.test('weights of another policy of the shape are taken', async t => {
  const [a, b] = [await closing(t, policyWith({ seed: 1 })), await closing(t, policyWith({ seed: 2 }))];
  const prompt = [{ prompt: Int32Array.of(3, 4), continuations: [Int32Array.of(5, 6)] }];
  await b.takeWeights(await flatOf(a));
  t.same(await b.scoreContinuations(prompt), await a.scoreContinuations(prompt));
  t.equal(b.version, 1);
});
