import type { Advantages } from '../algorithms/advantages/estimator.ts';
import { advantageEstimator } from '../algorithms/advantages/registry.ts';
import { countOnes } from '../algorithms/training-sequence.ts';
import { estimatesLater, isSelfDistilled, needsProximal } from '../config/derived.ts';
import type { RunSettings } from '../config/settings.ts';
import type { Policy, Score } from '../policy/policy.ts';
import { type Episode, type EpisodeSample, samplesOf } from '../rollout/episode.ts';
import { trainedReturn } from './episode-metrics.ts';
import { maskOf } from './token-weights.ts';

/**
 * Scores the sampled tokens as if they followed a demonstration: the same token ids after those of the group's best
 * successful episode, which is not the episode itself. Scores of the demonstration are dropped. The result names
 * samples without a demonstration, or with one that does not fit the policy's context. Source: SDFT (arXiv 2601.19897),
 * where demonstrations come from a data set.
 */
export async function scoreAfterDemonstrations(
  policy: Pick<Policy, 'score'>,
  episodes: readonly Episode[],
  settings: Pick<RunSettings, 'rollout' | 'policy' | 'algorithm'>,
): Promise<{
  readonly reference: ReadonlyMap<EpisodeSample, Float32Array>;
  readonly undemonstrated: ReadonlySet<EpisodeSample>;
}> {
  const { rollout, algorithm } = settings;
  const longest = rollout.max_model_len ?? settings.policy.context;
  const reference = new Map<EpisodeSample, Float32Array>();
  const undemonstrated = new Set<EpisodeSample>();
  const shown: { sample: EpisodeSample; demonstration: Int32Array; tag: string }[] = [];
  for (const group of Map.groupBy(episodes, ({ groupId }) => groupId).values()) {
    const successes = group
      .filter(({ success }) => success)
      .toSorted(
        (a, b) =>
          trainedReturn(b, algorithm.reward_components) - trainedReturn(a, algorithm.reward_components),
      );
    for (const episode of group) {
      const demonstration = successes.find(other => other !== episode)?.tokenIds;
      for (const sample of samplesOf(episode)) {
        if (countOnes(sample.lossMask) === 0) continue;
        if (demonstration && demonstration.length + sample.tokenIds.length <= longest) {
          shown.push({ sample, demonstration, tag: episode.tag });
        } else {
          undemonstrated.add(sample);
          reference.set(sample, new Float32Array(sample.tokenIds.length));
        }
      }
    }
  }
  if (shown.length === 0) return { reference, undemonstrated };
  const scores = await policy.score(
    shown.map(({ sample, demonstration, tag }) => ({
      tokenIds: Int32Array.of(...demonstration, ...sample.tokenIds),
      lossMask: Uint8Array.of(...new Uint8Array(demonstration.length), ...sample.lossMask),
      ...maskOf(sample, { tag }, rollout.constrained, demonstration.length),
    })),
    { temperature: rollout.temperature },
  );
  shown.forEach(({ sample, demonstration }, i) => {
    reference.set(sample, scores[i].logProbs.slice(demonstration.length));
  });
  return { reference, undemonstrated };
}

/** Scores of samples that have sampled tokens. */
export type SampleScores = ReadonlyMap<EpisodeSample, Score>;

/** Log-probabilities of samples under some weights, over their tokens. */
export type SampleLogProbs = ReadonlyMap<EpisodeSample, Float32Array>;

/** Values of the states before the sampled tokens of samples. */
type SampleValues = ReadonlyMap<EpisodeSample, Float32Array>;

/** Scores the sampled tokens of episodes under their sampling conditions: temperature and grammar. */
export async function scoreEpisodes(
  policy: Pick<Policy, 'score'>,
  episodes: readonly Episode[],
  { rollout }: Pick<RunSettings, 'rollout'>,
  squares = false,
): Promise<SampleScores> {
  const items = sampledOf(episodes);
  if (items.length === 0) return new Map();
  const scores = await policy.score(
    items.map(({ sample, tag }) => ({
      tokenIds: sample.tokenIds,
      lossMask: sample.lossMask,
      ...maskOf(sample, { tag }, rollout.constrained),
    })),
    { temperature: rollout.temperature, ...(squares ? { squares } : {}) },
  );
  return new Map(items.map(({ sample }, i) => [sample, scores[i]]));
}

/** Mean entropy over an episode's sampled tokens, in nats. */
export function episodeEntropy(episode: Episode, scores: SampleScores): number {
  let sum = 0;
  let tokens = 0;
  for (const sample of samplesOf(episode)) {
    const score = scores.get(sample);
    if (!score) continue;
    for (let t = 0; t < sample.lossMask.length; t++) {
      if (!sample.lossMask[t]) continue;
      sum += score.entropies[t];
      tokens++;
    }
  }
  return tokens === 0 ? 0 : sum / tokens;
}

function logProbsOf(scores: SampleScores): SampleLogProbs {
  return new Map([...scores].map(([sample, score]) => [sample, score.logProbs]));
}

/** Scores of episodes that are computed between collection and training. */
export interface LaterScores {
  /** log π_ref, where a KL term compares with a reference. */
  readonly reference?: SampleLogProbs;
  /** Samples that the reference scored without a demonstration, where it should see one: they are excluded from the KL. */
  readonly undemonstrated?: ReadonlySet<EpisodeSample>;
  /** log π under the weights at the start of the update, if the loss needs them. */
  readonly proximal?: SampleLogProbs;
  /** Values from a separate critic, or from the value head if remote engines sampled. */
  readonly values?: SampleValues;
  /** Σ π² at every sampled token, if the advantages need it. */
  readonly squares?: SampleLogProbs;
  /** Baselines of agents after earlier iterations. */
  readonly baselines?: Readonly<Record<string, number>>;
  /** Receives what the advantage estimator returns besides advantages. */
  readonly onEstimate?: (estimated: Pick<Advantages, 'baselines' | 'metrics'>) => void;
  /** Values of the states where episodes were truncated, if they count. */
  readonly bootstrap?: ReadonlyMap<Episode, number>;
}

/**
 * Scores that the update needs besides those of the collection.
 * @param scores of the episodes under the weights at the start of the update, if known
 */
export async function laterScores(
  parts: {
    readonly settings: RunSettings;
    readonly policy: Pick<Policy, 'score' | 'estimate'>;
    readonly reference?: Pick<Policy, 'score'>;
  },
  episodes: readonly Episode[],
  scores?: SampleScores,
): Promise<LaterScores> {
  const { settings, policy, reference } = parts;
  const { needs } = advantageEstimator(settings.algorithm.advantage);
  const squared = needs.includes('squaredProbabilities')
    ? await scoreEpisodes(policy, episodes, settings, true)
    : undefined;
  const own = squared ?? scores;
  const score = async (by: Pick<Policy, 'score'>) => logProbsOf(await scoreEpisodes(by, episodes, settings));
  return {
    ...(reference ? { reference: await score(reference) } : {}),
    ...(isSelfDistilled(settings) ? await scoreAfterDemonstrations(policy, episodes, settings) : {}),
    ...(needsProximal(settings) ? { proximal: own ? logProbsOf(own) : await score(policy) } : {}),
    ...(squared ? { squares: new Map([...squared].map(([sample, { squares }]) => [sample, squares!])) } : {}),
    ...(estimatesLater(settings) ? { values: await estimateEpisodes(policy, episodes) } : {}),
    ...(await bootstrapValues(policy, episodes, settings)),
  };
}

/** True if the advantage of a truncated episode continues with a value. */
export function isBootstrapped({ truncation, following }: Episode, { algorithm }: RunSettings): boolean {
  if (!advantageEstimator(algorithm.advantage).needs.includes('values')) return false;
  if (truncation === undefined || following === undefined || algorithm.bootstrap === 'none') return false;
  return truncation === 'environment' || algorithm.bootstrap === 'caps';
}

/** Estimates the states where episodes were truncated; nothing if no advantage needs them. */
async function bootstrapValues(
  policy: Pick<Policy, 'estimate'>,
  episodes: readonly Episode[],
  settings: RunSettings,
): Promise<Pick<LaterScores, 'bootstrap'>> {
  const cut = episodes.filter(episode => isBootstrapped(episode, settings));
  if (cut.length === 0 || policy.estimate === undefined) return {};
  const values = await policy.estimate(
    cut.map(({ tokenIds, following }) => {
      const length = tokenIds.length + following!.length + 1;
      // The state before one more token; its id does not matter.
      const ids = new Int32Array(length);
      ids.set(tokenIds);
      ids.set(following!, tokenIds.length);
      const lossMask = new Uint8Array(length);
      lossMask[length - 1] = 1;
      return { tokenIds: ids, lossMask };
    }),
  );
  return { bootstrap: new Map(cut.map((episode, i) => [episode, values[i].at(-1)!])) };
}

async function estimateEpisodes(
  policy: Pick<Policy, 'estimate'>,
  episodes: readonly Episode[],
): Promise<SampleValues> {
  if (policy.estimate === undefined)
    throw new Error('values are wanted, but the policy has nothing to estimate them');
  const samples = sampledOf(episodes).map(({ sample }) => sample);
  const values = await policy.estimate(samples.map(({ tokenIds, lossMask }) => ({ tokenIds, lossMask })));
  return new Map(samples.map((sample, i) => [sample, values[i]]));
}

/** Samples that have sampled tokens, with the tags of their episodes. */
function sampledOf(episodes: readonly Episode[]): { readonly sample: EpisodeSample; readonly tag: string }[] {
  return episodes.flatMap(episode =>
    samplesOf(episode)
      .filter(sample => countOnes(sample.lossMask) > 0)
      .map(sample => ({ sample, tag: episode.tag })),
  );
}
