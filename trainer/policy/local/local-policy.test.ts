import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { Random } from '../../../shared/random.ts';
import { DEFAULT_LOSS_SETTINGS, type LossSettings } from '../../algorithms/losses/settings.ts';
import { scratchConfig } from '../../models/config.ts';
import type { SamplingSettings, TrainingSequence, UpdateSettings } from '../policy.ts';
import { LocalPolicy, type LocalPolicyOptions } from './local-policy.ts';

const folder = await mkdtemp(join(tmpdir(), 'ragen-policy-'));
t.after(() => rm(folder, { recursive: true }));

const vocabularySize = 24;
const config = scratchConfig({
  vocabularySize,
  hiddenSize: 16,
  heads: 2,
  keyValueHeads: 1,
  layers: 1,
  initializerRange: 0.2,
});
const grammars = {
  answer: {
    start: 0,
    states: [
      { tokens: [3, 4, 5], next: [1, 1, 1] },
      { tokens: [6, 7], next: [0, 2] },
      { tokens: [], next: [] },
    ],
  },
};
const sampling: SamplingSettings = { temperature: 1, topK: 0, topP: 1, maxNewTokens: 6, stopTokenIds: [9] };

const policyWith = (options: Partial<LocalPolicyOptions> = {}): Promise<LocalPolicy> =>
  LocalPolicy.create({
    model: config,
    seed: 3,
    workers: 1,
    valueHead: true,
    maxSequenceLength: 64,
    maxOpenSequences: 16,
    grammars,
    ...options,
  });

const settingsWith = (
  loss: Partial<LossSettings> = {},
  optimizer: Partial<UpdateSettings['optimizer']> = {},
) => ({
  loss: { ...DEFAULT_LOSS_SETTINGS, ...loss },
  optimizer: {
    learningRate: 1e-3,
    beta1: 0.9,
    beta2: 0.99,
    epsilon: 1e-8,
    weightDecay: 0.01,
    clipNorm: 1,
    ...optimizer,
  },
  temperature: 1,
});

/** Episodes of one or two turns played by the policy itself, with made-up advantages. */
async function play(policy: LocalPolicy, count: number, grammar?: string): Promise<TrainingSequence[]> {
  return Promise.all(
    Array.from({ length: count }, async (_, n) => {
      const rng = Random.fromSeed(100 + n);
      const tokens: number[] = [];
      const mask: number[] = [];
      const logProbs: number[] = [];
      const values: number[] = [];
      for (let turn = 0; turn <= n % 2; turn++) {
        const append = Array.from({ length: 3 + ((n * 5) % 4) }, () => rng.integer(vocabularySize));
        const request = { sequenceId: n, append, sampling, seed: n * 10 + turn };
        const generation = await policy.generate(grammar === undefined ? request : { ...request, grammar });
        tokens.push(...append, ...generation.tokenIds);
        mask.push(...append.map(() => 0), ...generation.tokenIds.map(() => 1));
        logProbs.push(...append.map(() => 0), ...generation.logProbs);
        values.push(...append.map(() => 0), ...generation.values!);
      }
      policy.release(n);
      return {
        tokenIds: Int32Array.from(tokens),
        mask: Uint8Array.from(mask),
        logProbs: Float32Array.from(logProbs),
        advantages: Float32Array.from(tokens, () => rng.normal()),
        returns: Float32Array.from(tokens, () => rng.normal()),
        values: Float32Array.from(values),
        ...(grammar === undefined ? {} : { grammar }),
      };
    }),
  );
}

async function weightsOf(policy: LocalPolicy): Promise<Buffer[]> {
  const into = await mkdtemp(join(folder, 'weights-'));
  await policy.save(into);
  const files = ['model.safetensors', 'value_head.safetensors', 'optimizer.safetensors'];
  return Promise.all(files.map(name => readFile(join(into, name))));
}

const largestDifference = (a: ArrayLike<number>, b: ArrayLike<number>): number =>
  Math.max(...Array.from(a, (x, i) => Math.abs(x - b[i])));

t.test('scores of sampled tokens are their log-probabilities and values', async t => {
  const policy = await policyWith({ workers: 2 });
  t.teardown(() => policy.close());
  for (const grammar of [undefined, 'answer']) {
    const episodes = await play(policy, 5, grammar);
    const scores = await policy.score(episodes);
    episodes.forEach(({ logProbs, values }, n) => {
      t.ok(largestDifference(scores[n].logProbs, logProbs) < 1e-4, `log-probabilities of ${n}`);
      t.ok(largestDifference(scores[n].values!, values!) < 1e-4, `values of ${n}`);
      t.ok(scores[n].entropies.every((x, i) => (episodes[n].mask[i] ? x >= 0 : x === 0)));
    });
    const bound = Math.log(grammar === undefined ? vocabularySize : 3);
    t.ok(
      scores.every(({ entropies }) => entropies.every(x => x <= bound + 1e-5)),
      'entropies are bounded',
    );
  }
});

t.test('the first update has ratio 1 and no divergence', async t => {
  const policy = await policyWith({ workers: 2 });
  t.teardown(() => policy.close());
  for (const grammar of [undefined, 'answer']) {
    const sequences = await play(policy, 4, grammar);
    const reference = await policy.score(sequences);
    const kl = { estimator: 'k3', coefficient: 0.01 } as const;
    const metrics = await policy.update(
      {
        sequences: sequences.map((sequence, n) => ({
          ...sequence,
          referenceLogProbs: reference[n].logProbs,
        })),
      },
      settingsWith({ kl }),
    );
    t.ok(Math.abs(metrics['actor/ppo_kl']) < 1e-7, `ppo_kl ${metrics['actor/ppo_kl']}`);
    t.ok(Math.abs(metrics['actor/kl_loss']) < 1e-8, `kl_loss ${metrics['actor/kl_loss']}`);
    t.equal(metrics['actor/pg_clipfrac'], 0);
    t.ok(metrics['actor/grad_norm'] > 0);
    t.ok(metrics['actor/entropy'] > 0);
  }
  t.equal(policy.version, 2);
});

t.test('a step does not depend on workers, micro-batches or the order of sequences', async t => {
  const base = await policyWith();
  t.teardown(() => base.close());
  const sequences = await play(base, 7);
  const expected = await base.update({ sequences }, settingsWith());
  const after = (await base.score(sequences)).map(({ logProbs }) => logProbs);
  const variants: [string, Partial<LocalPolicyOptions>, readonly TrainingSequence[]][] = [
    ['two workers', { workers: 2 }, sequences],
    ['micro-batches of a sequence', { tokenBudget: 1 }, sequences],
    ['reversed order', {}, sequences.toReversed()],
  ];
  for (const [name, options, batch] of variants) {
    const policy = await policyWith(options);
    const metrics = await policy.update({ sequences: batch }, settingsWith());
    for (const [key, value] of Object.entries(expected)) {
      t.ok(Math.abs(metrics[key] - value) <= 1e-5 * Math.max(1, Math.abs(value)), `${name}: ${key}`);
    }
    const scores = await policy.score(sequences);
    scores.forEach(({ logProbs }, n) => {
      t.ok(largestDifference(logProbs, after[n]) < 2e-4, `${name}: scores of ${n} after the step`);
    });
    await policy.close();
  }
});

t.test('what is masked out does not matter', async t => {
  const sequences = await play(await closing(t, policyWith()), 6);
  const poisoned = sequences.map(sequence => {
    const spoil = (array: Float32Array) => array.map((x, i) => (sequence.mask[i] ? x : NaN));
    return {
      ...sequence,
      advantages: spoil(sequence.advantages),
      returns: spoil(sequence.returns!),
      values: spoil(sequence.values!),
      logProbs: spoil(sequence.logProbs),
    };
  });
  const results = await Promise.all(
    [sequences, poisoned].map(async batch => {
      const policy = await closing(t, policyWith());
      return [await policy.update({ sequences: batch }, settingsWith()), await weightsOf(policy)];
    }),
  );
  t.same(results[1], results[0]);
});

t.test('learning rate 0 leaves the weights as they are', async t => {
  const policy = await closing(t, policyWith());
  const sequences = await play(policy, 4);
  const [before, head] = await weightsOf(policy);
  await policy.update({ sequences }, settingsWith({}, { learningRate: 0 }));
  const [after, headAfter] = await weightsOf(policy);
  t.ok(before.equals(after) && head.equals(headAfter));
});

t.test('supervised updates memorise one sequence, which greedy generation then repeats', async t => {
  const policy = await closing(t, policyWith({ workers: 2 }));
  const rng = Random.fromSeed(1);
  const tokenIds = Int32Array.from({ length: 14 }, () => 10 + rng.integer(10));
  const zeros = new Float32Array(14);
  const sequence = {
    tokenIds,
    mask: Uint8Array.from(tokenIds, (_, i) => (i < 4 ? 0 : 1)),
    logProbs: zeros,
    advantages: zeros,
  };
  const settings = settingsWith({ policy: 'cross_entropy' }, { learningRate: 1e-2 });
  let metrics = await policy.update({ sequences: [sequence] }, settings);
  t.ok(metrics['sft/loss'] > 1);
  for (let step = 0; step < 40; step++) metrics = await policy.update({ sequences: [sequence] }, settings);
  t.ok(metrics['sft/loss'] < 0.05, `loss ${metrics['sft/loss']}`);
  const { tokenIds: repeated } = await policy.generate({
    sequenceId: 1,
    append: tokenIds.subarray(0, 4),
    sampling: { ...sampling, temperature: 0, maxNewTokens: 10, stopTokenIds: [] },
    seed: 0,
  });
  t.same([...repeated], [...tokenIds.subarray(4)]);
});

t.test('four steps are two steps, a save, a load and two steps, bit for bit', async t => {
  const step = async (policy: LocalPolicy) =>
    policy.update({ sequences: await play(policy, 6) }, settingsWith());
  const straight = await closing(t, policyWith({ workers: 2 }));
  for (let i = 0; i < 4; i++) await step(straight);
  const first = await closing(t, policyWith({ workers: 2 }));
  for (let i = 0; i < 2; i++) await step(first);
  const saved = join(folder, 'resume');
  await first.save(saved);
  const second = await closing(t, policyWith({ workers: 2, seed: 99 }));
  await second.load(saved);
  t.equal(second.version, 2);
  for (let i = 0; i < 2; i++) await step(second);
  const [a, b] = [await weightsOf(straight), await weightsOf(second)];
  t.ok(a.every((file, i) => file.equals(b[i])));
  t.equal(second.version, 4);
});

t.test('a saved folder is a model to start from, and another model is refused', async t => {
  const files = { 'tokenizer.json': '{"x":1}' };
  const policy = await closing(t, policyWith({ files }));
  const saved = join(folder, 'model');
  await policy.save(saved);
  t.same((await readdir(saved)).sort(), [
    'config.json',
    'model.safetensors',
    'optimizer.json',
    'optimizer.safetensors',
    'tokenizer.json',
    'value_head.safetensors',
  ]);
  const again = await closing(t, policyWith({ model: saved, seed: 8 }));
  const [a, b] = [await weightsOf(policy), await weightsOf(again)];
  t.ok(a[0].equals(b[0]) && a[1].equals(b[1]));
  const other = await closing(t, policyWith({ model: scratchConfig({ vocabularySize }) }));
  await t.rejects(other.load(saved), /holds another model: hiddenSize, intermediateSize/);
  await writeFile(join(saved, 'model.safetensors'), 'broken');
  await t.rejects(policyWith({ model: saved }), /not a safetensors file/);
});

t.test('sequences go on under new weights while others generate', async t => {
  const policy = await closing(t, policyWith({ workers: 2 }));
  const sequences = await play(policy, 6);
  const open = Array.from({ length: 12 }, (_, n) =>
    policy.generate({
      sequenceId: 1000 + n,
      append: [1, 2, 3],
      sampling: { ...sampling, maxNewTokens: 40, stopTokenIds: [] },
      seed: n,
    }),
  );
  for (let step = 0; step < 3; step++) await policy.update({ sequences }, settingsWith());
  for (const { tokenIds, versions } of await Promise.all(open)) {
    t.equal(tokenIds.length, 40);
    t.ok(versions.every((version, i) => version <= 3 && (i === 0 || version >= versions[i - 1])));
  }
});

t.test('wrong calls are refused and the policy goes on', async t => {
  const policy = await closing(t, policyWith());
  const [sequence] = await play(policy, 1);
  const update = (change: Partial<TrainingSequence>, loss: Partial<LossSettings> = {}) =>
    policy.update({ sequences: [{ ...sequence, ...change }] }, settingsWith(loss));
  await t.rejects(update({ mask: sequence.mask.map(() => 0) }), /nothing to train on/);
  await t.rejects(update({ mask: sequence.mask.map(() => 1) }), /position 0/);
  await t.rejects(update({ advantages: new Float32Array(1) }), /advantages has 1 entries/);
  await t.rejects(update({ tokenIds: sequence.tokenIds.map(() => 99) }), /outside the vocabulary of 24/);
  await t.rejects(update({ grammar: 'other' }), /no grammar is named other/);
  await t.rejects(update({ advantages: sequence.advantages.map(() => NaN) }), /norm is NaN.*unchanged/);
  await t.rejects(update({}, { kl: { estimator: 'k1', coefficient: 1 } }), /referenceLogProbs/);
  await t.rejects(policy.score([sequence], { temperature: 0 }), /temperature must be above 0/);
  await t.rejects(policy.generate({ sequenceId: 1, append: [], sampling, seed: 0 }), /is empty/);
  t.equal(policy.version, 0);
  t.ok((await update({}))['actor/grad_norm'] > 0);
  await t.rejects(policyWith({ maxSequenceLength: 5000 }), /more than the model's 1024 positions/);
});

t.test('closing rejects what is pending, and a dead worker is an error, not a hang', async t => {
  const request = (n: number) => ({
    sequenceId: n,
    append: [1],
    sampling: { ...sampling, maxNewTokens: 60, stopTokenIds: [] },
    seed: n,
  });
  const closed = await policyWith();
  const pending = closed.generate(request(1));
  pending.catch(() => {});
  await closed.close();
  await t.rejects(pending, /the policy was closed/);
  await t.rejects(closed.generate(request(2)), /the policy was closed/);
  await closed.close();
});

async function closing(
  test: Pick<typeof t, 'teardown'>,
  created: Promise<LocalPolicy>,
): Promise<LocalPolicy> {
  const policy = await created;
  test.teardown(() => policy.close());
  return policy;
}
