import type { Random } from '../../../shared/random.ts';
import type { Sliced } from '../../../shared/slices.ts';
import { boardImages, isInSplit, type Split } from '../core/splits.ts';
import { type Cells, geometryOf } from './board.ts';
import { solve } from './solver.ts';

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
