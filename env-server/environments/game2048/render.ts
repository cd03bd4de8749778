import { Canvas, type Color } from '../core/drawing/painting.ts';
import type { Picture } from '../core/environment.ts';
import type { Tiles } from './rules.ts';

const CELL = 72;
const GAP = 8;
const BOARD: Color = 0x8a8f98;
const EMPTY: Color = 0xb9bec7;
const DARK: Color = 0x30343a;
const LIGHT: Color = 0xffffff;
/** Colors of 2, 4, 8 … 2048; larger tiles have the last. */
const TILES: readonly Color[] = [
  0xe6eef8, 0xcfe2f5, 0xa5cdef, 0x76b4e6, 0x4a98d9, 0x2f7fc4, 0x5fae6a, 0x3d9350, 0xe0a63a, 0xd67f2c,
  0xc4462f,
];
/** Tiles from this one on are dark enough for light digits. */
const FIRST_DARK = 32;

export function renderTiles(size: number, tiles: Tiles): Picture {
  const side = size * CELL + (size + 1) * GAP;
  const canvas = new Canvas(side, side, BOARD);
  for (let cell = 0; cell < tiles.length; cell++) {
    const x = GAP + (cell % size) * (CELL + GAP);
    const y = GAP + Math.floor(cell / size) * (CELL + GAP);
    const tile = tiles[cell];
    canvas.fill(x, y, CELL, CELL, tile === 0 ? EMPTY : TILES[Math.min(Math.log2(tile), TILES.length) - 1]);
    if (tile > 0) {
      const color = tile < FIRST_DARK ? DARK : LIGHT;
      canvas.label(String(tile), x + CELL / 2, y + CELL / 2, CELL * 0.75, color);
    }
  }
  return canvas;
}
