import { Random } from '../../shared/random.ts';

/** First iteration of a stage, with the share of each tag. */
export interface CurriculumStage {
  /** First iteration of the stage, counted from 1. */
  readonly from_step: number;
  /** Shares by tag, in any unit; tags that are not listed are not played. */
  readonly weights: { readonly [tag: string]: number };
}

/** A schedule of difficulty in stages; the next stage begins at once (`step`) or gradually (`linear`). */
export interface Curriculum {
  readonly blend: 'step' | 'linear';
  readonly stages: readonly CurriculumStage[];
}

/** Shares of the tags in an iteration, summing to 1. Iterations before the first stage have its shares. */
export function curriculumShares(
  { blend, stages }: Curriculum,
  tags: readonly string[],
  step: number,
): number[] {
  const at = Math.max(
    0,
    stages.findLastIndex(stage => stage.from_step <= step),
  );
  const shares = stageShares(stages[at], tags);
  const next = stages[at + 1];
  if (blend === 'step' || next === undefined || step < stages[at].from_step) return shares;
  const progress = (step - stages[at].from_step) / (next.from_step - stages[at].from_step);
  const after = stageShares(next, tags);
  return shares.map((share, i) => share + progress * (after[i] - share));
}

/** A curriculum that follows the success of each tag. */
export interface AdaptiveCurriculum {
  /** Share of the groups that is split evenly, so that no tag is forgotten. */
  readonly floor: number;
  /** Decay of the moving average of each tag's success, from iteration to iteration. */
  readonly decay: number;
}

/** Moving averages of success by tag; a tag that was not played yet is missing. */
export type TagSuccess = { readonly [tag: string]: number };

/**
 * Shares of the tags by what is left to learn: in proportion to s(1 − s) of their success s, above an even floor. A tag
 * that has not been played counts as half successful.
 */
export function adaptiveShares(
  { floor }: AdaptiveCurriculum,
  tags: readonly string[],
  success: TagSuccess,
): number[] {
  const weights = tags.map(tag => {
    const s = success[tag] ?? 0.5;
    return s * (1 - s);
  });
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  return weights.map(
    weight => floor / tags.length + (1 - floor) * (total > 0 ? weight / total : 1 / tags.length),
  );
}

/** The averages after an iteration with these success rates. */
export function followSuccess(
  { decay }: AdaptiveCurriculum,
  before: TagSuccess,
  played: TagSuccess,
): TagSuccess {
  const next: { [tag: string]: number } = { ...before };
  for (const [tag, success] of Object.entries(played)) {
    next[tag] = tag in before ? decay * before[tag] + (1 - decay) * success : success;
  }
  return next;
}

/** @returns what is wrong with a curriculum over these tags, as text; nothing if it is valid */
export function curriculumFaults({ stages }: Curriculum, tags: readonly string[]): string[] {
  return stages.flatMap(({ from_step, weights }, i) => {
    const unknown = Object.keys(weights).filter(tag => !tags.includes(tag));
    return [
      ...(unknown.length > 0
        ? [`stage ${i}: ${unknown.join(', ')} not among train_tags: ${tags.join(', ')}`]
        : []),
      ...(tags.every(tag => !(weights[tag] > 0)) ? [`stage ${i}: no tag has a weight above 0`] : []),
      ...(i > 0 && from_step <= stages[i - 1].from_step
        ? [`stage ${i} begins at step ${from_step}, not after the one before it`]
        : []),
    ];
  });
}

/**
 * Splits whole units over parts in proportion to their weights: each part gets its share rounded down, and the largest
 * remainders get the rest, the first of equals first.
 */
export function apportion(weights: readonly number[], units: number): number[] {
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  const exact = weights.map(weight => (units * weight) / total);
  const whole = exact.map(Math.floor);
  const left = units - whole.reduce((sum, part) => sum + part, 0);
  const order = exact.map((_, i) => i).sort((a, b) => exact[b] - whole[b] - (exact[a] - whole[a]) || a - b);
  for (const i of order.slice(0, left)) whole[i]++;
  return whole;
}

function stageShares({ weights }: CurriculumStage, tags: readonly string[]): number[] {
  const values = tags.map(tag => weights[tag] ?? 0);
  const total = values.reduce((sum, value) => sum + value, 0);
  return values.map(value => value / total);
}

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
export type LevelResult = Omit<ReplayedLevel, 'step'>;

/** Fields that {@link byLearnability} compares. */
type Learnable = Pick<ReplayedLevel, 'attempts' | 'successes' | 'step' | 'seed'>;

/**
 * What is left to learn from a level: p(1 − p) of its probability of success, largest where the policy succeeds half of
 * the time (learnability: Tzannetos et al., 2023; Rutherford et al., 2024). p is the mean of a Beta posterior from a
 * uniform prior, so a level with few attempts is not written off.
 */
export function learnability({ attempts, successes }: Pick<Learnable, 'attempts' | 'successes'>): number {
  return ((successes + 1) * (attempts - successes + 1)) / (attempts + 2) ** 2;
}

/** Orders by {@link learnability}, most first; of equals the one played last, then the one with the lower seed. */
export function byLearnability(a: Learnable, b: Learnable): number {
  return learnability(b) - learnability(a) || b.step - a.step || a.seed - b.seed;
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
  return all.sort(byLearnability).slice(0, capacity);
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
