import type { Random } from '../../../shared/random.ts';

/**
 * One thought (Z) and everything that stood before it, up to the opening think tag (X). Of policies that do not think, the
 * actions and what stood before them.
 */
export interface ReasonedTurn {
  readonly prompt: ArrayLike<number>;
  /** Empty where the turn has no valid one. */
  readonly reasoning: ArrayLike<number>;
}

/** An episode's turns as prompt and reasoning. */
export interface ReasonedEpisode {
  readonly groupId: number;
  readonly turns: readonly ReasonedTurn[];
}

/** A turn that was drawn. */
export interface ReasoningSample extends ReasonedTurn {
  /** Samples of one group should share their prompt, and then share a column: the group of first turns, else the draw. */
  readonly group: number;
}

/** Up to `count` first turns with reasoning, drawn without replacement, in random order. */
export function sampleFirstTurns(
  episodes: readonly ReasonedEpisode[],
  count: number,
  random: Random,
): ReasoningSample[] {
  const samples = episodes.flatMap(({ groupId, turns }) =>
    turns.length > 0 && isValid(turns[0]) ? [{ ...turns[0], group: groupId }] : [],
  );
  return random.shuffle(samples).slice(0, count);
}

/**
 * Up to `count` turns drawn with replacement, each by drawing an episode and then one of its valid turns: long episodes do not
 * count more.
 */
export function sampleTrajectories(
  episodes: readonly ReasonedEpisode[],
  count: number,
  random: Random,
): ReasoningSample[] {
  const valid = episodes.map(episode => episode.turns.filter(isValid)).filter(turns => turns.length > 0);
  const total = valid.reduce((sum, turns) => sum + turns.length, 0);
  return Array.from({ length: Math.min(count, total) }, (_, group) => ({
    ...random.choice(random.choice(valid)),
    group,
  }));
}

/** `collapse/valid_thinking_rate` and `collapse/first_turn_{num_total,num_valid,valid_rate}`. */
export function thinkingMetrics(episodes: readonly ReasonedEpisode[]): Record<string, number> {
  const turns = episodes.flatMap(episode => episode.turns);
  const firsts = episodes.flatMap(episode => episode.turns.slice(0, 1));
  const rate = (part: number, whole: number) => (whole === 0 ? 0 : part / whole);
  const validFirsts = firsts.filter(isValid).length;
  return {
    'collapse/valid_thinking_rate': rate(turns.filter(isValid).length, turns.length),
    'collapse/first_turn_num_total': firsts.length,
    'collapse/first_turn_num_valid': validFirsts,
    'collapse/first_turn_valid_rate': rate(validFirsts, firsts.length),
  };
}

/** The samples with a prompt that leaves room in the policy's context for the longest reasoning. */
export function fittingSamples(
  samples: readonly ReasoningSample[],
  maxSequenceLength: number,
): ReasoningSample[] {
  const longest = samples.reduce((most, { reasoning }) => Math.max(most, reasoning.length), 0);
  return samples.filter(({ prompt }) => prompt.length + longest <= maxSequenceLength);
}

function isValid({ reasoning }: ReasonedTurn): boolean {
  return reasoning.length > 0;
}
