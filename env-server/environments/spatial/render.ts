import type { Picture } from '../environment.ts';
import { Canvas, type Color } from '../painting.ts';
import { FACINGS } from './room.ts';
import type { SpatialState } from './spatial.ts';

const CELL = 56;
const LINE = 1;
const FLOOR: Color = 0xf3efe6;
const GRID: Color = 0xcfc8b8;
const THING: Color = 0x3a6ea5;
const INK: Color = 0xffffff;
const PLAYER: Color = 0xc4462f;
/** Steps east and south of each facing, for the player's nose. */
const NOSES: readonly (readonly [number, number])[] = [
  [0, -1],
  [1, 0],
  [0, 1],
  [-1, 0],
];

/** The room from above, north up; the player is the red disc with its nose ahead. */
export function render({ room, position, facing }: SpatialState): Picture {
  const side = room.size * CELL + LINE;
  const canvas = new Canvas(side, side, FLOOR);
  for (let line = 0; line <= room.size; line++) {
    canvas.fill(line * CELL, 0, LINE, side, GRID);
    canvas.fill(0, line * CELL, side, LINE, GRID);
  }
  for (const { name, row, col } of room.things) {
    canvas.fill(col * CELL + 4, row * CELL + 8, CELL - 8, CELL - 16, THING);
    canvas.label(name, (col + 0.5) * CELL, (row + 0.5) * CELL, CELL - 8, INK);
  }
  const [east, south] = NOSES[FACINGS.indexOf(facing)];
  const x = (position.col + 0.5) * CELL;
  const y = (position.row + 0.8) * CELL;
  canvas.disc(x, y, CELL / 8, PLAYER);
  canvas.disc(x + (east * CELL) / 7, y + (south * CELL) / 7, CELL / 16, PLAYER);
  return canvas;
}
