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
