import { Random } from '../../../shared/random.ts';

export interface LevelReplaySettings {
  /** Share of an iteration's groups that replay levels, once there are enough. */
  readonly share: number;
  /** Most remembered levels; the least promising are forgotten. */
  readonly capacity: number;
  /** β: a level is chosen in proportion to rank^(−1/β) by its score; near 0 always the best, large values uniformly. */
  readonly temperature: number;
  /** ρ: weight of the time since a level was played, in place of its score. */
  readonly staleness: number;
  /** Weight of earlier attempts when a level is played again. */
  readonly decay: number;
}

/** A level that was played: plain data, kept in checkpoints. */
export interface ReplayedLevel {
  readonly tag: string;
  readonly seed: number;
  /** Attempts and successes so far, older ones counted less. */
  readonly attempts: number;
  readonly successes: number;
  /** Iteration in which it was last played. */
  readonly step: number;
}

/** Result of a level in an iteration. */
export interface LevelResult {
  readonly tag: string;
  readonly seed: number;
  readonly attempts: number;
  readonly successes: number;
}

/**
 * What is left to learn from a level: p(1 − p) of its probability of success, largest where the policy succeeds half of
 * the time (learnability: Tzannetos et al., 2023; Rutherford et al., 2024). p is the mean of a Beta posterior from a
 * uniform prior, so a level with few attempts is not written off.
 */
export function learnability({ attempts, successes }: Pick<ReplayedLevel, 'attempts' | 'successes'>): number {
  return ((successes + 1) * (attempts - successes + 1)) / (attempts + 2) ** 2;
}

/**
 * Seeds of levels of a tag to play again, without repetition: prioritized level replay (Jiang et al., 2021), ranked by
 * {@link learnability}, with a share for levels not played for long.
 * @param count of levels; fewer where fewer are remembered
 */
export function chooseReplays(
  levels: readonly ReplayedLevel[],
  tag: string,
  count: number,
  { temperature, staleness }: Pick<LevelReplaySettings, 'temperature' | 'staleness'>,
  at: { readonly step: number; readonly seed: number },
): number[] {
  const own = levels.filter(level => level.tag === tag);
  const ranked = [...own].sort((a, b) => learnability(b) - learnability(a) || a.seed - b.seed);
  const byRank = shares(ranked.map((_, rank) => (rank + 1) ** (-1 / temperature)));
  const byAge = shares(ranked.map(level => at.step - level.step));
  const weights = ranked.map((_, i) => (1 - staleness) * byRank[i] + staleness * byAge[i]);
  const rng = Random.fromSeed(at.seed);
  const chosen: number[] = [];
  for (let n = Math.min(count, ranked.length); n > 0; n--) {
    const index = draw(weights, rng.float());
    chosen.push(ranked[index].seed);
    weights[index] = 0;
  }
  return chosen;
}

/** The levels updated by the results of an iteration, at most `capacity`: the least promising are left out. */
export function rememberLevels(
  levels: readonly ReplayedLevel[],
  results: readonly LevelResult[],
  { capacity, decay }: Pick<LevelReplaySettings, 'capacity' | 'decay'>,
  step: number,
): ReplayedLevel[] {
  const known = new Map(levels.map(level => [keyOf(level), level]));
  for (const { tag, seed, attempts, successes } of results) {
    const before = known.get(keyOf({ tag, seed }));
    known.set(keyOf({ tag, seed }), {
      tag,
      seed,
      attempts: decay * (before?.attempts ?? 0) + attempts,
      successes: decay * (before?.successes ?? 0) + successes,
      step,
    });
  }
  const all = [...known.values()];
  if (all.length <= capacity) return all;
  return all
    .sort((a, b) => learnability(b) - learnability(a) || b.step - a.step || a.seed - b.seed)
    .slice(0, capacity);
}

function keyOf({ tag, seed }: Pick<ReplayedLevel, 'tag' | 'seed'>): string {
  return `${seed} ${tag}`;
}

/** Weights divided by their sum; all 0 where that is 0. */
function shares(weights: readonly number[]): number[] {
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  return weights.map(weight => (total > 0 ? weight / total : 0));
}

/** Position of a weight drawn in proportion; the first one where all are 0. */
function draw(weights: readonly number[], at: number): number {
  let left = at * weights.reduce((sum, weight) => sum + weight, 0);
  let last = 0;
  for (let i = 0; i < weights.length; i++) {
    if (weights[i] <= 0) continue;
    last = i;
    left -= weights[i];
    if (left < 0) return i;
  }
  return last;
}
