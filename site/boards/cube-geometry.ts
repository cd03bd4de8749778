/** A point or direction in the cube's space: x to the right, y up, z to the front. */
export type Vector = readonly [x: number, y: number, z: number];

/** One face of one of the eight small cubes. */
export interface Facet {
  /** Center of its small cube: each coordinate is -1 or 1. */
  readonly cubie: Vector;
  readonly normal: Vector;
  /** Index of its sticker; undefined for a face inside the cube. */
  readonly sticker: number | undefined;
}

/** A quarter turn of one layer. */
export interface Turn {
  readonly axis: 0 | 1 | 2;
  /** Coordinate of the layer on the axis. */
  readonly layer: 1 | -1;
  /** Seen along the axis: 1 counter-clockwise, -1 clockwise. */
  readonly sense: 1 | -1;
}

/** For each face in the order U L F R B D: its normal, and the directions of its columns and rows in reading order. */
const FACES: readonly (readonly [normal: Vector, right: Vector, down: Vector])[] = [
  [
    [0, 1, 0],
    [1, 0, 0],
    [0, 0, 1],
  ],
  [
    [-1, 0, 0],
    [0, 0, 1],
    [0, -1, 0],
  ],
  [
    [0, 0, 1],
    [1, 0, 0],
    [0, -1, 0],
  ],
  [
    [1, 0, 0],
    [0, 0, -1],
    [0, -1, 0],
  ],
  [
    [0, 0, -1],
    [-1, 0, 0],
    [0, -1, 0],
  ],
  [
    [0, -1, 0],
    [1, 0, 0],
    [0, 0, -1],
  ],
];
const SIDES = [-1, 1] as const;
/** Stickers that may differ after a turn: the environment's B swaps two of them. */
const MAX_DIFFERENCES = 2;

const add = (a: Vector, b: Vector, times = 1): Vector => [
  a[0] + times * b[0],
  a[1] + times * b[1],
  a[2] + times * b[2],
];
const keyOf = (cubie: Vector, normal: Vector): string => `${cubie}|${normal}`;

/** All 48 faces of the eight small cubes. */
export const FACETS: readonly Facet[] = makeFacets();

function makeFacets(): Facet[] {
  const stickers = new Map<string, number>();
  for (const [face, [normal, right, down]] of FACES.entries()) {
    for (const [place, [col, row]] of [
      [-1, -1],
      [1, -1],
      [-1, 1],
      [1, 1],
    ].entries()) {
      const cubie = add(add(normal, right, col), down, row);
      stickers.set(keyOf(cubie, normal), face * 4 + place);
    }
  }
  const cubies = SIDES.flatMap(x => SIDES.flatMap(y => SIDES.map(z => [x, y, z] as const)));
  return cubies.flatMap(cubie =>
    FACES.map(([normal]) => ({ cubie, normal, sticker: stickers.get(keyOf(cubie, normal)) })),
  );
}

/** A vector turned about an axis, in radians, counter-clockwise seen against the axis. */
export function rotate(vector: Vector, axis: number, angle: number): Vector {
  const [i, j] = [(axis + 1) % 3, (axis + 2) % 3];
  const turned: [number, number, number] = [...vector];
  turned[i] = vector[i] * Math.cos(angle) - vector[j] * Math.sin(angle);
  turned[j] = vector[i] * Math.sin(angle) + vector[j] * Math.cos(angle);
  return turned;
}

export const inLayer = (cubie: Vector, { axis, layer }: Turn): boolean => cubie[axis] === layer;

const TURNS: readonly Turn[] = ([0, 1, 2] as const).flatMap(axis =>
  SIDES.flatMap(layer => SIDES.map(sense => ({ axis, layer, sense }))),
);

/** The stickers after a turn of a physical cube. */
function turned(stickers: string, turn: Turn): string {
  const places = new Map(FACETS.map(({ cubie, normal, sticker }) => [keyOf(cubie, normal), sticker]));
  const next = [...stickers];
  for (const { cubie, normal, sticker } of FACETS) {
    if (sticker === undefined || !inLayer(cubie, turn)) continue;
    const move = (vector: Vector): Vector => {
      const [x, y, z] = rotate(vector, turn.axis, (turn.sense * Math.PI) / 2);
      return [Math.round(x) || 0, Math.round(y) || 0, Math.round(z) || 0];
    };
    next[places.get(keyOf(move(cubie), move(normal)))!] = stickers[sticker];
  }
  return next.join('');
}

/** The quarter turn that leads from one cube to the other; undefined where none does. */
export function turnBetween(before: string, after: string): Turn | undefined {
  if (before === after) return undefined;
  let best: Turn | undefined;
  let least = MAX_DIFFERENCES + 1;
  for (const turn of TURNS) {
    const made = turned(before, turn);
    const differences = [...after].filter((color, place) => color !== made[place]).length;
    if (differences < least) {
      best = turn;
      least = differences;
    }
  }
  return best;
}
