import t, { type Test } from 'tap';
import { Random } from '../../../shared/random.ts';
import type { RunSettings } from '../../config/settings.ts';
import { type Faults, vllmEngine } from '../../generation/remote/engines.test-data.ts';
import { VllmEngine } from '../../generation/remote/engines.ts';
import { RemoteGenerator } from '../../generation/remote/remote-generator.ts';
import { LocalPolicy } from '../../policy/local-policy.ts';
import type { Episode } from '../../rollout/episode.ts';
import { goldenFolder } from '../../serve/serve.test-data.ts';
import { checkedGap } from './generation-gap.ts';

const ADAPTER = goldenFolder('qwen2-tiny/lora');
const TEMPERATURE = 0.7;
const settings = {
  generation: { gap_every: 10, max_gap: 0.05 },
  rollout: {
    temperature: TEMPERATURE,
    top_k: 0,
    top_p: 1,
    min_p: 0,
    repetition_penalty: 1,
    presence_penalty: 0,
    frequency_penalty: 0,
    logit_bias: {},
    bad_words: [] as readonly string[],
    constrained: false,
  },
} as RunSettings;

const policy = await LocalPolicy.create({
  model: ADAPTER,
  base: goldenFolder('qwen2-tiny'),
  seed: 0,
  workers: 1,
  valueHead: false,
  maxSequenceLength: 128,
});
t.teardown(() => policy.close());

/** Versions count optimizer steps, of which an iteration may take several. */
const PUBLISHED = [-9, -7, -4, policy.version];

/** An engine with these faults, and episodes of it as the run collects them. */
async function played(t: Test, faults: Faults, temperature = TEMPERATURE) {
  const { url } = await vllmEngine(t, faults);
  const generator = new RemoteGenerator({
    engines: [new VllmEngine({ url, timeoutMs: 30_000 }, true)],
    maxSequenceLength: 128,
    vocabularySize: 512,
    grammars: {},
    patienceMs: 600_000,
    olderVersions: 0,
    note: () => {},
  });
  t.teardown(() => generator.close());
  await generator.publish(policy.version, 'run-v0', ADAPTER);
  const sampling = { temperature, topK: 0, topP: 1, maxNewTokens: 24, stopTokenIds: [] };
  const episodes = await Promise.all(
    Array.from({ length: 6 }, async (_, sequenceId) => {
      const append = [3, 4, 5, 6 + sequenceId];
      const { tokenIds, logProbs, versions } = await generator.generate({
        sequenceId,
        append,
        sampling,
        seed: sequenceId,
      });
      const before = append.map(() => 0);
      return {
        tag: 'any',
        tokenIds: Int32Array.from([...append, ...tokenIds]),
        lossMask: Uint8Array.from([...before, ...tokenIds.map(() => 1)]),
        logProbs: Float32Array.from([...before, ...logProbs]),
        versions: Int32Array.from([...before, ...versions]),
      } as unknown as Episode;
    }),
  );
  return { generator, episodes };
}

/** Checks an engine with these faults, in the first step. */
async function check(t: Test, faults: Faults, change: (episode: Episode) => Episode = one => one) {
  const { generator, episodes } = await played(t, faults);
  return checkedGap(settings, policy, 1, episodes.map(change), { generator, published: PUBLISHED });
}

/** The same episode, sampled before the present weights: what asynchronous training learns from. */
const older = (episode: Episode): Episode => aged(episode, () => 1);

/** The same episode, its tokens sampled this many published versions ago. */
function aged(episode: Episode, ageOf: (token: number) => number): Episode {
  return {
    ...episode,
    versions: episode.versions.map((_, at) => PUBLISHED[PUBLISHED.length - 1 - ageOf(at)]),
  };
}

t.test('an engine that is right has next to no gap', async t => {
  const metrics = await check(t, {});
  t.ok(metrics['generation/logprob_gap_max'] < 1e-4, `${metrics['generation/logprob_gap_max']}`);
  const { generator } = await played(t, {});
  t.same(
    await checkedGap(settings, policy, 2, [], { generator, published: PUBLISHED }),
    {},
    'the gap is compared only when it is due',
  );
});

t.test('an adapter that is not applied ends the run and is named', async t => {
  await t.rejects(check(t, { ignoresAdapters: true }), /the engine does not apply the adapter/);
});

t.test('raw log-probabilities end the run and are named, at temperatures near 1, too', async t => {
  await t.rejects(
    check(t, { rawLogProbs: true }),
    /the limit is 0.05 \(generation.max_gap\).* Nothing was learned.*the engine reports raw ones, and vLLM needs --logprobs-mode processed_logprobs/,
  );
  const { generator, episodes } = await played(t, { rawLogProbs: true }, 0.95);
  const near = { ...settings, rollout: { ...settings.rollout, temperature: 0.95 } } as RunSettings;
  const compared = checkedGap(near, policy, 1, episodes, { generator, published: PUBLISHED });
  await t.rejects(compared, /the engine reports raw ones/);
});

/** Noise of a mean size, as rounding to bfloat16 gives: the same in both directions. */
const noisy = (size: number) => {
  const random = Random.fromSeed(5);
  return (episode: Episode): Episode => ({
    ...episode,
    logProbs: episode.logProbs.map((logProb, t) =>
      episode.lossMask[t] ? logProb + 2 * size * (2 * random.float() - 1) : logProb,
    ),
  });
};

t.test('rounding of a lower precision is let through, a smaller bias is not', async t => {
  const metrics = await check(t, {}, noisy(0.037));
  const { 'generation/logprob_gap_mean': gap, 'generation/logprob_bias': bias } = metrics;
  t.ok(gap > 0.03 && gap < 0.05, `${gap}`);
  t.ok(Math.abs(bias) < metrics['generation/logprob_bias_ci'] + 0.0125, `${bias}`);
  const shifted = (episode: Episode): Episode => ({
    ...episode,
    logProbs: episode.logProbs.map((logProb, t) => (episode.lossMask[t] ? logProb + 0.033 : logProb)),
  });
  await t.rejects(check(t, {}, shifted), {
    name: 'GenerationGapError',
    message:
      /Their bias is 0\.0330 \(95 % interval 0\.03\d+ to 0\.03\d+\).*it samples from a narrower distribution/,
  });
});

t.test('an engine that cuts the distribution by itself ends the run and is named', async t => {
  await t.rejects(
    check(t, { cuts: { top_p: 0.8, top_k: 20 } }),
    /samples from a narrower distribution, by top_k, top_p/,
  );
});

t.test('episodes of older weights are no excuse: the engine samples under the present ones', async t => {
  const metrics = await check(t, {}, older);
  t.ok(metrics['generation/logprob_gap_max'] < 1e-4, `${metrics['generation/logprob_gap_max']}`);
  t.ok(metrics['generation/logprob_gap_max_1'] < 1e-4, 'the same weights under an older number');
  await t.rejects(check(t, { ignoresAdapters: true }, older), /the engine does not apply the adapter/);
});

t.test('tokens of older versions have a gap each, and no limit', async t => {
  /** As if tokens 8 to 15 of an episode came one version, and those before them three versions ago. */
  const mixed = (episode: Episode): Episode => {
    const ageOf = (at: number) => (at < 8 ? 3 : at < 16 ? 1 : 0);
    return {
      ...aged(episode, ageOf),
      logProbs: episode.logProbs.map((logProb, at) => logProb + (ageOf(at) === 0 ? 0 : at % 2 ? 0.5 : -1)),
    };
  };
  const metrics = await check(t, {}, mixed);
  t.same(Object.keys(metrics), [
    ...['generation/logprob_gap_mean', 'generation/logprob_gap_max'],
    ...['generation/logprob_bias', 'generation/logprob_bias_ci'],
    ...['generation/logprob_gap_mean_1', 'generation/logprob_gap_max_1', 'generation/mismatch_kl_1'],
    ...['generation/logprob_gap_mean_3', 'generation/logprob_gap_max_3', 'generation/mismatch_kl_3'],
  ]);
  t.ok(metrics['generation/logprob_gap_max'] < 1e-4, 'present weights are measured by themselves');
  for (const age of [1, 3]) {
    const near = (name: string, wanted: number) =>
      t.ok(Math.abs(metrics[`generation/${name}_${age}`] - wanted) < 1e-4, `${name} ${age}`);
    near('logprob_gap_mean', 0.75);
    near('logprob_gap_max', 1);
    near('mismatch_kl', -0.25);
  }
});
