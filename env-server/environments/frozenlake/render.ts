import { Canvas, CanvasRegion, type Color, cellSize } from '../core/drawing/painting.ts';
import type { Picture } from '../core/environment.ts';
import { type FrozenLakeState, isHole } from './rules.ts';

/** Pixels of a cell's side in which the figures below are drawn. */
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
export function render({ lake, position }: FrozenLakeState): Picture {
  const side = cellSize(lake.rows, lake.cols, CELL);
  const canvas = new Canvas(lake.cols * side, lake.rows * side, CRACK);
  for (let cell = 0; cell < lake.cells.length; cell++) {
    const at = new CanvasRegion(
      canvas,
      (cell % lake.cols) * side,
      Math.floor(cell / lake.cols) * side,
      side / CELL,
    );
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
  }
  return canvas;
}
