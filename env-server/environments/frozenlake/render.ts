import type { Picture } from '../environment.ts';
import { Canvas, type Color } from '../painting.ts';
import { type FrozenLakeState, isHole } from './rules.ts';

const CELL = 48;
const ICE: Color = 0xdcecf6;
const CRACK: Color = 0xb7cfdf;
const WATER: Color = 0x1f4e79;
const SHORE: Color = 0x6fa3c7;
const START: Color = 0xf4f8fb;
const POLE: Color = 0x5a4632;
const FLAG: Color = 0xd8412f;
const COAT: Color = 0xe08a1e;
const FACE: Color = 0xf3d3b0;

/** The lake from above: dark holes, a flag on the goal, the player in an orange coat. */
export function render({ lake, position }: FrozenLakeState): Picture {
  const canvas = new Canvas(lake.cols * CELL, lake.rows * CELL, CRACK);
  for (let cell = 0; cell < lake.cells.length; cell++) {
    const x = (cell % lake.cols) * CELL;
    const y = Math.floor(cell / lake.cols) * CELL;
    canvas.fill(x + 1, y + 1, CELL - 2, CELL - 2, cell === lake.start ? START : ICE);
    if (isHole(lake, cell)) {
      canvas.disc(x + CELL / 2, y + CELL / 2, 20, SHORE);
      canvas.disc(x + CELL / 2, y + CELL / 2, 17, WATER);
    }
    if (cell === lake.goal) {
      canvas.fill(x + 15, y + 8, 3, 34, POLE);
      canvas.fill(x + 18, y + 8, 18, 13, FLAG);
    }
    if (cell === position) {
      const depth = isHole(lake, cell) ? 8 : 0;
      canvas.disc(x + CELL / 2, y + 31 + depth, 11 - depth / 2, COAT);
      canvas.disc(x + CELL / 2, y + 17 + depth, 7, FACE);
    }
  }
  return canvas;
}
