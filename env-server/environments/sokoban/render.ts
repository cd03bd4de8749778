import { Canvas, CanvasRegion, type Color, cellSize } from '../core/drawing/painting.ts';
import type { Picture } from '../core/environment.ts';
import { type SokobanState, TARGET, WALL } from './rules.ts';

/** Pixels of a cell's side for which the figures below are drawn. */
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
const FACE: Color = 0xdba070;

/** The room from above: brick walls, red rings for targets, brown crates that turn green on a target. */
export function render({ room, player, boxes }: SokobanState): Picture {
  const cellSide = cellSize(room.rows, room.cols, CELL);
  const canvas = new Canvas(room.cols * cellSide, room.rows * cellSide, JOINT);
  for (let cell = 0; cell < room.cells.length; cell++) {
    const at = new CanvasRegion(
      canvas,
      (cell % room.cols) * cellSide,
      Math.floor(cell / room.cols) * cellSide,
      cellSide / CELL,
    );
    const isTarget = room.cells[cell] === TARGET;
    if (room.cells[cell] === WALL) bricks(at);
    else at.fill(1, 1, CELL - 2, CELL - 2, FLOOR);
    if (isTarget) {
      at.disc(CELL / 2, CELL / 2, 9, MARK);
      at.disc(CELL / 2, CELL / 2, 5, FLOOR);
    }
    if (boxes.includes(cell)) crate(at, isTarget);
    if (cell === player) {
      at.disc(CELL / 2, 25, 10, OVERALL);
      at.disc(CELL / 2, 13, 6, FACE);
    }
  }
  return canvas;
}

function bricks(at: CanvasRegion): void {
  const course = CELL / 4;
  at.fill(0, 0, CELL, CELL, MORTAR);
  for (let i = 0; i < 4; i++) {
    const offset = i % 2 === 0 ? 0 : CELL / 4;
    if (offset > 0) at.fill(0, i * course, offset - 1, course - 1, BRICK);
    at.fill(offset, i * course, CELL / 2 - 1, course - 1, BRICK);
    at.fill(offset + CELL / 2, i * course, CELL / 2 - offset, course - 1, BRICK);
  }
}

function crate(at: CanvasRegion, home: boolean): void {
  const edge = home ? CRATE_HOME_EDGE : CRATE_EDGE;
  at.fill(4, 4, CELL - 8, CELL - 8, edge);
  at.fill(7, 7, CELL - 14, CELL - 14, home ? CRATE_HOME : CRATE);
  for (let i = 0; i < CELL - 14; i++) {
    at.fill(7 + i, 6 + i, 1, 3, edge);
    at.fill(7 + i, CELL - 9 - i, 1, 3, edge);
  }
}
