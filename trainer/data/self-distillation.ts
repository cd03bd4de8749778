import { countOnes } from '../algorithms/training-sequence.ts';
import type { RunSettings } from '../config/settings.ts';
import type { Policy } from '../policy/policy.ts';
import { type Episode, type EpisodeSample, samplesOf } from '../rollout/episode.ts';
import { groupBy } from './episode-metrics.ts';
import { trainedReturn } from './reward-components.ts';

/**
 * Scores the tokens that the policy sampled as it would after a demonstration: the same token ids behind those of the group's best
 * successful episode, another one than the episode's. Scores of the demonstration are dropped. Samples without a demonstration, or with
 * one that does not fit the policy's context with them, are named.
 *
 * Source: SDFT (arXiv 2601.19897), where demonstrations come from a data set.
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
  for (const group of groupBy(episodes, ({ groupId }) => groupId).values()) {
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
      ...(rollout.constrained ? { grammar: tag } : {}),
    })),
    { temperature: rollout.temperature },
  );
  shown.forEach(({ sample, demonstration }, i) => {
    reference.set(sample, scores[i].logProbs.slice(demonstration.length));
  });
  return { reference, undemonstrated };
}
