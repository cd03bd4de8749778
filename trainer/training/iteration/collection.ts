import type { RunSettings } from '../../config/settings.ts';
import { type Filtered, filterEpisodes, mergeFiltered } from '../../data/filtering.ts';
import { averageRows, type Metrics } from '../../data/metrics.ts';
import { type SampleScores, scoreEpisodes } from '../../data/scoring.ts';
import type { Policy } from '../../policy/policy.ts';
import type { Episode } from '../../rollout/episode.ts';
import type { EpisodeSource, PlayedGroups } from '../sources/episode-source.ts';
import { levelHash } from '../validation.ts';

interface CollectionParts {
  readonly settings: RunSettings;
  readonly policy: Pick<Policy, 'score'>;
  readonly source: EpisodeSource;
}

/** Metrics of collections that add up over those of an iteration. */
const SUMMED = [
  'timing_s/rollout',
  'rollouter/steps',
  'rollouter/replayed_episodes',
  'rollouter/dropped_groups',
  'rollouter/lost_episodes',
  'rollouter/too_long_groups',
  'errored_rollouts',
  'branch/env_steps',
  'branch/sampled_tokens',
  'branch/prefill_tokens',
  'branch/replayed_steps',
  'branch/recovery_steps',
  'branch/leaves',
  'branch/branches',
  'branch/lost_leaves',
];

/** Episodes and what was kept of them. */
interface IterationContext {
  /** All that were played and do not start from a validation level. */
  readonly episodes: readonly Episode[];
  readonly filtered: Filtered;
  /** Scores of all samples under the current weights, where something needs them. */
  readonly scores: SampleScores | undefined;
  /** Episodes left out because they start from a validation level. */
  readonly leftOut: number;
}

/** Collected episodes and metrics of one iteration. */
export interface CollectedIteration extends IterationContext {
  readonly metrics: Metrics;
}

/** Collects and filters; again and again for what is missing where the filter's `fill` is `refill`. */
export async function collect(
  { settings, policy, source }: CollectionParts,
  step: number,
  validationLevels: ReadonlySet<string>,
): Promise<CollectedIteration> {
  const { filter } = settings.algorithm;
  const { env_groups } = settings.rollout;
  const byEntropy = filter.score.startsWith('entropy');
  const rounds: (IterationContext & { readonly played: PlayedGroups })[] = [];
  let missing = env_groups;
  do {
    const played = rounds.length === 0 ? await source.collect(step) : await source.refill(step, missing);
    const episodes = played.episodes.filter(episode => !validationLevels.has(levelHash(episode)));
    const scores = byEntropy ? await scoreEpisodes(policy, episodes, settings) : undefined;
    const filtered = filterEpisodes(episodes, settings, scores);
    const leftOut = played.episodes.length - episodes.length;
    rounds.push({ played, episodes, filtered, scores, leftOut });
    missing -= filtered.kept.length;
  } while (filter.fill === 'refill' && missing > 0 && rounds.length <= filter.refill_rounds);
  const filtered = mergeFiltered(rounds.map(round => round.filtered));
  return {
    episodes: rounds.flatMap(round => round.episodes),
    filtered: filter.fill === 'refill' ? { ...filtered, kept: filtered.kept.slice(0, env_groups) } : filtered,
    scores: byEntropy ? new Map(rounds.flatMap(round => [...round.scores!])) : undefined,
    leftOut: rounds.reduce((sum, round) => sum + round.leftOut, 0),
    metrics: {
      ...mergePlayed(rounds.map(round => round.played)),
      ...(filter.fill === 'refill' ? { 'rollout/refill_rounds': rounds.length - 1 } : {}),
    },
  };
}

/** Seconds and counts of several collections added up, all else averaged. */
function mergePlayed(rounds: readonly PlayedGroups[]): Metrics {
  const merged = averageRows(rounds.map(round => round.metrics));
  for (const name of SUMMED) if (name in merged) merged[name] *= rounds.length;
  return merged;
}
