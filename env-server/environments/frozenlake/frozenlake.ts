import type { Json, JsonObject } from '../../../shared/json.ts';
import type { Random } from '../../../shared/random.ts';
import { remembered } from '../../../shared/remembered.ts';
import {
  type Backdrop,
  BOARD_SPEC,
  backdrop,
  boardText,
  cellsWith,
  checkSymbols,
  codesOf,
  coordinate,
  coordinates,
  describeInForm,
  gridRows,
  inForm,
  rowCol,
} from '../core/drawing/grid.ts';
import { type Color, paintCells } from '../core/drawing/painting.ts';
import type {
  Description,
  Environment,
  EnvironmentSpec,
  ObservationFormat,
  Picture,
  Transition,
} from '../core/environment.ts';
import {
  COUNT,
  cell as cellSpace,
  choice,
  dict,
  integers,
  list,
  type ObservationSpaces,
} from '../core/spaces.ts';
import { optimal, random } from './reference.ts';
import {
  ACTIONS,
  AFTER_END,
  CLASSIC_MAPS,
  configSchema,
  createLake,
  ENDS,
  FELL,
  type FrozenLakeConfig,
  type FrozenLakeState,
  groundKey,
  HOLE,
  isHole,
  isOver,
  KINDS,
  type Lake,
  MOVED,
  neighbor,
  optionsSchema,
  PRESETS,
  REACHED_GOAL,
  STAYED,
  slippedDirection,
  UNKNOWN_ACTION,
} from './rules.ts';

/** Codes of the cells of `grid`, in RAGEN's order. */
const CODES = codesOf(KINDS);
/** The kind of the player's cell, by the player's status. */
const PLAYER_AS = { playing: 'player', in_hole: 'player_in_hole', on_goal: 'player_on_goal' } as const;

function observationSpaces({ map, size, symbols }: FrozenLakeConfig): ObservationSpaces {
  const side = CLASSIC_MAPS[map]?.length ?? size;
  const place = cellSpace(side, side);
  return {
    text: boardText(symbols),
    structured: dict({
      rows: COUNT,
      cols: COUNT,
      grid: integers(CODES.player, CODES.player_on_goal, side, side),
      start: place,
      goal: place,
      player: place,
      holes: list(place),
      status: choice(...Object.keys(PLAYER_AS)),
      steps: COUNT,
    }),
  };
}

const FORMS = { grid, coord, structured, render };

const backdropOf = new WeakMap<Lake, Backdrop>();

/** The lake without its player. */
function emptyLake(lake: Lake): Backdrop {
  return remembered(backdropOf, lake, () => {
    const { symbols } = lake;
    const cells = Array.from(lake.cells, ground => (ground === HOLE ? symbols.hole : symbols.frozen));
    cells[lake.goal] = symbols.goal;
    return backdrop(cells, lake.cols);
  });
}

function grid({ lake, position }: FrozenLakeState): string {
  const { text, starts, ends } = emptyLake(lake);
  const symbol = lake.symbols[PLAYER_AS[status(lake, position)]];
  return text.slice(0, starts[position]) + symbol + text.slice(ends[position]);
}

function coord({ lake, position }: FrozenLakeState): string {
  const { rows, cols } = lake;
  const place = { playing: 'Player', in_hole: 'Player in hole', on_goal: 'Player on goal' }[
    status(lake, position)
  ];
  const lines = [
    `Board size: ${rows} rows x ${cols} cols (zero-indexed).`,
    `Start: ${coordinate(lake.start, cols)}`,
    `Goal: ${coordinate(lake.goal, cols)}`,
    `${place}: ${coordinate(position, cols)}`,
  ];
  const holes = holesOf(lake);
  if (holes.length > 0) lines.push(`Holes: ${coordinates(holes, cols)}`);
  return lines.join('\n');
}

function structured({ lake, position, steps }: FrozenLakeState): Json {
  const { rows, cols } = lake;
  return {
    rows,
    cols,
    grid: gridRows(codes(lake, position), cols),
    start: rowCol(lake.start, cols),
    goal: rowCol(lake.goal, cols),
    player: rowCol(position, cols),
    holes: holesOf(lake).map(cell => rowCol(cell, cols)),
    status: status(lake, position),
    steps,
  };
}

function codes(lake: Lake, position: number): number[] {
  const cells: number[] = Array.from(lake.cells, (ground, cell) => {
    if (cell === lake.goal) return CODES.goal;
    return ground === HOLE ? CODES.hole : CODES.frozen;
  });
  cells[position] = CODES[PLAYER_AS[status(lake, position)]];
  return cells;
}

function status(lake: Lake, position: number): keyof typeof PLAYER_AS {
  if (position === lake.goal) return 'on_goal';
  return isHole(lake, position) ? 'in_hole' : 'playing';
}

export const holesOf = ({ cells }: Lake): number[] => cellsWith(HOLE, cells);

const spec: EnvironmentSpec = {
  id: 'FrozenLake-v0',
  title: 'Frozen lake',
  description: [
    'A player crosses a frozen lake to a goal without falling into a hole. The ice is slippery: the player moves',
    'in the chosen direction with probability `success_rate` and otherwise to one of the two sides, each equally',
    'likely. Walking against the edge leaves the player where it is. The episode ends in a hole or at the goal.',
    '',
    'Reaching the goal pays 1, everything else 0. An action that is not one of the four changes nothing.',
    '',
    'Every reset draws a new lake: each cell is frozen with probability `p_frozen`, start and goal are two',
    'random cells, and the draw is repeated until ice joins them.',
    '',
    'Cells of `grid` in the structured form are 0 player, 1 frozen, 2 hole, 3 goal, 4 player in a hole, 5 player on',
    'the goal.',
  ].join('\n'),
  tags: ['grid', 'navigation', 'stochastic'],
  configSchema,
  optionsSchema,
  presets: PRESETS,
  ...BOARD_SPEC,
  actionSpace: ACTIONS.space,
  rewardRange: [0, 1],
  knownOptimum: {
    success: 0.996,
    source: 'value iteration over 500 random 4 × 4 lakes, at most 100 steps; 0.945 within 10',
  },
  maxEpisodeSteps: 100,
  ends: ENDS,
  exampleAction: 'Right',
  history: [{ version: 0, change: 'First version.' }],
};

function describe(config: FrozenLakeConfig): Description {
  const { success_rate: rate } = config;
  const slip =
    rate === 1
      ? 'You always move in the direction you choose.'
      : `The ice is slippery: you move in the direction you choose with probability ${percent(rate)}, and slide to one of the two sides otherwise.`;
  const instruction = `Cross the frozen lake to the goal without falling into a hole. ${slip}`;
  return describeInForm(config, KINDS, { instruction, actions: ACTIONS.names });
}

function percent(rate: number): string {
  return `${Number((rate * 100).toFixed(1))} %`;
}

/** FrozenLake-v0: Gymnasium's rules on RAGEN's random lakes. */
export const frozenLake = {
  spec,
  describe,
  observationSpaces,
  checkConfig: config => checkSymbols(config.symbols),

  reset(config: FrozenLakeConfig, rng: Random, options: JsonObject): FrozenLakeState {
    const { lake, position } = createLake(config, rng, options);
    return { lake, position, steps: 0 };
  },

  levelKey: ({ lake }: FrozenLakeState) => groundKey(lake),
  step,
  observe: (state: FrozenLakeState, format: ObservationFormat) =>
    inForm(state, format === 'text' ? state.lake.form : format, FORMS),
  render,
  references: { optimal, random },
} satisfies Environment<FrozenLakeConfig, FrozenLakeState>;

function step(state: FrozenLakeState, action: Json, rng: Random): Transition<FrozenLakeState> {
  const { lake, position } = state;
  const chosen = ACTIONS.indexOf(action);
  if (isOver(lake, position)) {
    const { known, unknown } = AFTER_END[position === lake.goal ? 'goal' : 'hole'];
    return { state, reward: 0, terminated: true, info: chosen < 0 ? unknown : known };
  }
  if (chosen < 0) return { state, reward: 0, terminated: false, info: UNKNOWN_ACTION };
  const direction = lake.success_rate === 1 ? chosen : slippedDirection(lake, chosen, rng.float());
  const next = neighbor(lake, position, direction);
  const moved: FrozenLakeState = { lake, position: next, steps: state.steps + 1 };
  if (next === lake.goal) return { state: moved, reward: 1, terminated: true, info: REACHED_GOAL };
  if (isHole(lake, next)) return { state: moved, reward: 0, terminated: true, info: FELL };
  return { state: moved, reward: 0, terminated: false, info: next === position ? STAYED : MOVED };
}

/** Pixels of a cell's side for which the figures below are drawn. */
const CELL = 48;
const ICE: Color = 0xdcecf6;
const CRACK: Color = 0xb7cfdf;
const WATER: Color = 0x1f4e79;
const SHORE: Color = 0x6fa3c7;
const START: Color = 0xf4f8fb;
const POLE: Color = 0x5a4632;
const FLAG: Color = 0xd8412f;
const COAT: Color = 0xe08a1e;
const FACE: Color = 0xdba070;

/** The lake from above: dark holes, a flag on the goal, the player in an orange coat. */
function render({ lake, position }: FrozenLakeState): Picture {
  return paintCells(lake, CELL, CRACK, (at, cell) => {
    at.fill(1, 1, CELL - 2, CELL - 2, cell === lake.start ? START : ICE);
    if (isHole(lake, cell)) {
      at.disc(CELL / 2, CELL / 2, 20, SHORE);
      at.disc(CELL / 2, CELL / 2, 17, WATER);
    }
    if (cell === lake.goal) {
      at.fill(15, 8, 3, 34, POLE);
      at.fill(18, 8, 18, 13, FLAG);
    }
    if (cell === position) {
      const depth = isHole(lake, cell) ? 8 : 0;
      at.disc(CELL / 2, 31 + depth, 11 - depth / 2, COAT);
      at.disc(CELL / 2, 17 + depth, 7, FACE);
    }
  });
}
