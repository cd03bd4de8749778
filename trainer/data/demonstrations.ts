import { type ReferenceAgentSettings, referenceAgent } from '../rollout/agents/reference-agent.ts';
import type { Collector } from '../rollout/collection/collector.ts';
import { type Episode, samplesOf } from '../rollout/episode.ts';
import type { GroupPlan } from '../rollout/tag.ts';
import { groupBy } from './episode-metrics.ts';

/** A token sequence for supervised training: the loss mask is 1 on the tokens of responses. */
export interface Demonstration {
  readonly tokenIds: Int32Array;
  readonly lossMask: Uint8Array;
}

/** Who plays: a reference policy, and for some tags another. */
export interface Demonstrator extends ReferenceAgentSettings {
  readonly policies?: { readonly [tag: string]: string };
}

/** Scripts sample nothing, but the collector needs settings. */
const NO_SAMPLING = { temperature: 0, topK: 0, topP: 1 };

/**
 * Lets a reference policy play through the same prompt and parser as a learning one.
 * @param seed seeds the random actions
 * @returns the sequences to train on, and the episodes they come from
 *
 * @example
 * const plans = planGroups({ tags: [{ tag: 'Lake', groups: 200 }], groupSize: 1, firstSeed: 1_000_000 });
 * const { sequences } = await demonstrate(collector, plans, { policy: 'random' }, 0);
 */
export async function demonstrate(
  collector: Collector,
  plans: readonly GroupPlan[],
  player: Demonstrator,
  seed: number,
  signal?: AbortSignal,
): Promise<{ readonly sequences: readonly Demonstration[]; readonly episodes: readonly Episode[] }> {
  const { policies = {}, ...own } = player;
  const parts = groupBy(plans, ({ tag }) => policies[tag] ?? own.policy);
  const episodes: Episode[] = [];
  for (const [policy, some] of parts) {
    const collection = await collector.collect(some, {
      agent: referenceAgent({ ...own, policy }),
      sampling: NO_SAMPLING,
      samplingSeed: seed,
      signal,
    });
    episodes.push(...collection.episodes);
  }
  return { sequences: episodes.flatMap(samplesOf), episodes };
}
