import type { Static } from 'typebox';
import type { JsonObject } from '../../../shared/json.ts';
import { closed, Type } from '../../../shared/schema/type.ts';
import { namedActions } from '../core/actions.ts';
import { layoutSchema, textFormSchema } from '../core/drawing/grid.ts';
import type { Ends } from '../core/ends.ts';
import type { StepInfo } from '../core/environment.ts';
import { choiceSetting, integerSetting, numberSetting } from '../core/setting-fields.ts';
import { splitSchema } from '../core/splits.ts';

const symbol = (fallback: string) => Type.String({ default: fallback, minLength: 1, maxLength: 16 });

const symbolsSchema = closed(
  {
    player: symbol('P'),
    frozen: symbol('_'),
    hole: symbol('O'),
    goal: symbol('G'),
    player_in_hole: symbol('X'),
    player_on_goal: symbol('√'),
  },
  { default: {}, description: 'How each kind of cell is written.' },
);

export const configSchema = closed({
  size: integerSetting(4, [2, 32], 'Rows and columns of a random lake.'),
  p_frozen: Type.Number({
    default: 0.9,
    exclusiveMinimum: 0,
    maximum: 1,
    description: 'Chance that a cell of a random lake is frozen rather than a hole.',
  }),
  success_rate: numberSetting(
    0.8,
    [0, 1],
    'Chance to move as chosen; the rest is split evenly over the two perpendicular directions. 1 never slips, 1/3 is the classic lake.',
  ),
  map: choiceSetting(
    ['random', '4x4', '8x8'],
    'random',
    'A new lake every reset, or one of the two classic ones.',
  ),
  split: splitSchema,
  max_steps: integerSetting(100, [1, 10_000], 'Steps before truncation.'),
  observation_format: textFormSchema,
  symbols: symbolsSchema,
});

const cell = (description: string) =>
  Type.Array(Type.Integer({ minimum: 0 }), { minItems: 2, maxItems: 2, description });

export const optionsSchema = closed({
  layout: layoutSchema(
    'The lake as rows of cells: the symbols of the observation, or S start, F frozen, H hole, G goal.',
  ),
  start: Type.Optional(cell('Start as [row, col].')),
  goal: Type.Optional(cell('Goal as [row, col].')),
  player: Type.Optional(cell('Where the player stands, if not on the start, as [row, col].')),
});

type Symbols = Static<typeof symbolsSchema>;
export type FrozenLakeConfig = Static<typeof configSchema>;
export type FrozenLakeOptions = Static<typeof optionsSchema>;

export const PRESETS: { readonly [name: string]: JsonObject } = {
  simple: { size: 4, success_rate: 0.8 },
  deterministic: { success_rate: 1 },
  coord: { observation_format: 'coord' },
  grid_coord: { observation_format: 'grid_coord' },
  visual: { observation_format: 'image' },
  larger: { size: 8, p_frozen: 0.85 },
  classic_4x4: { map: '4x4', success_rate: 1 / 3 },
  classic_8x8: { map: '8x8', success_rate: 1 / 3, max_steps: 200 },
};

/** The two lakes of Gymnasium. */
export const CLASSIC_MAPS: { readonly [name: string]: readonly string[] } = {
  '4x4': ['SFFF', 'FHFH', 'FFFH', 'HFFG'],
  '8x8': ['SFFFFFFF', 'FFFFFFFF', 'FFFHFFFF', 'FFFFFHFF', 'FFFHFFFF', 'FHHFFFHF', 'FHFFHFHF', 'FFFHFFFG'],
};

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
  /** Number of known actions taken. */
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

/** The neighboring cell in a direction (0 Left, 1 Down, 2 Right, 3 Up), or the same cell at the edge. */
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

/** Probability of each of the two perpendicular directions. */
export function slipRate(lake: Lake): number {
  return (1 - lake.success_rate) / 2;
}

/**
 * Possible outcomes of an action: Gymnasium's `P[s][a]`, in its order (direction − 1, direction, direction + 1). One
 * outcome when nothing slips or the episode is over.
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

/** The actual direction, given a uniform draw from [0, 1). */
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
/** Infos of steps after the end, for known and unknown actions. */
export const AFTER_END = {
  goal: { known: info(true, true, false, 'goal'), unknown: info(false, false, false, 'goal') },
  hole: { known: info(false, true, false, 'hole'), unknown: info(false, false, false, 'hole') },
} as const;
