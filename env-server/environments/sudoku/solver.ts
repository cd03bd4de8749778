import type { Random } from '../../../shared/random.ts';
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
