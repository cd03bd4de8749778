import type { Json, JsonObject } from '../../../shared/json.ts';
import type { Random } from '../../../shared/random.ts';
import { remembered } from '../../../shared/remembered.ts';
import { Slots } from '../../../shared/scheduling/queues.ts';
import { Problem } from '../../problems.ts';
import { background, scheduler } from '../../scheduling/fair-scheduler.ts';
import { randomPolicy } from '../core/actions.ts';
import {
  type Backdrop,
  BOARD_SPEC,
  backdrop,
  boardText,
  cellsWith,
  checkSymbols,
  codesOf,
  coordinates,
  describeInForm,
  gridRows,
  inForm,
  rowCol,
} from '../core/drawing/grid.ts';
import { type CanvasRegion, type Color, paintCells } from '../core/drawing/painting.ts';
import {
  type Description,
  type Environment,
  type EnvironmentSpec,
  InvalidConfig,
  type ObservationFormat,
  type Picture,
  type ReferencePolicy,
  type Transition,
} from '../core/environment.ts';
import { inScheduledSlices } from '../core/slices.ts';
import { COUNT, cell as cellSpace, dict, integers, list, type ObservationSpaces } from '../core/spaces.ts';
import { createState, levelKey } from './level.ts';
import {
  ACTIONS,
  AFTER_END,
  BOX_REWARD,
  configSchema,
  countOnTarget,
  ENDS,
  infoOf,
  isSolved,
  KINDS,
  move,
  optionsSchema,
  PRESETS,
  type Room,
  SOLVED_REWARD,
  type SokobanConfig,
  type SokobanState,
  STEP_REWARD,
  type Symbols,
  TARGET,
  UNKNOWN_ACTION,
  UNKNOWN_AFTER_END,
  WALL,
} from './rules.ts';
import { SearchTooLarge, solve } from './solver.ts';

/** States with a cached answer for each room; the map is cleared when a room needs more. */
const MAX_CACHED_STATES = 4096;
const DEAD = -1;
const TOO_LARGE = -2;
/** Memory of a search that runs at once. */
const SMALL_BYTES = 2 ** 20;
/** Memory of a large search: a million states of twenty boxes. */
const LARGE_BYTES = 64 * 2 ** 20;
/** Large searches in progress, over all clients; waiting clients take turns. */
const largeSearches = new Slots({ most: 2 });

/** Best direction in the known states, by room. */
const directionsOf = new WeakMap<Room, Map<string, number>>();

/**
 * The first move of a shortest solution; `undefined` when solved, −1 when there is no solution.
 * @throws Problem `unsupported` for a room that is too large to be solved
 */
async function bestDirection(state: SokobanState): Promise<number | undefined> {
  if (isSolved(state)) return undefined;
  let known = directionsOf.get(state.room);
  if (!known || known.size > MAX_CACHED_STATES) {
    known = new Map();
    directionsOf.set(state.room, known);
  }
  const cached = known.get(keyOf(state));
  if (cached === TOO_LARGE) throw tooLarge();
  if (cached !== undefined) return cached;
  let solution: number[] | undefined;
  try {
    solution = await solutionOf(state);
  } catch (error) {
    if (!(error instanceof SearchTooLarge)) throw error;
    known.set(keyOf(state), TOO_LARGE);
    throw tooLarge(error);
  }
  let at = state;
  for (const direction of solution ?? []) {
    known.set(keyOf(at), direction);
    at = move(at, direction);
  }
  if (!solution) known.set(keyOf(state), DEAD);
  return known.get(keyOf(state));
}

/**
 * A search that turns out large starts again when its turn has come.
 * @throws SearchTooLarge
 */
async function solutionOf({ room, player, boxes }: SokobanState): Promise<number[] | undefined> {
  const lane = scheduler.current ?? background;
  try {
    return await inScheduledSlices(solve(room, player, boxes, { bytes: SMALL_BYTES }));
  } catch (error) {
    if (!(error instanceof SearchTooLarge)) throw error;
  }
  const turn = largeSearches.group(lane.client);
  await turn.take();
  try {
    return await inScheduledSlices(solve(room, player, boxes, { bytes: LARGE_BYTES }), lane);
  } finally {
    turn.release();
  }
}

function tooLarge(cause?: SearchTooLarge): Problem {
  const limit = `${LARGE_BYTES / 2 ** 20} MiB`;
  return new Problem(
    'unsupported',
    `optimal does not solve this room: its search takes more than ${limit}; ask for it in smaller rooms or with fewer boxes`,
    { cause },
  );
}

function keyOf({ player, boxes }: SokobanState): string {
  return `${player} ${boxes.join(' ')}`;
}

const optimal = {
  title: 'A shortest solution by breadth-first search; no actions once a box is stuck for good',
  async plan(state: SokobanState, count: number) {
    const actions: string[] = [];
    let at = state;
    while (actions.length < count) {
      const direction = await bestDirection(at);
      if (direction === undefined || direction === DEAD) break;
      actions.push(ACTIONS.names[direction]);
      at = move(at, direction);
    }
    return actions;
  },
} satisfies ReferencePolicy<SokobanState>;

const random = randomPolicy<SokobanState>(ACTIONS);

/** Codes of the cells of `grid`. */
const CODES = codesOf(KINDS);

function observationSpaces({ dim_room, symbols }: SokobanConfig): ObservationSpaces {
  const [rows, cols] = dim_room;
  const place = cellSpace(rows, cols);
  return {
    text: boardText(symbols),
    structured: dict({
      rows: COUNT,
      cols: COUNT,
      grid: integers(CODES.wall, CODES.player_on_target, rows, cols),
      walls: list(place),
      targets: list(place),
      boxes: list(place),
      player: place,
      boxes_on_target: COUNT,
    }),
  };
}

const FORMS = { grid, coord, structured, render };

const backdropOf = new WeakMap<Room, Backdrop>();

/** The room without boxes and player. */
function emptyRoom(room: Room): Backdrop {
  return remembered(backdropOf, room, () => {
    const { symbols } = room;
    const cells = Array.from(room.cells, ground => {
      if (ground === WALL) return symbols.wall;
      return ground === TARGET ? symbols.target : symbols.floor;
    });
    return backdrop(cells, room.cols);
  });
}

function grid({ room, player, boxes }: SokobanState): string {
  const { symbols, cells } = room;
  const { text, starts, ends } = emptyRoom(room);
  let drawn = '';
  let from = 0;
  let box = 0;
  for (let i = 0; i <= boxes.length; i++) {
    const playerIsDue = box === i;
    const isPlayer = playerIsDue && (box === boxes.length || player < boxes[box]);
    const cell = isPlayer ? player : boxes[box++];
    drawn += text.slice(from, starts[cell]) + symbolOf(symbols, cells[cell] === TARGET, isPlayer);
    from = ends[cell];
  }
  return drawn + text.slice(from);
}

function symbolOf(symbols: Symbols, onTarget: boolean, isPlayer: boolean): string {
  if (isPlayer) return onTarget ? symbols.player_on_target : symbols.player;
  return onTarget ? symbols.box_on_target : symbols.box;
}

function coord({ room, player, boxes }: SokobanState): string {
  const { rows, cols, cells } = room;
  const lines = [`Board size: ${rows} rows x ${cols} cols (zero-indexed).`];
  const list = (label: string, places: readonly number[]): void => {
    if (places.length > 0) lines.push(`${label}: ${coordinates(places, cols)}`);
  };
  list('Targets', cellsWith(TARGET, cells));
  list(
    'Boxes',
    boxes.filter(cell => cells[cell] !== TARGET),
  );
  list(
    'Boxes on target',
    boxes.filter(cell => cells[cell] === TARGET),
  );
  list(cells[player] === TARGET ? 'Player on target' : 'Player', [player]);
  return lines.join('\n');
}

function structured({ room, player, boxes }: SokobanState): Json {
  const { rows, cols } = room;
  const places = (cells: readonly number[]) => cells.map(cell => rowCol(cell, cols));
  return {
    rows,
    cols,
    grid: gridRows(codes(room, player, boxes), cols),
    walls: places(cellsWith(WALL, room.cells)),
    targets: places(cellsWith(TARGET, room.cells)),
    boxes: places(boxes),
    player: rowCol(player, cols),
    boxes_on_target: countOnTarget(room, boxes),
  };
}

function codes({ cells }: Room, player: number, boxes: readonly number[]): number[] {
  const grid: number[] = Array.from(cells, ground => {
    if (ground === WALL) return CODES.wall;
    return ground === TARGET ? CODES.target : CODES.floor;
  });
  for (const box of boxes) grid[box] = cells[box] === TARGET ? CODES.box_on_target : CODES.box;
  grid[player] = cells[player] === TARGET ? CODES.player_on_target : CODES.player;
  return grid;
}

const spec: EnvironmentSpec = {
  id: 'Sokoban-v0',
  title: 'Sokoban',
  description: [
    'A warehouse keeper pushes boxes onto targets. The player moves up, down, left or right; a box in the way is',
    'pushed along if the cell behind it is free, and boxes can never be pulled. The episode ends when every',
    'target holds a box. Some pushes cannot be undone and leave a room that cannot be solved any more.',
    '',
    'Every action costs 0.1. An action after which more boxes are on targets than before pays 1, one after which',
    'fewer do costs 1, and solving the room pays 10. The count starts at 0, so boxes that are on targets from',
    'the start pay with the first action. An action that is not one of the four changes nothing and costs nothing.',
    '`info.rewards` has the three parts of the reward: `moves`, `boxes` and `solved`.',
    '',
    'A room is dug by a random walk; player and targets are placed at random; a search then pulls the boxes',
    'off their targets, so every room can be solved.',
    '',
    'Cells of `grid` in the structured form are 0 wall, 1 floor, 2 target, 3 box on target, 4 box, 5 player, 6 player',
    'on target.',
  ].join('\n'),
  tags: ['grid', 'puzzle', 'planning', 'deterministic'],
  configSchema,
  optionsSchema,
  presets: PRESETS,
  ...BOARD_SPEC,
  actionSpace: ACTIONS.space,
  rewardRange: [STEP_REWARD - BOX_REWARD, STEP_REWARD + BOX_REWARD + SOLVED_REWARD],
  knownOptimum: { success: 1, source: 'breadth-first search solves every generated room' },
  maxEpisodeSteps: 100,
  ends: ENDS,
  exampleAction: 'Up',
  history: [{ version: 0, change: 'First version.' }],
};

function describe(config: SokobanConfig): Description {
  const instruction =
    'Push every box onto a target. You push a box by walking into it; the cell behind it must be free, and boxes cannot be pulled.';
  return describeInForm(config, KINDS, { instruction, actions: ACTIONS.names });
}

/** Sokoban-v0: the rules and rooms of gym-sokoban and RAGEN. */
export const sokoban = {
  spec,
  describe,

  checkConfig(config: SokobanConfig): void {
    checkSymbols(config.symbols);
    if (config.max_solution !== undefined && config.max_solution < config.min_solution) {
      throw new InvalidConfig('/max_solution', 'max_solution is smaller than min_solution');
    }
  },

  reset(config: SokobanConfig, rng: Random, options: JsonObject): SokobanState | Promise<SokobanState> {
    return createState(config, rng, options);
  },

  levelKey: ({ room, boxes }: SokobanState) => levelKey({ ...room, boxes }),
  step,
  observe: (state: SokobanState, format: ObservationFormat) =>
    inForm(state, format === 'text' ? state.room.form : format, FORMS),
  observationSpaces,
  render,
  references: { optimal, random },
} satisfies Environment<SokobanConfig, SokobanState>;

function step(state: SokobanState, action: Json): Transition<SokobanState> {
  const { room, boxes_on_target: before } = state;
  const over = before === room.targets;
  const direction = ACTIONS.indexOf(action);
  if (over) {
    const info = direction < 0 ? UNKNOWN_AFTER_END : AFTER_END;
    return { state, reward: 0, terminated: true, info };
  }
  if (direction < 0) return { state, reward: 0, terminated: false, info: UNKNOWN_ACTION };

  const moved = move(state, direction);
  const onTarget = countOnTarget(room, moved.boxes);
  const solved = onTarget === room.targets;
  const change = Math.sign(onTarget - before);
  return {
    state: change === 0 ? moved : { ...moved, boxes_on_target: onTarget },
    reward: STEP_REWARD + change * BOX_REWARD + (solved ? SOLVED_REWARD : 0),
    terminated: solved,
    info: infoOf(moved !== state, change, solved),
  };
}

/** Pixels of a cell's side for which the figures below are drawn. */
const CELL = 40;
const FLOOR: Color = 0xe9e2d3;
const JOINT: Color = 0xd8cfbb;
const BRICK: Color = 0x8c5a44;
const MORTAR: Color = 0x6b4434;
const MARK: Color = 0xcf3b3b;
const CRATE: Color = 0xc58b3f;
const CRATE_EDGE: Color = 0x7d5320;
const CRATE_HOME: Color = 0x5c9f4a;
const CRATE_HOME_EDGE: Color = 0x356b28;
const OVERALL: Color = 0x2f6fb0;
const FACE: Color = 0xdba070;

/** The room from above: brick walls, red rings for targets, brown crates that turn green on a target. */
function render({ room, player, boxes }: SokobanState): Picture {
  return paintCells(room, CELL, JOINT, (at, cell) => {
    const isTarget = room.cells[cell] === TARGET;
    if (room.cells[cell] === WALL) bricks(at);
    else at.fill(1, 1, CELL - 2, CELL - 2, FLOOR);
    if (isTarget) {
      at.disc(CELL / 2, CELL / 2, 9, MARK);
      at.disc(CELL / 2, CELL / 2, 5, FLOOR);
    }
    if (boxes.includes(cell)) crate(at, isTarget);
    if (cell === player) {
      at.disc(CELL / 2, 25, 10, OVERALL);
      at.disc(CELL / 2, 13, 6, FACE);
    }
  });
}

function bricks(at: CanvasRegion): void {
  const course = CELL / 4;
  at.fill(0, 0, CELL, CELL, MORTAR);
  for (let i = 0; i < 4; i++) {
    const offset = i % 2 === 0 ? 0 : CELL / 4;
    if (offset > 0) at.fill(0, i * course, offset - 1, course - 1, BRICK);
    at.fill(offset, i * course, CELL / 2 - 1, course - 1, BRICK);
    at.fill(offset + CELL / 2, i * course, CELL / 2 - offset, course - 1, BRICK);
  }
}

function crate(at: CanvasRegion, home: boolean): void {
  const edge = home ? CRATE_HOME_EDGE : CRATE_EDGE;
  at.fill(4, 4, CELL - 8, CELL - 8, edge);
  at.fill(7, 7, CELL - 14, CELL - 14, home ? CRATE_HOME : CRATE);
  for (let i = 0; i < CELL - 14; i++) {
    at.fill(7 + i, 6 + i, 1, 3, edge);
    at.fill(7 + i, CELL - 9 - i, 1, 3, edge);
  }
}
