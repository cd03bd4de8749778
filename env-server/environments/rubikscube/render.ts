import { Canvas, type Color } from '../core/drawing/painting.ts';
import type { Picture } from '../core/environment.ts';
import { FACES, faceOf } from './cube.ts';
import type { RubiksCubeState } from './state.ts';

const STICKER = 36;
const GAP = 3;
const FACE = 2 * STICKER + 3 * GAP;
const MARGIN = 12;
const PAPER: Color = 0xdfe3e8;
const BODY: Color = 0x202428;
const PAINT: { readonly [color: string]: Color } = {
  W: 0xf8f8f8,
  O: 0xf08a24,
  G: 0x2f9e44,
  R: 0xc92a2a,
  B: 0x2463c4,
  Y: 0xf5d327,
};
/** Column and row of each face in the unfolded net. */
const PLACES = { U: [1, 0], L: [0, 1], F: [1, 1], R: [2, 1], B: [3, 1], D: [1, 2] } as const;

export function render({ cube }: RubiksCubeState): Picture {
  const canvas = new Canvas(4 * FACE + 2 * MARGIN, 3 * FACE + 2 * MARGIN, PAPER);
  for (const [index, face] of FACES.entries()) {
    const [col, row] = PLACES[face];
    const left = MARGIN + col * FACE;
    const top = MARGIN + row * FACE;
    canvas.fill(left, top, FACE, FACE, BODY);
    for (const [at, color] of Array.from(faceOf(cube, index)).entries()) {
      const x = left + GAP + (at % 2) * (STICKER + GAP);
      const y = top + GAP + Math.floor(at / 2) * (STICKER + GAP);
      canvas.fill(x, y, STICKER, STICKER, PAINT[color]);
    }
  }
  return canvas;
}
