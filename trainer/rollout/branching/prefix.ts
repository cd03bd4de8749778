import type { Episode, PlayedTurn, PrefixKind } from '../episode.ts';

/** Result of a group, by the share of its episodes that succeeded. */
export type GroupClass = 'all_fail' | 'too_hard' | 'balanced' | 'too_easy' | 'all_pass';

/** Bounds of a pass rate that leaves something to learn. */
export interface PassBounds {
  readonly low: number;
  readonly high: number;
}

/** Source: Rollout Pass-Rate Control (arXiv 2605.05112). */
export function classOf(successes: number, size: number, { low, high }: PassBounds): GroupClass {
  if (successes === 0) return 'all_fail';
  if (successes === size) return 'all_pass';
  const rate = successes / size;
  return rate < low ? 'too_hard' : rate > high ? 'too_easy' : 'balanced';
}

/** The ratio of a kind of prefix: the share of turns that a head start leaves, or that a handicap takes over. */
export interface PrefixRatio {
  readonly ratio: number;
  /** Most turns of the ratio; null: no limit. */
  readonly cap: number | null;
}

/**
 * Number of turns taken over from an episode: a head start leaves the last ones of a success, a handicap begins with
 * the first ones of a failure.
 * @returns 0 where no prefix can be cut
 */
export function prefixTurns(kind: PrefixKind, turns: number, { ratio, cap }: PrefixRatio): number {
  const part = Math.min(Math.trunc(turns * ratio), cap ?? Number.POSITIVE_INFINITY);
  const taken = kind === 'head_start' ? turns - Math.max(part, 1) : part;
  return taken > 0 && taken < turns ? taken : 0;
}

/** Settings of the controller of a ratio. */
export interface ControllerSettings {
  readonly target: number;
  /** Weight of an iteration in the moving average. */
  readonly alpha: number;
  readonly deadzone: number;
  readonly step: number;
  /** Iterations without a change after a change. */
  readonly cooldown: number;
  readonly least: number;
  readonly most: number;
}

/** State of the controller of one kind under one tag: plain data. */
export interface ControllerState {
  readonly ema: number;
  readonly ratio: number;
  readonly wait: number;
}

/**
 * The controller after an iteration. A larger ratio is harder for both kinds, so it rises while too many continuations
 * succeed.
 * @param rate mean pass rate of the iteration's prefixed groups of the kind; undefined where there were none
 */
export function controlled(
  { ema, ratio, wait }: ControllerState,
  rate: number | undefined,
  { target, alpha, deadzone, step, cooldown, least, most }: ControllerSettings,
): ControllerState {
  const mean = rate === undefined ? ema : (1 - alpha) * ema + alpha * rate;
  if (wait > 0) return { ema: mean, ratio, wait: wait - 1 };
  const change = mean > target + deadzone ? step : mean < target - deadzone ? -step : 0;
  if (rate === undefined || change === 0) return { ema: mean, ratio, wait: 0 };
  return { ema: mean, ratio: Math.min(most, Math.max(least, ratio + change)), wait: cooldown };
}

/** An episode that later ones may begin with: plain data, kept in checkpoints. */
export interface KeptPrefix {
  readonly kind: PrefixKind;
  readonly tag: string;
  readonly seed: number;
  readonly dynamicsSeed?: number;
  /** Iteration that it was played in. */
  readonly step: number;
  /** Attempts and successes of its group. */
  readonly attempts: number;
  readonly successes: number;
  /** Number of turns of the whole episode, and its first turns as played. */
  readonly turns: number;
  readonly played: readonly PlayedTurn[];
}

/** The first turns of an episode as another one takes them over. */
export function playedTurns(episode: Episode, count: number): PlayedTurn[] {
  return episode.turns.slice(0, count).map((turn, i) => {
    const { structured: _picture, ...kept } = turn;
    const sample = (episode.samples ?? [episode])[turn.sample ?? 0];
    return {
      turn: kept,
      sent: turn.sent ?? turn.actions,
      tokenIds: Array.from(sample.tokenIds.subarray(...turn.tokens)),
      after: episode.turns[i + 1].state,
    };
  });
}
