import type { Random } from '../../../shared/random.ts';
import type { Sliced } from '../../../shared/slices.ts';
import { boardImages, isInSplit, type Split } from '../core/splits.ts';
import { type Cells, geometryOf } from './board.ts';

/**
 * Exact search on candidate sets (one bit a number), with naked and hidden singles propagated after every
 * placement and the cell with fewest candidates tried first.
 */

export interface SolveOptions {
  /** Stop after this many solutions; 2 is enough to see that a puzzle is not unique. */
  readonly limit: number;
  /** Give up after trying this many placements. */
  readonly maxNodes: number;
  /** Tries numbers and equally good cells in random order, for making full boards. */
  readonly rng?: Random;
  /** A number that a cell must not hold. */
  readonly forbid?: { readonly cell: number; readonly number: number };
}

export interface SolveResult {
  readonly solutions: readonly Cells[];
  /** False when `maxNodes` ended the search: there may be more solutions. */
  readonly complete: boolean;
}

/** Solutions of a puzzle, at most `limit` of them. */
export function solve(size: number, cells: Cells, options: SolveOptions): SolveResult {
  const candidates = new Int32Array(cells.length).fill((1 << size) - 1);
  const solutions: Cells[] = [];
  for (let cell = 0; cell < cells.length; cell++) {
    if (cells[cell] !== 0 && !place(size, candidates, cell, 1 << (cells[cell] - 1))) {
      return { solutions, complete: true };
    }
  }
  const { forbid } = options;
  if (forbid && !remove(size, candidates, forbid.cell, 1 << (forbid.number - 1))) {
    return { solutions, complete: true };
  }
  let nodes = 0;

  const search = (from: Int32Array): boolean => {
    if (!placeHiddenSingles(size, from)) return true;
    const cell = mostConstrained(from, options.rng);
    if (cell < 0) {
      solutions.push(Array.from(from, numberOf));
      return solutions.length < options.limit;
    }
    for (const bit of bitsOf(from[cell], options.rng)) {
      if (++nodes > options.maxNodes) return false;
      const next = from.slice();
      if (place(size, next, cell, bit) && !search(next)) return false;
    }
    return true;
  };

  const finished = search(candidates);
  return { solutions, complete: finished || solutions.length >= options.limit };
}

function numberOf(bit: number): number {
  return 32 - Math.clz32(bit);
}

function isSingle(mask: number): boolean {
  return (mask & (mask - 1)) === 0;
}

function countBits(mask: number): number {
  let count = 0;
  for (let rest = mask; rest !== 0; rest &= rest - 1) count++;
  return count;
}

function bitsOf(mask: number, rng: Random | undefined): number[] {
  const bits: number[] = [];
  for (let rest = mask; rest !== 0; rest &= rest - 1) bits.push(rest & -rest);
  return rng ? rng.shuffle(bits) : bits;
}

/** Puts the number of `bit` into the cell; false when that leaves some cell without a candidate. */
function place(size: number, candidates: Int32Array, cell: number, bit: number): boolean {
  if ((candidates[cell] & bit) === 0) return false;
  return candidates[cell] === bit || remove(size, candidates, cell, candidates[cell] & ~bit);
}

/** Removes candidates and follows the resulting naked singles; false on a contradiction. */
function remove(size: number, candidates: Int32Array, cell: number, bits: number): boolean {
  if ((candidates[cell] & bits) === 0) return true;
  const { peers } = geometryOf(size);
  candidates[cell] &= ~bits;
  if (candidates[cell] === 0) return false;
  if (!isSingle(candidates[cell])) return true;
  const settled = [cell];
  for (let at = settled.pop(); at !== undefined; at = settled.pop()) {
    const bit = candidates[at];
    for (const peer of peers[at]) {
      if ((candidates[peer] & bit) === 0) continue;
      candidates[peer] &= ~bit;
      if (candidates[peer] === 0) return false;
      if (isSingle(candidates[peer])) settled.push(peer);
    }
  }
  return true;
}

/** Places numbers that fit only one cell of a unit until there is none; false on a contradiction. */
function placeHiddenSingles(size: number, candidates: Int32Array): boolean {
  const full = (1 << size) - 1;
  const { units } = geometryOf(size);
  for (let changed = true; changed; ) {
    changed = false;
    for (const unit of units) {
      let once = 0;
      let twice = 0;
      for (const cell of unit) {
        twice |= once & candidates[cell];
        once |= candidates[cell];
      }
      if (once !== full) return false;
      const only = once & ~twice;
      if (only === 0) continue;
      for (const cell of unit) {
        const bit = candidates[cell] & only;
        if (bit === 0 || isSingle(candidates[cell])) continue;
        if (!isSingle(bit) || !place(size, candidates, cell, bit)) return false;
        changed = true;
      }
    }
  }
  return true;
}

/** The unsettled cell with fewest candidates, or −1 when all are settled. Ties: the first, or a random one. */
function mostConstrained(candidates: Int32Array, rng: Random | undefined): number {
  let best = -1;
  let fewest = 33;
  let ties = 0;
  for (let cell = 0; cell < candidates.length; cell++) {
    if (isSingle(candidates[cell])) continue;
    const count = countBits(candidates[cell]);
    if (count < fewest) {
      best = cell;
      fewest = count;
      ties = 1;
      if (count === 2 && !rng) return cell;
    } else if (count === fewest && rng && rng.integer(++ties) === 0) {
      best = cell;
    }
  }
  return best;
}

export interface Puzzle {
  readonly puzzle: Cells;
  /** The only solution of the puzzle. */
  readonly solution: Cells;
}

/** Placements tried before a full board is started over. */
const MAX_FILL_NODES = 200;
/** Boards started before the generator uses a shuffled pattern instead. */
const MAX_FILLS = 20;
/** Cells examined before other work gets its turn on the event loop: a few milliseconds on a board of 16. */
const CELLS_AT_A_TIME = 16;
/** Placements tried to show that a blank keeps the puzzle unique; beyond it the given stays. */
const MAX_PROOF_NODES = 20;

/**
 * A puzzle of the split with exactly one solution.
 * @param blanks cells to empty; fewer are emptied when every further blank would allow a second solution
 */
export function* generatePuzzle(
  size: number,
  blanks: number,
  rng: Random,
  split: Split = 'any',
): Sliced<Puzzle> {
  for (;;) {
    const drawn = yield* drawPuzzle(size, blanks, rng);
    if (isInSplit(() => puzzleKey(size, drawn.puzzle), split)) return drawn;
  }
}

/**
 * Level identity of a puzzle: its givens up to the symmetries of the board and the naming of the numbers, which are
 * renumbered in the order in which an image shows them.
 */
export function puzzleKey(size: number, puzzle: Cells): string {
  const images = boardImages(size, size).map(image => {
    const names = new Map<number, number>([[0, 0]]);
    return image.map(cell => {
      const number = puzzle[cell];
      if (!names.has(number)) names.set(number, names.size);
      return names.get(number)!;
    });
  });
  return images.map(String).sort()[0];
}

function* drawPuzzle(size: number, blanks: number, rng: Random): Sliced<Puzzle> {
  const solution = yield* fillBoard(size, rng);
  const puzzle = solution.slice();
  let left = blanks;
  for (const [place, cell] of rng.shuffle(solution.map((_, index) => index)).entries()) {
    if (left === 0) break;
    if (place % CELLS_AT_A_TIME === 0) yield;
    const number = puzzle[cell];
    puzzle[cell] = 0;
    if (isForced(size, puzzle, cell, number) || !hasOther(size, puzzle, cell, number)) left--;
    else puzzle[cell] = number;
  }
  return { puzzle, solution };
}

/** A random full board. */
function* fillBoard(size: number, rng: Random): Sliced<Cells> {
  const empty: Cells = new Array(size * size).fill(0);
  for (let attempt = 0; attempt < MAX_FILLS; attempt++) {
    const { solutions } = solve(size, empty, { limit: 1, maxNodes: MAX_FILL_NODES, rng });
    if (solutions.length === 1) return solutions[0];
    yield;
  }
  return shufflePattern(size, rng);
}

/** The cyclic board with numbers, and rows and columns within and between bands, in random order. */
export function shufflePattern(size: number, rng: Random): Cells {
  const box = Math.sqrt(size);
  const numbers = rng.shuffle(Array.from({ length: size }, (_, index) => index + 1));
  const order = (): number[] => {
    const bands = rng.shuffle(Array.from({ length: box }, (_, band) => band));
    return bands.flatMap(band => rng.shuffle(Array.from({ length: box }, (_, line) => band * box + line)));
  };
  const rows = order();
  const cols = order();
  return rows.flatMap(row => cols.map(col => numbers[(row * box + Math.floor(row / box) + col) % size]));
}

/** True if row, column and box alone show that `number` belongs in the empty cell. */
function isForced(size: number, cells: Cells, cell: number, number: number): boolean {
  const { peers, units, unitsOf } = geometryOf(size);
  const fits = (at: number, value: number): boolean => !peers[at].some(peer => cells[peer] === value);
  let others = 0;
  for (let value = 1; value <= size; value++) if (value !== number && fits(cell, value)) others++;
  if (others === 0) return true;
  return unitsOf[cell].some(unit =>
    units[unit].every(at => at === cell || cells[at] !== 0 || !fits(at, number)),
  );
}

/** True if a solution with another number in the cell exists, or could not be ruled out. */
function hasOther(size: number, cells: Cells, cell: number, number: number): boolean {
  const result = solve(size, cells, { limit: 1, maxNodes: MAX_PROOF_NODES, forbid: { cell, number } });
  return result.solutions.length > 0 || !result.complete;
}
