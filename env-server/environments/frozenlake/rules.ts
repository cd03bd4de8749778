import { namedActions } from '../core/actions.ts';
import type { Ends } from '../core/ends.ts';
import type { StepInfo } from '../core/environment.ts';
import type { FrozenLakeConfig, Symbols } from './config.ts';

export const HOLE = 'H';
export const FROZEN = 'F';

/** Fixed for an episode and shared by all its states. */
export type Lake = {
  readonly rows: number;
  readonly cols: number;
  /** Row-major, `F` or `H` a cell; start and goal are frozen. */
  readonly cells: string;
  readonly start: number;
  readonly goal: number;
  readonly success_rate: number;
  readonly max_steps: number;
  readonly form: FrozenLakeConfig['observation_format'];
  readonly symbols: Symbols;
};

export type FrozenLakeState = {
  readonly lake: Lake;
  readonly position: number;
  /** Known actions taken. */
  readonly steps: number;
};

/** One row of the transition table. */
export interface Outcome {
  readonly probability: number;
  readonly position: number;
  readonly reward: number;
  readonly terminated: boolean;
}

export const ACTIONS = namedActions(['Left', 'Down', 'Right', 'Up'], 1);
/** Number of directions, in circular order: those perpendicular to d are d ± 1 modulo 4. */
export const DIRECTIONS = 4;

/** The cell that lies in a direction (0 Left, 1 Down, 2 Right, 3 Up), or the same one at the edge. */
export function neighbor(lake: Pick<Lake, 'rows' | 'cols'>, position: number, direction: number): number {
  const { cols } = lake;
  const col = position % cols;
  switch (direction) {
    case 0:
      return col > 0 ? position - 1 : position;
    case 1:
      return position + cols < lake.rows * cols ? position + cols : position;
    case 2:
      return col < cols - 1 ? position + 1 : position;
    default:
      return position >= cols ? position - cols : position;
  }
}

export function isHole(lake: Pick<Lake, 'cells'>, position: number): boolean {
  return lake.cells[position] === HOLE;
}

export function isOver(lake: Lake, position: number): boolean {
  return position === lake.goal || lake.cells[position] === HOLE;
}

/** Chance of each of the two perpendicular directions. */
export function slipRate(lake: Lake): number {
  return (1 - lake.success_rate) / 2;
}

/**
 * Where an action may lead: Gymnasium's `P[s][a]`, in its order (direction − 1, direction, direction + 1).
 * One outcome when nothing slips or the episode is over.
 */
export function outcomes(lake: Lake, position: number, direction: number): readonly Outcome[] {
  if (isOver(lake, position)) return [{ probability: 1, position, reward: 0, terminated: true }];
  const towards = (turn: number, probability: number): Outcome => {
    const next = neighbor(lake, position, (direction + turn) % DIRECTIONS);
    return {
      probability,
      position: next,
      reward: next === lake.goal ? 1 : 0,
      terminated: isOver(lake, next),
    };
  };
  if (lake.success_rate === 1) return [towards(0, 1)];
  const slip = slipRate(lake);
  return [towards(3, slip), towards(0, lake.success_rate), towards(1, slip)];
}

/** The direction really taken, given a uniform draw from [0, 1). */
export function slippedDirection(lake: Lake, direction: number, uniform: number): number {
  const slip = slipRate(lake);
  if (uniform < slip) return (direction + 3) % DIRECTIONS;
  if (uniform < slip + lake.success_rate) return direction;
  return (direction + 1) % DIRECTIONS;
}

/** Ends of an episode. */
export const ENDS = { goal: 'Reached the goal', hole: 'Fell into a hole' } as const satisfies Ends;

const info = (
  success: boolean,
  valid: boolean,
  effective: boolean,
  end?: keyof typeof ENDS,
): Readonly<StepInfo> =>
  Object.freeze({
    success,
    action_is_valid: valid,
    action_is_effective: effective,
    ...(end && { ended_by: end }),
  });

export const UNKNOWN_ACTION = info(false, false, false);
export const STAYED = info(false, true, false);
export const MOVED = info(false, true, true);
export const FELL = info(false, true, true, 'hole');
export const REACHED_GOAL = info(true, true, true, 'goal');
/** Infos of steps after the end, by whether the action is known. */
export const AFTER_END = {
  goal: { known: info(true, true, false, 'goal'), unknown: info(false, false, false, 'goal') },
  hole: { known: info(false, true, false, 'hole'), unknown: info(false, false, false, 'hole') },
} as const;
