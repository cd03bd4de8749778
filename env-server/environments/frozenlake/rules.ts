import type { Static } from 'typebox';
import type { JsonObject } from '../../../shared/json.ts';
import type { Random } from '../../../shared/random.ts';
import { closed, Type } from '../../../shared/schema/type.ts';
import { namedActions } from '../core/actions.ts';
import {
  type CellKinds,
  cellAt,
  type Layout,
  layoutSchema,
  readLayout,
  symbolsSchema,
  textFormSchema,
} from '../core/drawing/grid.ts';
import { type Ends, InvalidConfig, InvalidOptions, type StepInfo, stepInfo } from '../core/environment.ts';
import { choiceSetting, integerSetting, numberSetting } from '../core/settings.ts';
import { isInSplit, splitSchema, symmetricKey } from '../core/splits.ts';

export const KINDS = {
  player: ['P', 'you', 'figure in orange'],
  frozen: ['_', 'ice', 'light blue'],
  hole: ['O', 'hole', 'dark blue disc'],
  goal: ['G', 'goal', 'red flag'],
  player_in_hole: ['X', 'you in a hole', 'figure in a dark blue disc'],
  player_on_goal: ['√', 'you on the goal', 'figure before a red flag'],
} as const satisfies CellKinds;

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
  symbols: symbolsSchema(KINDS),
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

export type FrozenLakeConfig = Static<typeof configSchema>;
type FrozenLakeOptions = Static<typeof optionsSchema>;

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
const FROZEN = 'F';

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
  readonly symbols: FrozenLakeConfig['symbols'];
};

export type FrozenLakeState = {
  readonly lake: Lake;
  readonly position: number;
  /** Number of known actions taken. */
  readonly steps: number;
};

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
): Readonly<StepInfo> => Object.freeze(stepInfo(success, valid, effective, end));

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

/** Random lakes are redrawn until the goal can be reached; a configuration that needs more tries is rejected. */
const MAX_TRIES = 10_000;

/** Symbol of the goal in a level's key. */
const GOAL = 'G';

type LakeGround = Pick<Lake, 'rows' | 'cols' | 'cells' | 'start' | 'goal'>;

/**
 * The lake of an episode and the player's cell.
 * @throws InvalidOptions when the pinned level is not a lake
 */
export function createLake(
  config: FrozenLakeConfig,
  rng: Random,
  options: FrozenLakeOptions,
): { lake: Lake; position: number } {
  const layout = options.layout ?? CLASSIC_MAPS[config.map];
  const ground = layout
    ? pinnedGround(readLayout(layout), config, options)
    : randomGround(config, rng, options);
  const lake: Lake = {
    ...ground,
    success_rate: config.success_rate,
    max_steps: config.max_steps,
    form: config.observation_format,
    symbols: config.symbols,
  };
  if (!options.player) return { lake, position: lake.start };
  const position = cellAt('/player', options.player, lake.rows, lake.cols);
  if (isHole(lake, position) || position === lake.goal) {
    throw new InvalidOptions('/player', 'the player must start on a frozen cell that is not the goal');
  }
  return { lake, position };
}

function pinnedGround(layout: Layout, config: FrozenLakeConfig, options: FrozenLakeOptions): LakeGround {
  const { rows, cols } = layout;
  const { symbols } = config;
  const starts: number[] = [];
  const goals: number[] = [];
  const cells = layout.cells.map((symbol, cell) => {
    if (symbol === symbols.player || symbol === 'S') starts.push(cell);
    else if (symbol === symbols.goal || symbol === 'G') goals.push(cell);
    else if (symbol === symbols.hole || symbol === HOLE) return HOLE;
    else if (symbol !== symbols.frozen && symbol !== FROZEN) {
      throw new InvalidOptions(
        '/layout',
        `unknown symbol ${JSON.stringify(symbol)}; a lake is made of ${symbols.player} ${symbols.frozen} ${symbols.hole} ${symbols.goal} or S F H G`,
      );
    }
    return FROZEN;
  });
  const start = options.start ? cellAt('/start', options.start, rows, cols) : onlyOne('start', starts);
  const goal = options.goal ? cellAt('/goal', options.goal, rows, cols) : onlyOne('goal', goals);
  const ground = { rows, cols, cells: cells.join(''), start, goal };
  refuseBadEnds(ground);
  return ground;
}

function onlyOne(name: string, cells: readonly number[]): number {
  if (cells.length !== 1) {
    throw new InvalidOptions('/layout', `the layout needs exactly one ${name}, it has ${cells.length}`);
  }
  return cells[0];
}

function refuseBadEnds({ cells, start, goal }: LakeGround): void {
  if (start === goal) throw new InvalidOptions('/goal', 'start and goal are the same cell');
  if (cells[start] === HOLE) throw new InvalidOptions('/start', 'the start is a hole');
  if (cells[goal] === HOLE) throw new InvalidOptions('/goal', 'the goal is a hole');
}

/** RAGEN's generator: cells, start and goal are drawn until a path over ice joins the two. */
function randomGround(config: FrozenLakeConfig, rng: Random, options: FrozenLakeOptions): LakeGround {
  const { size } = config;
  const area = size * size;
  const pinnedStart = options.start && cellAt('/start', options.start, size, size);
  const pinnedGoal = options.goal && cellAt('/goal', options.goal, size, size);
  if (pinnedStart !== undefined && pinnedStart === pinnedGoal) {
    throw new InvalidOptions('/goal', 'start and goal are the same cell');
  }
  for (let attempt = 0; attempt < MAX_TRIES; attempt++) {
    const drawn: string[] = [];
    while (drawn.length < area) drawn.push(rng.chance(config.p_frozen) ? FROZEN : HOLE);
    let start = pinnedStart ?? rng.integer(area);
    let goal = pinnedGoal ?? rng.integer(area);
    while (start === goal) {
      if (pinnedStart === undefined) start = rng.integer(area);
      if (pinnedGoal === undefined) goal = rng.integer(area);
    }
    drawn[start] = FROZEN;
    drawn[goal] = FROZEN;
    const ground = { rows: size, cols: size, cells: drawn.join(''), start, goal };
    if (isReachable(ground) && isInSplit(() => groundKey(ground), config.split)) return ground;
  }
  throw new InvalidConfig(
    '/p_frozen',
    `found no ${size} × ${size} lake with a reachable goal ${config.split === 'any' ? '' : `of the split ${config.split} `}in ${MAX_TRIES} tries; raise p_frozen or size`,
  );
}

/** Level identity of a lake: holes and goal up to the symmetries of the board; the start does not matter. */
export function groundKey({ rows, cols, cells, goal }: Omit<LakeGround, 'start'>): string {
  const symbols = cells.split('');
  symbols[goal] = GOAL;
  return symmetricKey(rows, cols, symbols);
}

export function isReachable(lake: LakeGround): boolean {
  const seen = new Uint8Array(lake.rows * lake.cols);
  const frontier = [lake.start];
  seen[lake.start] = 1;
  while (frontier.length > 0) {
    const cell = frontier.pop()!;
    if (cell === lake.goal) return true;
    for (let direction = 0; direction < DIRECTIONS; direction++) {
      const next = neighbor(lake, cell, direction);
      if (!seen[next] && !isHole(lake, next)) {
        seen[next] = 1;
        frontier.push(next);
      }
    }
  }
  return false;
}
