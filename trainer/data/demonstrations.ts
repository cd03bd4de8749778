import type { WarmStart } from '../config/sections/training.ts';
import type { Learned } from '../prompts/conversation.ts';
import { type ReferenceAgentSettings, referenceAgent } from '../rollout/agents/agent.ts';
import type { Collector } from '../rollout/collection/collector.ts';
import { type Episode, type EpisodeSample, samplesOf } from '../rollout/episode.ts';
import { NO_SAMPLING } from '../rollout/episode-agent.ts';
import type { GroupPlan } from '../rollout/tag.ts';

/** A token sequence for supervised training: the loss mask is 1 on the tokens to learn. */
export type Demonstration = Pick<EpisodeSample, 'tokenIds' | 'lossMask' | 'allowed'>;

/** The reference policy that plays, and others for some tags. */
export interface Demonstrator extends ReferenceAgentSettings {
  readonly policies?: { readonly [tag: string]: string };
}

/** The player that a config's `warm_start` names. */
export function demonstratorOf(warm: WarmStart): Demonstrator {
  const { policy, policies, random_turns: randomTurns, learn_random_turns: learnRandomTurns } = warm;
  return { policy, policies, randomTurns, learnRandomTurns };
}

/**
 * Lets a reference policy play through the same prompt and parser as a learning one.
 * @param seed seeds the random actions
 *
 * @example
 * const plans = planGroups({ tags: [{ tag: 'Lake', groups: 200 }], groupSize: 1, firstSeed: 1_000_000 });
 * const episodes = await demonstrate(collector, plans, { policy: 'optimal', randomTurns: 0.1 }, 0);
 * const demonstrations = episodes.flatMap(episode => demonstrationsOf(episode, 'responses'));
 */
export async function demonstrate(
  collector: Collector,
  plans: readonly GroupPlan[],
  player: Demonstrator,
  seed: number,
  signal?: AbortSignal,
): Promise<readonly Episode[]> {
  const { policies = {}, ...own } = player;
  const parts = Map.groupBy(plans, ({ tag }) => policies[tag] ?? own.policy);
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
  return episodes;
}

/** The sequences of an episode to learn from, without exploratory turns. */
export function demonstrationsOf(
  episode: Parameters<typeof samplesOf>[0] & Pick<Episode, 'turns'>,
  learned: Learned,
): readonly Demonstration[] {
  const demonstrations = samplesOf(episode).map(({ tokenIds, lossMask, allowed, repeated = 0 }) => ({
    tokenIds,
    ...(allowed ? { allowed } : {}),
    // With `everything`, all but earlier turns and the first token, which nothing precedes.
    lossMask:
      learned === 'everything'
        ? new Uint8Array(tokenIds.length).fill(1, Math.max(1, repeated))
        : lossMask.slice(),
  }));
  for (const { exploratory, tokens, sample = 0 } of episode.turns) {
    if (exploratory) demonstrations[sample].lossMask.fill(0, ...tokens);
  }
  return demonstrations;
}
