import type { Picture } from '../environment.ts';
import { Canvas, type Color } from '../painting.ts';
import { type SokobanState, TARGET, WALL } from './rules.ts';

const CELL = 40;
const FLOOR: Color = 0xe9e2d3;
const JOINT: Color = 0xd8cfbb;
const BRICK: Color = 0x8c5a44;
const MORTAR: Color = 0x6b4434;
const MARK: Color = 0xcf3b3b;
const CRATE: Color = 0xc58b3f;
const CRATE_EDGE: Color = 0x7d5320;
const CRATE_HOME: Color = 0x5c9f4a;
const CRATE_HOME_EDGE: Color = 0x356b28;
const OVERALL: Color = 0x2f6fb0;
const FACE: Color = 0xf3d3b0;

/** The room from above: brick walls, red marks for targets, brown crates that turn green on a target. */
export function render({ room, player, boxes }: SokobanState): Picture {
  const canvas = new Canvas(room.cols * CELL, room.rows * CELL, JOINT);
  for (let cell = 0; cell < room.cells.length; cell++) {
    const x = (cell % room.cols) * CELL;
    const y = Math.floor(cell / room.cols) * CELL;
    const isTarget = room.cells[cell] === TARGET;
    if (room.cells[cell] === WALL) bricks(canvas, x, y);
    else canvas.fill(x + 1, y + 1, CELL - 2, CELL - 2, FLOOR);
    if (isTarget) {
      canvas.disc(x + CELL / 2, y + CELL / 2, 9, MARK);
      canvas.disc(x + CELL / 2, y + CELL / 2, 5, FLOOR);
    }
    if (boxes.includes(cell)) crate(canvas, x, y, isTarget);
    if (cell === player) {
      canvas.disc(x + CELL / 2, y + 25, 10, OVERALL);
      canvas.disc(x + CELL / 2, y + 13, 6, FACE);
    }
  }
  return canvas;
}

function bricks(canvas: Canvas, x: number, y: number): void {
  const course = CELL / 4;
  canvas.fill(x, y, CELL, CELL, MORTAR);
  for (let i = 0; i < 4; i++) {
    const offset = i % 2 === 0 ? 0 : CELL / 4;
    canvas.fill(x, y + i * course, offset - 1, course - 1, BRICK);
    canvas.fill(x + offset, y + i * course, CELL / 2 - 1, course - 1, BRICK);
    canvas.fill(x + offset + CELL / 2, y + i * course, CELL / 2 - offset, course - 1, BRICK);
  }
}

function crate(canvas: Canvas, x: number, y: number, home: boolean): void {
  const edge = home ? CRATE_HOME_EDGE : CRATE_EDGE;
  canvas.fill(x + 4, y + 4, CELL - 8, CELL - 8, edge);
  canvas.fill(x + 7, y + 7, CELL - 14, CELL - 14, home ? CRATE_HOME : CRATE);
  for (let i = 0; i < CELL - 14; i++) {
    canvas.fill(x + 7 + i, y + 6 + i, 1, 3, edge);
    canvas.fill(x + 7 + i, y + CELL - 9 - i, 1, 3, edge);
  }
}
