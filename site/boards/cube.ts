import type { VNode } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { html } from '../components/html.ts';
import { type BoardKind, type Drawn, has } from './board-kind.ts';

interface CubeState {
  /** Colors of the 24 stickers, face by face in the order U L F R B D, each row by row. */
  readonly stickers: string;
  readonly faces: { readonly [face: string]: string };
}

/** The turn that led to a state, and a counter of turns. */
interface LastTurn {
  readonly turn: Turn | undefined;
  readonly count: number;
}

const TURN_MS = 260;
const COLORS: { readonly [letter: string]: string } = {
  W: '#f4f4f1',
  O: '#f08a24',
  G: '#2f9e44',
  R: '#c92a2a',
  B: '#2463c4',
  Y: '#f5d327',
};
/** Half the side of a sticker and of a small cube, in units of half a small cube. */
const STICKER = 0.86;
const SCALE = 21.5;
const WIDTH = 156;
const HEIGHT = 168;
/** Direction of the view: about the vertical axis, then towards the viewer, in radians. */
const FRONT: View = { yaw: -0.62, pitch: 0.5, name: 'front' };
const BACK: View = { yaw: Math.PI - 0.62, pitch: -0.5, name: 'back' };

interface View {
  readonly yaw: number;
  readonly pitch: number;
  readonly name: string;
}

/** The 2×2 cube from the front above and from the back below; layers turn. */
export const cube: BoardKind<CubeState, LastTurn> = {
  name: 'cube',
  fits: state => has(state, 'stickers', 'faces'),
  track: trackTurn,
  draw: ({ stickers }, { memory }) =>
    html`<${TurningCube} key="cube" stickers=${stickers} turn=${memory.turn} count=${memory.count} />`,
};

function trackTurn({ stickers }: CubeState, before: Drawn<CubeState, LastTurn> | undefined): LastTurn {
  if (!before) return { turn: undefined, count: 0 };
  if (before.state.stickers === stickers) return before.memory;
  return { turn: turnBetween(before.state.stickers, stickers), count: before.memory.count + 1 };
}

interface CubeProps {
  readonly stickers: string;
  readonly turn: Turn | undefined;
  readonly count: number;
}

/** Animates the turn that led here, once, unless the viewer prefers reduced motion. */
function TurningCube({ stickers, turn, count }: CubeProps): VNode {
  const [left, show] = useState({ count, share: 0 });
  useEffect(() => {
    if (count === 0 || !turn || matchMedia('(prefers-reduced-motion: reduce)').matches) return undefined;
    let frame = 0;
    let start: number | undefined;
    const draw = (now: number) => {
      start ??= now;
      const done = Math.min(1, (now - start) / TURN_MS);
      show({ count, share: (1 - done) ** 2 });
      if (done < 1) frame = requestAnimationFrame(draw);
    };
    frame = requestAnimationFrame(draw);
    return () => cancelAnimationFrame(frame);
  }, [count]);
  return drawCube(stickers, turn, left.count === count ? left.share : 0);
}

/** @param share remaining share of the turn, from 0 to 1 */
function drawCube(stickers: string, turn: Turn | undefined, share: number): VNode {
  return html`<svg
    class="board-svg cube" viewBox="0 0 ${2 * WIDTH} ${HEIGHT}" data-ratio=${(2 * WIDTH) / HEIGHT} aria-hidden="true"
  >
    ${[FRONT, BACK].map(
      (
        view,
        index,
      ) => html`<g key=${view.name} style=${{ transform: `translate(${(index + 0.5) * WIDTH}px, ${HEIGHT / 2 - 6}px)` }}>
        ${facetsOf(view, turn, share).map(facet => drawFacet(facet, stickers))}
        <text style=${{ fill: 'var(--ink-soft)', fontSize: '9px' }} y=${HEIGHT / 2 - 2}>${view.name}</text>
      </g>`,
    )}
  </svg>`;
}

interface SeenFacet {
  readonly facet: Facet;
  /** Corners of a square of a given half side around the facet's center, projected. */
  corners(half: number): string;
}

/** The faces that point to the viewer, the farthest first. */
function facetsOf({ yaw, pitch }: View, turn: Turn | undefined, share: number): SeenFacet[] {
  const look = (vector: Vector): Vector => rotate(rotate(vector, 1, yaw), 0, pitch);
  const angle = turn ? (-turn.sense * share * Math.PI) / 2 : 0;
  const seen = FACETS.flatMap(facet => {
    const turning = turn !== undefined && share > 0 && inLayer(facet.cubie, turn);
    const place = (vector: Vector): Vector => look(turning ? rotate(vector, turn.axis, angle) : vector);
    if (facet.sticker === undefined && share === 0) return [];
    const normal = place(facet.normal);
    if (normal[2] <= 0) return [];
    // The layer nearer to the viewer is drawn last, as a whole.
    const layer = turn ? look(axisOf(turn.axis))[2] * facet.cubie[turn.axis] : 0;
    const depth = Math.sign(layer) * 100 + place(facet.cubie)[2] * 2 + normal[2];
    return [{ facet, depth, corners: (half: number) => corners(facet, half, place) }];
  });
  return seen.sort((a, b) => a.depth - b.depth);
}

const axisOf = (axis: number): Vector => [Number(axis === 0), Number(axis === 1), Number(axis === 2)];

function corners({ cubie, normal }: Facet, half: number, place: (vector: Vector) => Vector): string {
  const axis = normal.findIndex(part => part !== 0);
  const center = add(cubie, normal);
  return [0, 1, 2, 3]
    .map(corner => {
      const point: [number, number, number] = [...center];
      point[(axis + 1) % 3] += corner === 1 || corner === 2 ? half : -half;
      point[(axis + 2) % 3] += corner > 1 ? half : -half;
      const [x, y] = place(point);
      return `${(x * SCALE).toFixed(1)},${(-y * SCALE).toFixed(1)}`;
    })
    .join(' ');
}

function drawFacet({ facet, corners: polygon }: SeenFacet, stickers: string): VNode {
  const color = facet.sticker === undefined ? undefined : COLORS[stickers[facet.sticker]];
  return html`<polygon fill="#1b1e21" stroke="#1b1e21" stroke-linejoin="round" points=${polygon(1)} />
    ${color && html`<polygon fill=${color} points=${polygon(STICKER)} />`}`;
}

/** A point or direction in the cube's space: x to the right, y up, z to the front. */
type Vector = readonly [x: number, y: number, z: number];

/** One face of one of the eight small cubes. */
interface Facet {
  /** Center of its small cube: each coordinate is -1 or 1. */
  readonly cubie: Vector;
  readonly normal: Vector;
  /** Index of its sticker; undefined for a face inside the cube. */
  readonly sticker: number | undefined;
}

/** A quarter turn of one layer. */
interface Turn {
  readonly axis: 0 | 1 | 2;
  /** Coordinate of the layer on the axis. */
  readonly layer: 1 | -1;
  /** Seen along the axis: 1 counter-clockwise, -1 clockwise. */
  readonly sense: 1 | -1;
}

/** The vector of an axis with its sign, such as `-y`. */
function vectorOf([sign, name]: string): Vector {
  const [x, y, z] = ['x', 'y', 'z'].map(axis => (axis === name ? Number(`${sign}1`) : 0));
  return [x, y, z];
}

/** For each face in the order U L F R B D: its normal, and the directions of its columns and rows in reading order. */
const FACES = ['+y +x +z', '-x +z -y', '+z +x -y', '+x -z -y', '-z -x -y', '-y +x -z'].map(face =>
  face.split(' ').map(vectorOf),
);
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
const FACETS: readonly Facet[] = makeFacets();

function makeFacets(): Facet[] {
  const stickers = new Map<string, number>();
  for (const [face, [normal, right, down]] of FACES.entries()) {
    for (let place = 0; place < 4; place++) {
      const [col, row] = [SIDES[place % 2], SIDES[place >> 1]];
      stickers.set(keyOf(add(add(normal, right, col), down, row), normal), face * 4 + place);
    }
  }
  const cubies = SIDES.flatMap(x => SIDES.flatMap(y => SIDES.map(z => [x, y, z] as const)));
  return cubies.flatMap(cubie =>
    FACES.map(([normal]) => ({ cubie, normal, sticker: stickers.get(keyOf(cubie, normal)) })),
  );
}

/** A vector turned about an axis, in radians, counter-clockwise seen against the axis. */
function rotate(vector: Vector, axis: number, angle: number): Vector {
  const [i, j] = [(axis + 1) % 3, (axis + 2) % 3];
  const turned: [number, number, number] = [...vector];
  turned[i] = vector[i] * Math.cos(angle) - vector[j] * Math.sin(angle);
  turned[j] = vector[i] * Math.sin(angle) + vector[j] * Math.cos(angle);
  return turned;
}

const inLayer = (cubie: Vector, { axis, layer }: Turn): boolean => cubie[axis] === layer;

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
function turnBetween(before: string, after: string): Turn | undefined {
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
