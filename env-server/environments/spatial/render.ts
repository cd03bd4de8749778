import { Canvas, type Color, cellSize, textWidth } from '../core/drawing/painting.ts';
import type { Picture } from '../core/environment.ts';
import { FACINGS } from './room.ts';
import { type SpatialState, seenThings } from './state.ts';

const CELL = 84;
const TEXT_MARGIN = 6;
const LINE = 1;
const FLOOR: Color = 0xf3efe6;
const GRID: Color = 0xcfc8b8;
const THING: Color = 0x3a6ea5;
const INK: Color = 0xffffff;
const PLAYER: Color = 0xc4462f;
/** Steps east and south of each facing. */
const STEPS: readonly (readonly [number, number])[] = [
  [0, -1],
  [1, 0],
  [0, 1],
  [-1, 0],
];

/** The room from above, north up, with what the player has seen of it; the player is the red arrow that points ahead. */
export function render({ room, seen, position, facing }: SpatialState): Picture {
  const cell = cellSize(room.size, room.size, CELL);
  const side = room.size * cell + LINE;
  const canvas = new Canvas(side, side, FLOOR);
  for (let line = 0; line <= room.size; line++) {
    canvas.fill(line * cell, 0, LINE, side, GRID);
    canvas.fill(0, line * cell, side, LINE, GRID);
  }
  const things = seenThings({ room, seen });
  const longest = Math.max(1, ...things.map(({ name }) => textWidth(name, 1)));
  const scale = Math.max(1, Math.floor((cell - TEXT_MARGIN) / longest));
  for (const { name, row, col } of things) {
    const inset = Math.round(cell / 20);
    canvas.fill(
      col * cell + inset + LINE,
      row * cell + inset + LINE,
      cell - 2 * inset,
      cell - 2 * inset,
      THING,
    );
    canvas.label(name, (col + 0.5) * cell, (row + 0.5) * cell, textWidth(name, scale), INK);
  }
  const [east, south] = STEPS[FACINGS.indexOf(facing)];
  arrow(canvas, (position.col + 0.5) * cell, (position.row + 0.5) * cell, (0.3 * cell) | 0, east, south);
  return canvas;
}

/** A triangle around a point, its tip in the direction. */
function arrow(canvas: Canvas, x: number, y: number, size: number, east: number, south: number): void {
  for (let back = 0; back <= 2 * size; back++) {
    const ahead = size - back;
    const half = Math.round(back / 2.5);
    const left = Math.round(x + east * ahead - Math.abs(south) * half);
    const top = Math.round(y + south * ahead - Math.abs(east) * half);
    canvas.fill(left, top, south === 0 ? 1 : 2 * half + 1, south === 0 ? 2 * half + 1 : 1, PLAYER);
  }
}
