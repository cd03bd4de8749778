import t from 'tap';
import { Random } from '../../shared/random.ts';
import { countLossTokens } from '../algorithms/losses/aggregation.ts';
import type { LossSettings } from '../algorithms/losses/settings.ts';
import { AGGREGATIONS } from '../algorithms/losses/settings.ts';
import type { TrainingSequence } from '../algorithms/training-sequence.ts';
import type { LocalPolicyOptions } from './local-policy.ts';
import {
  closing,
  largestDifference,
  play,
  policyWith,
  sampling,
  settingsWith,
  vocabularySize,
  weightsOf,
} from './policies.test-data.ts';

t.test(
  'scores of sampled tokens are what they were sampled with, and the first update has ratio 1',
  async t => {
    const policy = await closing(t, policyWith({ workers: 2 }));
    for (const grammar of [undefined, 'answer']) {
      const episodes = await play(policy, 5, grammar);
      const scores = await policy.score(episodes);
      episodes.forEach(({ logProbs, values }, n) => {
        t.ok(largestDifference(scores[n].logProbs, logProbs) < 1e-4, `log-probabilities of ${n}`);
        t.ok(largestDifference(scores[n].values!, values!) < 1e-4, `values of ${n}`);
        t.ok(scores[n].entropies.every((x, i) => (episodes[n].lossMask[i] ? x >= 0 : x === 0)));
      });
      const bound = Math.log(grammar === undefined ? vocabularySize : 3);
      t.ok(
        scores.every(({ entropies }) => entropies.every(x => x <= bound + 1e-5)),
        'entropies are bounded',
      );
      const metrics = await policy.update(
        { sequences: episodes.map((episode, n) => ({ ...episode, referenceLogProbs: scores[n].logProbs })) },
        settingsWith({ kl: { estimator: 'k3', coefficient: 0.01 } }),
      );
      t.ok(Math.abs(metrics['actor/ppo_kl']) < 1e-7, `ppo_kl ${metrics['actor/ppo_kl']}`);
      t.ok(Math.abs(metrics['actor/kl_loss']) < 1e-8, `kl_loss ${metrics['actor/kl_loss']}`);
      t.equal(metrics['actor/pg_clipfrac'], 0);
      t.ok(metrics['actor/grad_norm'] > 0);
      t.ok(metrics['actor/entropy'] > 0);
    }
    t.equal(policy.version, 2);
  },
);

const MUON = { scale: 3, momentum: 0.95 };

for (const [optimizer, settings] of [
  ['AdamW', settingsWith()],
  ['Muon', settingsWith({}, { muon: MUON })],
] as const) {
  t.test(`a step of ${optimizer} depends on no workers, micro-batches or order of sequences`, async t => {
    const base = await closing(t, policyWith());
    const sequences = await play(base, 7);
    const expected = await base.update({ sequences }, settings);
    const after = (await base.score(sequences)).map(({ logProbs }) => logProbs);
    const variants: [string, Partial<LocalPolicyOptions>, readonly TrainingSequence[]][] = [
      ['two workers', { workers: 2 }, sequences],
      ['micro-batches of a sequence', { tokenBudget: 1 }, sequences],
      ['reversed order', {}, sequences.toReversed()],
    ];
    for (const [name, options, batch] of variants) {
      const policy = await closing(t, policyWith(options));
      const metrics = await policy.update({ sequences: batch }, settings);
      for (const [key, value] of Object.entries(expected)) {
        t.ok(Math.abs(metrics[key] - value) <= 1e-5 * Math.max(1, Math.abs(value)), `${name}: ${key}`);
      }
      const scores = await policy.score(sequences);
      scores.forEach(({ logProbs }, n) => {
        t.ok(largestDifference(logProbs, after[n]) < 2e-4, `${name}: scores of ${n} after the step`);
      });
    }
  });
}

t.test('Muon moves the matrices of layers in another way than AdamW, and resumes bit for bit', async t => {
  const [policy, other] = await Promise.all([1, 2].map(() => closing(t, policyWith())));
  const sequences = await play(policy, 5);
  const settings = settingsWith({}, { muon: MUON });
  await policy.update({ sequences }, settings);
  await other.update({ sequences }, settingsWith());
  const [matrix, embedding] = ['model.layers.0.mlp.up_proj.weight', 'model.embed_tokens.weight'];
  const [moved, usual] = await Promise.all([policy, other].map(one => one.weightsNow()));
  t.notSame(moved.weights.array(matrix), usual.weights.array(matrix));
  t.same(moved.weights.array(embedding), usual.weights.array(embedding));

  const folder = t.testdir();
  await policy.save(folder);
  await other.load(folder);
  for (const one of [policy, other]) await one.update({ sequences }, settings);
  t.same(await weightsOf(other), await weightsOf(policy));
});

const WITH_KL = { entropyCoefficient: 0.2, kl: { estimator: 'k3' as const, coefficient: 0.3 } };

t.test(
  'components of the gradient add up to the gradient of the update, and measuring changes nothing',
  async t => {
    for (const workers of [1, 2]) {
      const policies = [await closing(t, policyWith({ workers })), await closing(t, policyWith({ workers }))];
      const [measured, other] = policies;
      const sequences = (await play(measured, 6)).map(({ returns: _, values: __, ...sequence }) => ({
        ...sequence,
        referenceLogProbs: sequence.logProbs.map(logProb => 0.7 * logProb),
      }));
      const batch = { sequences };
      const before = await weightsOf(measured);
      const { gradients, products } = await measured.decomposeGradients([batch], settingsWith(WITH_KL));
      t.same(await weightsOf(measured), before, 'weights and moments');
      t.equal(measured.version, 0);
      t.same(
        gradients.map(({ component }) => component),
        ['task', 'entropy', 'kl'],
      );
      const only = async (loss: Parameters<typeof settingsWith>[0], zero: boolean) => {
        const own = zero
          ? sequences.map(sequence => ({ ...sequence, advantages: sequence.advantages.map(() => 0) }))
          : sequences;
        const policy = await closing(t, policyWith({ workers }));
        return (await policy.update({ sequences: own }, settingsWith(loss)))['actor/grad_norm'];
      };
      const off = { estimator: 'k3' as const, coefficient: 0 };
      const norms = [
        await only({ entropyCoefficient: 0, kl: off }, false),
        await only({ ...WITH_KL, kl: off }, true),
        await only({ ...WITH_KL, entropyCoefficient: 0 }, true),
      ];
      norms.forEach((norm, i) => {
        t.ok(
          Math.abs(Math.sqrt(products[i * 4]) - norm) <= 1e-6 * norm,
          `${gradients[i].component}: ${norm}`,
        );
      });
      const whole = await other.update(batch, settingsWith(WITH_KL));
      const total = gradients.reduce((sum, { loss }) => sum + loss, 0);
      const wanted = whole['actor/pg_loss'] - 0.2 * whole['actor/entropy'] + 0.3 * whole['actor/kl_loss'];
      t.ok(Math.abs(total - wanted) < 1e-6, 'the loss');
      await measured.update(batch, settingsWith(WITH_KL));
      t.same(await weightsOf(measured), await weightsOf(other), 'the step after it');
    }
  },
);

t.test('the gradient of a batch is the weighted sum of those of its parts', async t => {
  const policy = await closing(t, policyWith({ workers: 2 }));
  const sequences = (await play(policy, 7)).map(({ returns: _, values: __, ...sequence }) => sequence);
  const parts = [sequences.slice(0, 2), sequences.slice(2, 3), sequences.slice(3)];
  for (const aggregation of AGGREGATIONS) {
    const batches = [sequences, ...parts].map(members => ({ sequences: members }));
    const loss = { entropyCoefficient: 0, aggregation };
    const { products } = await policy.decomposeGradients(batches, settingsWith(loss));
    const share = ({ length }: { readonly length: number }) => length / sequences.length;
    const tokens = (members: typeof sequences) => countLossTokens(members).tokens;
    const weights = parts.map(part =>
      aggregation === 'token_mean' ? tokens(part) / tokens(sequences) : share(part),
    );
    let difference = products[0];
    weights.forEach((a, i) => {
      difference -= 2 * a * products[i + 1];
      weights.forEach((b, j) => {
        difference += a * b * products[(i + 1) * 4 + j + 1];
      });
    });
    t.ok(Math.abs(difference) <= 1e-8 * products[0], `${aggregation}: ${difference / products[0]}`);
  }
});

t.test('tokens outside the loss mask do not matter', async t => {
  const policies = [await closing(t, policyWith()), await closing(t, policyWith())];
  const sequences = await play(policies[0], 6);
  const poisoned = sequences.map(sequence => {
    const spoil = (array: Float32Array) => array.map((x, i) => (sequence.lossMask[i] ? x : NaN));
    return {
      ...sequence,
      advantages: spoil(sequence.advantages),
      returns: spoil(sequence.returns!),
      values: spoil(sequence.values!),
      logProbs: spoil(sequence.logProbs),
    };
  });
  const results = await Promise.all(
    [sequences, poisoned].map(async (batch, i) => [
      await policies[i].update({ sequences: batch }, settingsWith()),
      await weightsOf(policies[i]),
    ]),
  );
  t.same(results[1], results[0]);
});

t.test('supervised updates memorize one sequence, which greedy generation then repeats', async t => {
  const policy = await closing(t, policyWith({ workers: 2 }));
  const rng = Random.fromSeed(1);
  const tokenIds = Int32Array.from({ length: 14 }, () => 10 + rng.integer(10));
  const zeros = new Float32Array(14);
  const sequence = {
    tokenIds,
    lossMask: Uint8Array.from(tokenIds, (_, i) => (i < 4 ? 0 : 1)),
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

t.test('observed tokens with a weight are learned, and those without are not', async t => {
  const policy = await closing(t, policyWith({ workers: 2 }));
  const tokenIds = Int32Array.of(10, 11, 12, 13, 14, 15);
  const zeros = () => new Float32Array(6);
  const lossMask = Uint8Array.of(0, 1, 0, 0, 0, 1);
  const echo = {
    tokenIds,
    lossMask,
    logProbs: zeros(),
    advantages: zeros(),
    crossEntropyWeights: Float32Array.of(0, 0, 0.1, 0.1, 0, 0),
  };
  const settings = settingsWith({ entropyCoefficient: 0 }, { learningRate: 1e-2 });
  const first = await policy.update({ sequences: [echo, echo] }, settings);
  t.equal(first['actor/ce_tokens'], 4);
  t.ok(Math.abs(first['actor/ce_loss'] - 0.1 * first['actor/ce_nll']) < 1e-6);
  for (let step = 0; step < 60; step++) await policy.update({ sequences: [echo, echo] }, settings);
  const [{ logProbs }] = await policy.score([{ tokenIds, lossMask: Uint8Array.of(0, 0, 1, 1, 1, 0) }]);
  t.ok(logProbs[2] > -0.1 && logProbs[3] > -0.1, `${logProbs}`);
  t.ok(logProbs[4] < -0.5, 'nobody taught this one');
});

t.test('Σ π² of a score covers all tokens that could have been sampled there', async t => {
  const policy = await closing(t, policyWith());
  const lossMask = Uint8Array.of(0, 0, 1);
  const all = Array.from({ length: vocabularySize }, (_, id) => ({
    tokenIds: Int32Array.of(3, 7, id),
    lossMask,
  }));
  const scores = await policy.score(all, { temperature: 0.7, squares: true });
  const wanted = scores.reduce((sum, { logProbs }) => sum + Math.exp(2 * logProbs[2]), 0);
  for (const { squares } of scores) t.ok(Math.abs(squares![2] - wanted) < 1e-5);
  t.equal((await policy.score(all.slice(0, 1), { temperature: 0.7 }))[0].squares, undefined);
});

t.test('sequences continue under new weights while others generate', async t => {
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

t.test(
  'several updates in one hold change the weights once for those in the middle of a response',
  async t => {
    for (const keepStaleCache of [false, true]) {
      const policy = await closing(t, policyWith({ keepStaleCache }));
      const sequences = await play(policy, 6);
      const open = Array.from({ length: 4 }, (_, n) =>
        policy.generate({
          sequenceId: 1000 + n,
          append: [1, 2, 3],
          sampling: { ...sampling, maxNewTokens: 40, stopTokenIds: [] },
          seed: n,
        }),
      );
      await policy.holdingGeneration(async () => {
        for (let step = 0; step < 3; step++) await policy.update({ sequences }, settingsWith());
      });
      const versions = new Set((await Promise.all(open)).flatMap(generation => [...generation.versions]));
      t.same(
        [...versions].filter(version => version === 1 || version === 2),
        [],
      );
      t.ok(versions.has(3), 'the rest was sampled from the last weights');
      await t.rejects(
        policy.holdingGeneration(() => Promise.reject(new Error('no luck'))),
        /no luck/,
      );
      const request = { sequenceId: 5, append: [1, 2], sampling, seed: 1 };
      t.ok((await policy.generate(request)).tokenIds.length > 0, 'a hold that fails ends');
    }
  },
);

t.test('wrong calls and learning rate 0 leave the weights as they are', async t => {
  const policy = await closing(t, policyWith());
  const [sequence] = await play(policy, 1);
  const [before, head] = await weightsOf(policy);
  const update = (change: Partial<TrainingSequence>, loss: Partial<LossSettings> = {}) =>
    policy.update({ sequences: [{ ...sequence, ...change }] }, settingsWith(loss));
  await t.rejects(update({ lossMask: sequence.lossMask.map(() => 0) }), /nothing to train on/);
  await t.rejects(update({ lossMask: sequence.lossMask.map(() => 1) }), /position 0/);
  await t.rejects(update({ advantages: new Float32Array(1) }), /advantages has 1 entries/);
  await t.rejects(update({ tokenIds: sequence.tokenIds.map(() => 99) }), /outside the vocabulary of 24/);
  await t.rejects(update({ grammar: 'other' }), /no grammar is named other/);
  await t.rejects(update({ advantages: sequence.advantages.map(() => NaN) }), /norm is NaN.*unchanged/);
  await t.rejects(update({}, { kl: { estimator: 'k1', coefficient: 1 } }), /referenceLogProbs/);
  const { returns, ...unvalued } = sequence;
  t.ok(returns);
  await t.rejects(
    policy.update({ sequences: [sequence, unvalued] }, settingsWith()),
    /1 of 2 .* have returns/,
  );
  await t.rejects(policy.score([sequence], { temperature: 0 }), /temperature must be above 0/);
  await t.rejects(policy.generate({ sequenceId: 1, append: [], sampling, seed: 0 }), /is empty/);
  t.equal(policy.version, 0);
  const metrics = await policy.update({ sequences: [sequence] }, settingsWith({}, { learningRate: 0 }));
  t.ok(metrics['actor/grad_norm'] > 0);
  t.equal(policy.version, 1);
  const [after, headAfter] = await weightsOf(policy);
  t.ok(before.equals(after) && head.equals(headAfter));
  await t.rejects(policyWith({ maxSequenceLength: 5000 }), /more than the model's 1024 positions/);
});
