import { namedActions } from '../core/actions.ts';

/**
 * 24 stickers, four a face in the order U L F R B D, each face read row by row as in an unfolded net (L F R B side by
 * side, U above F, D below F). A cube is the string of its sticker colors.
 */
export type Cube = string;

export const FACES = ['U', 'L', 'F', 'R', 'B', 'D'] as const;
/** White, orange, green, red, blue, yellow: the colors of U L F R B D when solved. */
export const COLORS = 'WOGRBY';
export const STICKERS = 24;
const FACE_STICKERS = 4;

export const SOLVED: Cube = Array.from(COLORS, color => color.repeat(FACE_STICKERS)).join('');

/**
 * Clockwise quarter turns: the sticker at `turn[i]` moves to i. They are RAGEN's: its B moves stickers 22 and 23 to the
 * R face in the opposite order of a physical cube.
 */
const CLOCKWISE: readonly (readonly [string, readonly number[]])[] = [
  ['U', [2, 0, 3, 1, 8, 9, 6, 7, 12, 13, 10, 11, 16, 17, 14, 15, 4, 5, 18, 19, 20, 21, 22, 23]],
  ['D', [0, 1, 2, 3, 4, 5, 18, 19, 8, 9, 6, 7, 12, 13, 10, 11, 16, 17, 14, 15, 22, 20, 23, 21]],
  ['L', [19, 1, 17, 3, 6, 4, 7, 5, 0, 9, 2, 11, 12, 13, 14, 15, 16, 22, 18, 20, 8, 21, 10, 23]],
  ['R', [0, 9, 2, 11, 4, 5, 6, 7, 8, 21, 10, 23, 14, 12, 15, 13, 3, 17, 1, 19, 20, 18, 22, 16]],
  ['F', [0, 1, 7, 5, 4, 20, 6, 21, 10, 8, 11, 9, 2, 13, 3, 15, 16, 17, 18, 19, 14, 12, 22, 23]],
  ['B', [13, 15, 2, 3, 1, 5, 0, 7, 8, 9, 10, 11, 12, 22, 14, 23, 18, 16, 19, 17, 20, 21, 6, 4]],
];

/** All twelve turns in action order: each clockwise turn, then its inverse. */
export const TURNS = CLOCKWISE.flatMap(([name, from]) => {
  const inverse = from.map((_, index) => from.indexOf(index));
  return [
    { name, from },
    { name: `${name}'`, from: inverse },
  ];
});

/** Ids 1 to 12: U U' D D' L L' R R' F F' B B'. */
export const ACTIONS = namedActions(
  TURNS.map(turn => turn.name),
  1,
);

/** @param index of the turn in {@link TURNS} */
export function turn(cube: Cube, index: number): Cube {
  let turned = '';
  for (const from of TURNS[index].from) turned += cube[from];
  return turned;
}

/** True if every face has one color; the cube's orientation does not matter. */
export function isSolved(cube: Cube): boolean {
  for (let at = 0; at < STICKERS; at += FACE_STICKERS) {
    for (let next = at + 1; next < at + FACE_STICKERS; next++) if (cube[next] !== cube[at]) return false;
  }
  return true;
}

/** The four stickers of a face, row by row. */
export function faceOf(cube: Cube, face: number): string {
  return cube.slice(face * FACE_STICKERS, (face + 1) * FACE_STICKERS);
}
