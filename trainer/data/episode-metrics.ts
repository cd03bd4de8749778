import { isAlike } from '../../shared/run-folder/episode-filter.ts';
import type { EndMeanings } from '../../shared/run-folder/run-files.ts';
import { sumComponents } from '../../shared/step-info.ts';
import { correlation, mean, populationStd } from '../algorithms/statistics.ts';
import {
  countedTurns,
  type Episode,
  episodeReturn,
  type RewardSums,
  samplesOf,
  type Truncation,
} from '../rollout/episode.ts';

/** Mean of every name over the rows that have it. */
export function averageRows(rows: readonly Metrics[]): Metrics {
  const out: Metrics = {};
  for (const name of new Set(rows.flatMap(row => Object.keys(row)))) {
    out[name] = mean(rows.filter(row => name in row).map(row => row[name]));
  }
  return out;
}

export type Metrics = { [name: string]: number };

/** Share of its turns in which `pick` holds. */
function turnShare(episode: Episode, pick: (turn: Episode['turns'][number]) => boolean): number {
  return episode.turns.length === 0 ? 0 : episode.turns.filter(pick).length / episode.turns.length;
}

/** Sums of the named rewards: `rewards/<name>`. */
function rewardTotals({ turns }: Episode): Metrics {
  const totals = sumComponents(turns.map(({ rewards }) => ({ rewards }))) ?? {};
  return Object.fromEntries(Object.entries(totals).map(([name, total]) => [`rewards/${name}`, total]));
}

/**
 * What one episode counts as, under the names of RAGEN's state manager: the last four are shares of its turns;
 * `manager_invalid_action` counts turns without any valid action, `format_penalty` all that were penalized.
 */
export function episodeMetrics(episode: Episode): Metrics {
  return {
    success: episode.success ? 1 : 0,
    num_actions: episode.turns.reduce((sum, turn) => sum + turn.actions.length, 0),
    num_turns: episode.turns.length,
    episodic_return: episodeReturn(episode),
    action_is_effective: turnShare(episode, turn => turn.info.action_is_effective === true),
    action_is_valid: turnShare(episode, turn => turn.info.action_is_valid === true),
    manager_invalid_action: turnShare(episode, turn => turn.actions.length === 0),
    format_penalty: turnShare(episode, turn => turn.penalty < 0),
    ...rewardTotals(episode),
  };
}

/** Most metric names of a tag: an environment may return reward components of any names. */
const MAX_NAMES = 64;

/**
 * Means over the episodes of each tag: `<tag>/<name>`, `<tag>/non-zero/<name>` over the episodes where it is not 0,
 * `<tag>/ended_by/<name>`, the shares of episodes with that end, and `<tag>/pass@<k>`, the share of groups (of k) with
 * a success.
 * @param ends names that have a share even if it is 0
 */
export function tagMetrics(episodes: readonly Episode[], ends: EndMeanings = {}): Metrics {
  const out: Metrics = {};
  for (const [tag, members] of Map.groupBy(episodes, episode => episode.tag)) {
    const rows = members.map(episodeMetrics);
    const names = [...new Set(rows.flatMap(row => Object.keys(row)))];
    for (const name of names.slice(0, MAX_NAMES)) {
      const values = rows.map(row => row[name] ?? 0);
      out[`${tag}/${name}`] = mean(values);
      const nonZero = values.filter(value => value !== 0);
      if (nonZero.length > 0) out[`${tag}/non-zero/${name}`] = mean(nonZero);
    }
    for (const [name, share] of endShares(members, ends[tag])) out[`${tag}/ended_by/${name}`] = share;
    const groups = [...Map.groupBy(members, episode => episode.groupId).values()];
    const size = Math.max(...groups.map(group => group.length));
    const pass = mean(groups.map(group => (group.some(episode => episode.success) ? 1 : 0)));
    out[`${tag}/pass@${size}`] = pass;
    if (pass > 0) out[`${tag}/non-zero/pass@${size}`] = 1;
  }
  return out;
}

/** Most ends of a tag with a metric each, the most frequent ones: an environment may name any number. */
const MAX_ENDS = 16;
const CAPS: readonly Truncation[] = ['max_actions', 'max_turns'];

function endShares(episodes: readonly Episode[], known?: EndMeanings[string]): [string, number][] {
  const names = known ? [...Object.keys(known), ...CAPS] : [];
  const counts = new Map(names.map(name => [name, 0]));
  for (const { endedBy } of episodes) {
    if (endedBy !== undefined) counts.set(endedBy, (counts.get(endedBy) ?? 0) + 1);
  }
  const sorted = [...counts].sort((a, b) => b[1] - a[1]);
  return sorted.slice(0, MAX_ENDS).map(([name, count]) => [name, count / episodes.length]);
}

/** Success and return over all tags, and the share of groups with equal returns. */
export function batchMetrics(episodes: readonly Episode[]): Metrics {
  const groups = [...Map.groupBy(episodes, episode => episode.groupId).values()];
  const alike = groups.filter(group => {
    const returns = group.map(episodeReturn);
    return isAlike(Math.max(...returns) - Math.min(...returns));
  });
  return {
    success: mean(episodes.map(episode => (episode.success ? 1 : 0))),
    return: mean(episodes.map(episodeReturn)),
    frac_reward_zero_std: alike.length / groups.length,
  };
}

/** Mean length of the responses in tokens, the longest, and the share that ended at the limit. */
export function lengthMetrics(episodes: readonly Episode[], responseLength: number): Metrics {
  const lengths = episodes.flatMap(episode => episode.turns.map(turn => turn.tokens[1] - turn.tokens[0]));
  return {
    response_length: mean(lengths),
    'response_length/max': Math.max(0, ...lengths),
    'response_length/clip_ratio': mean(lengths.map(length => (length >= responseLength ? 1 : 0))),
    'num_turns/mean': mean(episodes.map(episode => episode.turns.length)),
  };
}

/** Outcomes of the calls of programs, means over the episodes; empty where no program played. */
export function programMetrics(episodes: readonly Episode[]): Metrics {
  const counts = episodes.flatMap(({ program }) => program ?? []);
  if (counts.length === 0) return {};
  return {
    'gateway/calls': mean(counts.map(({ calls }) => calls)),
    'gateway/merges': mean(counts.map(({ merges }) => merges)),
    'gateway/samples': mean(episodes.map(episode => samplesOf(episode).length)),
    'gateway/retokenized_tokens': mean(counts.map(({ retokenizedTokens }) => retokenizedTokens)),
    'gateway/failed_attempts': mean(counts.map(({ failedAttempts }) => failedAttempts)),
  };
}

/** A sequence with its advantages. */
interface TurnAdvantages {
  readonly lossMask: ArrayLike<number>;
  readonly advantages: ArrayLike<number>;
  /** Position of each turn's last sampled token, ascending. */
  readonly turnEnds: readonly number[];
}

/**
 * `critic/advantages/{std,zero_frac}` over the trained tokens, and whether advantages depend on the number of turns:
 * `critic/advantages/last_turn` and `other_turns`, means over turns (a turn counts with the mean over its tokens), and
 * `critic/advantages/turns_correlation` of an episode's mean advantage with its number of turns. Undefined values are
 * absent: the correlation of equal episodes, other turns if there are none.
 */
export function turnStatistics(sequences: readonly TurnAdvantages[]): Metrics {
  const last: number[] = [];
  const other: number[] = [];
  const [counts, advantagesOf]: [number[], number[]] = [[], []];
  for (const { lossMask, advantages, turnEnds } of sequences) {
    const turns = turnEnds.map((end, k) => {
      let [sum, count] = [0, 0];
      for (let t = k === 0 ? 0 : turnEnds[k - 1] + 1; t <= end; t++) {
        if (!lossMask[t]) continue;
        sum += advantages[t];
        count++;
      }
      return sum / Math.max(1, count);
    });
    if (turns.length === 0) continue;
    other.push(...turns.slice(0, -1));
    last.push(turns.at(-1)!);
    counts.push(turns.length);
    advantagesOf.push(mean(turns));
  }
  const turnsCorrelation = correlation(counts, advantagesOf);
  const tokens = sequences.flatMap(({ lossMask, advantages }) =>
    Array.from(advantages).filter((_, t) => lossMask[t]),
  );
  const zeros = tokens.filter(value => value === 0).length;
  return {
    ...(tokens.length > 0
      ? {
          'critic/advantages/std': populationStd(tokens),
          'critic/advantages/zero_frac': zeros / tokens.length,
        }
      : {}),
    ...(last.length > 0 ? { 'critic/advantages/last_turn': mean(last) } : {}),
    ...(other.length > 0 ? { 'critic/advantages/other_turns': mean(other) } : {}),
    ...(Number.isFinite(turnsCorrelation) ? { 'critic/advantages/turns_correlation': turnsCorrelation } : {}),
  };
}

/** Weights of reward components by name; null: the environment's reward and the format penalty as they are. */
export type RewardWeights = Readonly<Record<string, number>> | null;

/** Components that every turn has: the environment's reward, and the trainer's format penalty. */
const OWN = {
  reward: ({ reward }: RewardSums) => reward,
  format_penalty: ({ penalty }: RewardSums) => penalty,
} as const;

/** A component of a turn's reward; 0 where the environment did not return it. */
function component(turn: RewardSums, name: string): number {
  return Object.hasOwn(OWN, name) ? OWN[name as keyof typeof OWN](turn) : (turn.rewards?.[name] ?? 0);
}

/** A turn's reward in training, or that of several together. */
export function trainedReward(turn: RewardSums, weights: RewardWeights): number {
  if (weights === null) return turn.reward + turn.penalty;
  return Object.entries(weights).reduce((sum, [name, weight]) => sum + weight * component(turn, name), 0);
}

/** An episode's return in training, without the rewards of a prefix, which all members of its group share. */
export function trainedReturn(episode: Episode, weights: RewardWeights): number {
  return countedTurns(episode).reduce((sum, turn) => sum + trainedReward(turn, weights), 0);
}

/** The episode's total of each component with a weight. */
export function episodeComponents(episode: Episode, weights: RewardWeights): Record<string, number> {
  const turns = countedTurns(episode);
  return Object.fromEntries(
    Object.keys(weights ?? {}).map(name => [
      name,
      turns.reduce((sum, turn) => sum + component(turn, name), 0),
    ]),
  );
}

/**
 * @throws RangeError when no episode has a component that has a weight: the name is wrong, or the environment returns
 * none
 */
export function checkComponents(episodes: readonly Episode[], weights: RewardWeights): void {
  if (weights === null || episodes.length === 0) return;
  const known = new Set<string>(Object.keys(OWN));
  for (const { turns } of episodes) {
    for (const { rewards } of turns) for (const name of Object.keys(rewards ?? {})) known.add(name);
  }
  const unknown = Object.keys(weights).filter(name => !known.has(name));
  if (unknown.length === 0) return;
  throw new RangeError(
    `algorithm.reward_components names ${unknown.join(', ')}, which no step of this iteration returned in info.rewards; there are ${[...known].join(', ')}`,
  );
}
