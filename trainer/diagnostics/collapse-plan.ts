import type { Random } from '../../shared/random.ts';
import type { Score, ScoreRequest } from '../policy/policy.ts';
import type { CrossScores } from './collapse-metrics.ts';

/** One reasoning (Z) and everything that stood before it, up to the opening think tag (X). */
export interface ReasoningPair {
  readonly prompt: ArrayLike<number>;
  readonly reasoning: ArrayLike<number>;
  /** Pairs of one column share their prompt: the group of first turns, otherwise a number of their own. */
  readonly column: number;
}

/** An episode's turns as prompt and reasoning; turns without valid reasoning have an empty one. */
export interface ReasonedEpisode {
  readonly groupId: number;
  readonly turns: readonly Pick<ReasoningPair, 'prompt' | 'reasoning'>[];
}

/** Up to `count` first turns with reasoning, drawn without repetition; members of a group share a column. */
export function sampleFirstTurns(
  episodes: readonly ReasonedEpisode[],
  count: number,
  random: Random,
): ReasoningPair[] {
  const pairs = episodes.flatMap(({ groupId, turns }) =>
    turns.length > 0 && turns[0].reasoning.length > 0 ? [{ ...turns[0], column: groupId }] : [],
  );
  return pairs.length <= count ? pairs : random.shuffle(pairs).slice(0, count);
}

/** Up to `count` turns, each by drawing an episode and then one of its turns: long episodes do not count more. */
export function sampleTrajectories(
  episodes: readonly ReasonedEpisode[],
  count: number,
  random: Random,
): ReasoningPair[] {
  const valid = episodes
    .map(episode => episode.turns.filter(turn => turn.reasoning.length > 0))
    .filter(turns => turns.length > 0);
  const total = valid.reduce((sum, turns) => sum + turns.length, 0);
  return Array.from({ length: Math.min(count, total) }, (_, column) => ({
    ...random.choice(random.choice(valid)),
    column,
  }));
}

/** `collapse/valid_thinking_rate` and `collapse/first_turn_{num_total,num_valid,valid_rate}`. */
export function thinkingMetrics(episodes: readonly ReasonedEpisode[]): Record<string, number> {
  const valid = (turn: Pick<ReasoningPair, 'reasoning'>) => turn.reasoning.length > 0;
  const turns = episodes.flatMap(episode => episode.turns);
  const firsts = episodes.flatMap(episode => episode.turns.slice(0, 1));
  const rate = (part: number, whole: number) => (whole === 0 ? 0 : part / whole);
  const validFirsts = firsts.filter(valid).length;
  return {
    'collapse/valid_thinking_rate': rate(turns.filter(valid).length, turns.length),
    'collapse/first_turn_num_total': firsts.length,
    'collapse/first_turn_num_valid': validFirsts,
    'collapse/first_turn_valid_rate': rate(validFirsts, firsts.length),
  };
}

/** The teacher-forcing work of one measurement: score `requests`, hand the results to `collect`. */
export interface CrossPlan {
  readonly requests: readonly ScoreRequest[];
  collect(scores: readonly Score[]): CrossScores;
}

/**
 * Every reasoning behind every prompt. The first pair of a column lends its prompt; columns stand in ascending order.
 */
export function planCrossScores(pairs: readonly ReasoningPair[]): CrossPlan {
  const columns = [...new Set(pairs.map(pair => pair.column))].sort((a, b) => a - b);
  const prompts = columns.map(column => pairs.find(pair => pair.column === column)!.prompt);
  const requests = pairs.flatMap(({ reasoning }) => prompts.map(prompt => crossRequest(prompt, reasoning)));
  const collect = (scores: readonly Score[]): CrossScores => {
    const perSequence = pairs.map((_, i) =>
      prompts.map((prompt, j) => {
        const { logProbs } = scores[i * prompts.length + j];
        return logProbs.subarray(prompt.length).reduce((sum, logProb) => sum + logProb, 0);
      }),
    );
    return {
      perSequence,
      perToken: perSequence.map((row, i) => row.map(sum => sum / pairs[i].reasoning.length)),
      matchedColumn: pairs.map(pair => columns.indexOf(pair.column)),
      prompts,
    };
  };
  return { requests, collect };
}

function crossRequest(prompt: ArrayLike<number>, reasoning: ArrayLike<number>): ScoreRequest {
  const tokenIds = new Int32Array(prompt.length + reasoning.length);
  tokenIds.set(prompt);
  tokenIds.set(reasoning, prompt.length);
  return { tokenIds, lossMask: new Uint8Array(tokenIds.length).fill(1, prompt.length) };
}
