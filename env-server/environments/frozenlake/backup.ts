import { DIRECTIONS, isOver, type Lake, neighbor, slipRate } from './rules.ts';

const reachedOf = new WeakMap<Lake, Int32Array>();

/** Cell that each direction leads to from each cell where the episode continues, four numbers a cell. */
function reached(lake: Lake): Int32Array {
  const known = reachedOf.get(lake);
  if (known) return known;
  const cells = Int32Array.from({ length: DIRECTIONS * lake.rows * lake.cols }, (_, at) => {
    const cell = Math.floor(at / DIRECTIONS);
    return isOver(lake, cell) ? cell : neighbor(lake, cell, at % DIRECTIONS);
  });
  reachedOf.set(lake, cells);
  return cells;
}

/**
 * The value of one move in a direction from every cell.
 * @param after the value of every cell after the move
 */
export function backedUp(lake: Lake, after: Float64Array, direction: number): Float64Array {
  const cells = reached(lake);
  const rate = lake.success_rate;
  const slip = slipRate(lake);
  const left = (direction + 3) % DIRECTIONS;
  const right = (direction + 1) % DIRECTIONS;
  const before = new Float64Array(after.length);
  for (let cell = 0; cell < before.length; cell++) {
    const at = DIRECTIONS * cell;
    before[cell] = isOver(lake, cell)
      ? after[cell]
      : rate * after[cells[at + direction]] + slip * (after[cells[at + left]] + after[cells[at + right]]);
  }
  return before;
}
