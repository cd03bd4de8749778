import type { Random } from '../../../shared/random.ts';
import type { Sliced } from '../core/slices.ts';
import { pullApart, type SearchBudget } from './reverse.ts';
import { FLOOR, neighbor, TARGET, WALL } from './rules.ts';

/** Length of the walk that digs the room, in steps for each row and column. */
const WALK_STEPS_PER_SIDE = 1.7;
const TURN_PROBABILITY = 0.35;
/** Cells dug around each place of the walk, as (row, col) offsets: bars, corners and a square. */
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

/** A room to play: `cells` as in the rules, player and boxes apart. */
export interface Level {
  readonly rows: number;
  readonly cols: number;
  readonly cells: string;
  readonly player: number;
  readonly boxes: readonly number[];
}

/** Size of a room, and the search that pulls boxes from their targets. */
export interface LevelSize {
  readonly rows: number;
  readonly cols: number;
  readonly boxes: number;
  readonly searchDepth: number;
}

/**
 * One attempt at a room after gym-sokoban and RAGEN: dig, place player and targets, pull the boxes off
 * their targets as far as a search finds, walk the player away.
 * @param budget is charged with the states that the search visits
 * @returns undefined when the dug room is too small or no pull leaves every target free
 */
export function* drawLevel(
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
