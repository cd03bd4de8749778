import type { Random } from '../../../shared/random.ts';
import type { Sliced } from '../../../shared/slices.ts';
import { readLayout } from '../core/drawing/grid.ts';
import { InvalidConfig, InvalidOptions } from '../core/environment.ts';
import { inScheduledSlices } from '../core/slices.ts';
import { isInSplit, symmetricKey } from '../core/splits.ts';
import { pullApart, type SearchBudget } from './reverse.ts';
import {
  FLOOR,
  neighbor,
  type SokobanConfig,
  type SokobanOptions,
  type SokobanState,
  type Symbols,
  TARGET,
  WALL,
} from './rules.ts';
import { SearchTooLarge, solve } from './solver.ts';

/** Length of the walk that digs the room, in steps for each row and column. */
const WALK_STEPS_PER_SIDE = 1.7;
const TURN_PROBABILITY = 0.35;
/** Cells dug around each position of the walk, as (row, col) offsets: bars, corners and a square. */
const MASKS: readonly (readonly (readonly [number, number])[])[] = [
  [
    [0, -1],
    [0, 0],
    [0, 1],
  ],
  [
    [-1, 0],
    [0, 0],
    [1, 0],
  ],
  [
    [0, -1],
    [0, 0],
    [1, 0],
  ],
  [
    [0, -1],
    [0, 0],
    [1, -1],
    [1, 0],
  ],
  [
    [0, 0],
    [0, 1],
    [1, 0],
  ],
];
const WALK_DIRECTIONS = [
  [1, 0],
  [0, 1],
  [-1, 0],
  [0, -1],
] as const;

const EXTRA_WALK = { probability: 0.5, probabilityIfClose: 0.8, mostSteps: 3, goOnProbability: 0.5 };

/** A room to play: `cells` as in the rules, with player and boxes separate. */
interface Level {
  readonly rows: number;
  readonly cols: number;
  readonly cells: string;
  readonly player: number;
  readonly boxes: readonly number[];
}

/** Size of a room, and limits of the search that pulls boxes from their targets. */
interface LevelSize {
  readonly rows: number;
  readonly cols: number;
  readonly boxes: number;
  readonly searchDepth: number;
}

/**
 * One attempt at a room after gym-sokoban and RAGEN: dig, place player and targets, pull the boxes as far off their
 * targets as a search finds, walk the player away.
 * @param budget charged with the states that the search visits
 * @returns undefined when the dug room is too small or no pull frees every target
 */
function* drawLevel(
  { rows, cols, boxes, searchDepth }: LevelSize,
  rng: Random,
  budget: SearchBudget,
): Sliced<Level | undefined> {
  const dug = dig(rows, cols, rng);
  const floor: number[] = [];
  for (let cell = 0; cell < dug.length; cell++) if (dug[cell]) floor.push(cell);
  if (floor.length <= boxes + 1) return undefined;

  const player = take(floor, rng);
  const targets = Array.from({ length: boxes }, () => take(floor, rng)).sort((a, b) => a - b);
  // Pulled boxes and the player need free cells, and the player's was taken out of `floor` above.
  if (floor.length < boxes) return undefined;
  const pulled = yield* pullApart({ rows, cols, floor: dug, player, targets, searchDepth }, budget);
  if (!pulled) return undefined;

  const cells = Array.from(dug, (isFloor, cell) =>
    targets.includes(cell) ? TARGET : isFloor ? FLOOR : WALL,
  ).join('');
  const level = { rows, cols, cells, player: pulled.player, boxes: pulled.boxes.toSorted((a, b) => a - b) };
  return { ...level, player: walkAway(level, pulled.displacement, rng) };
}

/** 1 where the random walk dug floor; the outermost ring stays wall. */
function dig(rows: number, cols: number, rng: Random): Uint8Array {
  const floor = new Uint8Array(rows * cols);
  const steps = Math.floor(WALK_STEPS_PER_SIDE * (rows + cols));
  let direction = rng.choice(WALK_DIRECTIONS);
  let row = 1 + rng.integer(rows - 1);
  let col = 1 + rng.integer(cols - 1);
  for (let i = 0; i < steps; i++) {
    if (rng.chance(TURN_PROBABILITY)) direction = rng.choice(WALK_DIRECTIONS);
    row = inside(row + direction[0], rows);
    col = inside(col + direction[1], cols);
    for (const [dr, dc] of rng.choice(MASKS)) {
      const r = row + dr;
      const c = col + dc;
      if (r > 0 && r < rows - 1 && c > 0 && c < cols - 1) floor[r * cols + c] = 1;
    }
  }
  return floor;
}

function inside(position: number, side: number): number {
  return Math.max(1, Math.min(side - 2, position));
}

function take(cells: number[], rng: Random): number {
  const [cell] = cells.splice(rng.integer(cells.length), 1);
  return cell;
}

/** A short walk without revisits, so that the player does not always start next to a box. */
function walkAway(level: Level, displacement: number, rng: Random): number {
  const { cells, boxes } = level;
  let { player } = level;
  if (!rng.chance(displacement === 1 ? EXTRA_WALK.probabilityIfClose : EXTRA_WALK.probability)) return player;
  const visited = [player];
  for (let step = 0; step < EXTRA_WALK.mostSteps; step++) {
    const free = [0, 1, 2, 3]
      .map(direction => neighbor(level, player, direction))
      .filter(cell => cells[cell] !== WALL && !boxes.includes(cell) && !visited.includes(cell));
    if (free.length === 0) break;
    player = rng.choice(free);
    visited.push(player);
    if (!rng.chance(EXTRA_WALK.goOnProbability)) break;
  }
  return player;
}

/** Attempts before other work gets its turn on the event loop: about a millisecond. */
const ATTEMPTS_AT_A_TIME = 10;
/** Attempts after which a configuration counts as unable to make rooms. */
const MAX_ATTEMPTS = 20_000;
/** Boxes in the key of a level. */
const BOX = '$';
const BOX_ON_TARGET = '*';
/** States that all searches for one room may visit: four tries at the greatest search, about a second. */
const MAX_SEARCH_STATES = 1_200_000;
/** Memory of the search for a solution, enough for that many states of eight boxes. */
const MAX_SOLUTION_BYTES = 48 * 2 ** 20;

/**
 * @throws InvalidOptions when the layout is not a room
 * @throws InvalidConfig when no such room is found
 */
export function createState(
  config: SokobanConfig,
  rng: Random,
  options: SokobanOptions,
): SokobanState | Promise<SokobanState> {
  if (options.layout) return begin(config, readLevel(options.layout, config.symbols));
  return inScheduledSlices(drawState(config, rng));
}

/**
 * Draws a room.
 * @throws InvalidConfig when no such room is found
 */
export function* drawState(config: SokobanConfig, rng: Random): Sliced<SokobanState> {
  return begin(config, yield* randomLevel(config, rng));
}

function begin(config: SokobanConfig, level: Level): SokobanState {
  const { rows, cols, cells, player, boxes } = level;
  const targets = cells.split(TARGET).length - 1;
  const room = { rows, cols, cells, targets, form: config.observation_format, symbols: config.symbols };
  return { room, player, boxes, boxes_on_target: 0 };
}

function* randomLevel(config: SokobanConfig, rng: Random): Sliced<Level> {
  const { num_boxes: boxes, min_solution: shortest, max_solution: longest } = config;
  const [rows, cols] = config.dim_room;
  const size = { rows, cols, boxes, searchDepth: config.search_depth };
  const budget: SearchBudget = { states: MAX_SEARCH_STATES };
  for (let attempt = 0; attempt < MAX_ATTEMPTS && budget.states > 0; attempt++) {
    const level = yield* drawLevel(size, rng, budget);
    if (attempt % ATTEMPTS_AT_A_TIME === ATTEMPTS_AT_A_TIME - 1) yield;
    if (!level || !isInSplit(() => levelKey(level), config.split)) continue;
    if (shortest === 0 && longest === undefined) return level;
    const solution = yield* solutionWithin(level, longest, budget);
    if (solution && solution.length >= shortest) return level;
  }
  const lengths = shortest > 0 || longest !== undefined ? ' with a solution of the wanted length' : '';
  throw new InvalidConfig(
    '/num_boxes',
    `found no ${rows} × ${cols} room with ${boxes} boxes${lengths} in reasonable time; ask for fewer boxes, a larger room or other lengths`,
  );
}

/** A shortest solution, where one is found within the moves, the budget and the memory. */
function* solutionWithin(
  level: Level,
  moves: number | undefined,
  budget: SearchBudget,
): Sliced<number[] | undefined> {
  const { player, boxes } = level;
  try {
    return yield* solve({ ...level, targets: boxes.length }, player, boxes, {
      moves,
      budget,
      bytes: MAX_SOLUTION_BYTES,
    });
  } catch (error) {
    if (!(error instanceof SearchTooLarge)) throw error;
    budget.states = 0;
    return undefined;
  }
}

/** Level identity of a room: walls, targets and boxes up to the symmetries of the board; the player does not matter. */
export function levelKey({ rows, cols, cells, boxes }: Omit<Level, 'player'>): string {
  const symbols = cells.split('');
  for (const box of boxes) symbols[box] = symbols[box] === TARGET ? BOX_ON_TARGET : BOX;
  return symmetricKey(rows, cols, symbols);
}

interface Cell {
  readonly ground: string;
  readonly holds?: 'player' | 'box';
}

/** The configuration's symbols first, then those of common level files. */
function alphabet(symbols: Symbols): Map<string, Cell> {
  const floor: Cell = { ground: FLOOR };
  const target: Cell = { ground: TARGET };
  const wall: Cell = { ground: WALL };
  const box: Cell = { ground: FLOOR, holds: 'box' };
  const boxOnTarget: Cell = { ground: TARGET, holds: 'box' };
  const player: Cell = { ground: FLOOR, holds: 'player' };
  const playerOnTarget: Cell = { ground: TARGET, holds: 'player' };
  return new Map([
    ['#', wall],
    ['-', floor],
    [' ', floor],
    ['.', target],
    ['*', boxOnTarget],
    ['$', box],
    ['@', player],
    ['+', playerOnTarget],
    [symbols.wall, wall],
    [symbols.floor, floor],
    [symbols.target, target],
    [symbols.box_on_target, boxOnTarget],
    [symbols.box, box],
    [symbols.player, player],
    [symbols.player_on_target, playerOnTarget],
  ]);
}

function readLevel(layout: string | readonly string[], symbols: Symbols): Level {
  const { rows, cols, cells } = readLayout(layout);
  const known = alphabet(symbols);
  const players: number[] = [];
  const boxes: number[] = [];
  const ground = cells.map((symbol, at) => {
    const cell = known.get(symbol);
    if (!cell) {
      throw new InvalidOptions(
        '/layout',
        `unknown symbol ${JSON.stringify(symbol)}; a room is made of ${Object.values(symbols).join(' ')}`,
      );
    }
    if (cell.holds === 'player') players.push(at);
    if (cell.holds === 'box') boxes.push(at);
    return cell.ground;
  });
  if (players.length !== 1) {
    throw new InvalidOptions('/layout', `the room needs exactly one player, it has ${players.length}`);
  }
  const targets = ground.filter(symbol => symbol === TARGET).length;
  if (targets === 0) throw new InvalidOptions('/layout', 'the room has no target');
  if (boxes.length < targets) {
    throw new InvalidOptions('/layout', `the room has ${boxes.length} boxes for ${targets} targets`);
  }
  return { rows, cols, cells: ground.join(''), player: players[0], boxes };
}
