import type { Static } from 'typebox';
import type { Random } from '../../../shared/random.ts';
import { closed, Type } from '../../../shared/schema/type.ts';
import type { Sliced } from '../../../shared/slices.ts';
import { randomPolicy } from '../core/actions.ts';
import { Canvas, type Color } from '../core/drawing/painting.ts';
import { type Environment, InvalidOptions, type Picture, stepInfo } from '../core/environment.ts';
import { integerSetting } from '../core/settings.ts';
import { inScheduledSlices } from '../core/slices.ts';
import { charactersOf, dict, integers, LINES, type Space, text } from '../core/spaces.ts';
import { isInSplit, type Split, splitSchema } from '../core/splits.ts';
import {
  ACTIONS,
  COLORS,
  type Cube,
  FACES,
  faceOf,
  isSolved,
  SOLVED,
  STICKERS,
  TURNS,
  turn,
} from './cube.ts';

/**
 * Shortest solutions by search from both ends over the sticker colors. Which color is which does not
 * matter for being solved, so colors are numbered in the order of their appearance: all ways to hold a
 * solved cube become one.
 */

/** A cube up to the names of its colors: five stickers a character, three bits each. */
type Key = string;

/** Radius in quarter turns of the table around the solved cube: 16,149 cubes, each layer about eight times the last. */
const TABLE_DEPTH = 5;
/**
 * Cubes searched before the search gives up: five turns from either end, so that ten are undone. RAGEN's B breaks
 * corners apart, so the known bounds of physical cubes (14 turns, 3,674,160 cubes) do not limit this search.
 */
const MAX_CUBES = 250_000;
/** Cubes expanded before other work gets its turn on the event loop: a few milliseconds. */
const CUBES_AT_A_TIME = 200;
const STICKERS_PER_UNIT = 5;
const BITS = 3;
/** Marks the start of the search in place of a turn. */
const START = -1;

let table: ReadonlyMap<Key, number> | undefined;

/** Distance to the solved cube of all cubes near it. */
function* tabulate(): Sliced<ReadonlyMap<Key, number>> {
  const start = keyOf(SOLVED);
  const distances = new Map([[start, 0]]);
  let layer: Key[] = [start];
  for (let depth = 1; depth <= TABLE_DEPTH; depth++) {
    const next: Key[] = [];
    for (const [place, key] of layer.entries()) {
      if (place % CUBES_AT_A_TIME === CUBES_AT_A_TIME - 1) yield;
      for (let index = 0; index < TURNS.length; index++) {
        const turned = turnKey(key, index);
        if (distances.has(turned)) continue;
        distances.set(turned, depth);
        next.push(turned);
      }
    }
    layer = next;
  }
  return distances;
}

/** A shortest list of turns (indices) that solves the cube, or null when none was found within the bounds. */
export function* solve(cube: Cube): Sliced<number[] | null> {
  if (isSolved(cube)) return [];
  table ??= yield* tabulate();
  const near = table;
  const start = keyOf(cube);
  const cameBy = new Map<Key, number>([[start, START]]);
  if (near.has(start)) return descend(start, near);
  for (let layer = [start]; layer.length > 0; ) {
    const next: Key[] = [];
    for (const [place, from] of layer.entries()) {
      if (place % CUBES_AT_A_TIME === CUBES_AT_A_TIME - 1) yield;
      for (let index = 0; index < TURNS.length; index++) {
        const turned = turnKey(from, index);
        if (cameBy.has(turned)) continue;
        cameBy.set(turned, index);
        if (near.has(turned)) return [...wayTo(turned, cameBy), ...descend(turned, near)];
        next.push(turned);
      }
      if (cameBy.size > MAX_CUBES) return null;
    }
    layer = next;
  }
  return null;
}

const before = new Uint8Array(STICKERS);
const after = new Uint8Array(STICKERS);
const IDENTITY = Array.from({ length: STICKERS }, (_, index) => index);

function keyOf(cube: Cube): Key {
  for (let at = 0; at < STICKERS; at++) before[at] = COLORS.indexOf(cube[at]);
  return pack(IDENTITY);
}

function turnKey(key: Key, index: number): Key {
  for (let at = 0; at < STICKERS; at++) {
    const unit = key.charCodeAt(Math.floor(at / STICKERS_PER_UNIT));
    before[at] = (unit >> (BITS * (at % STICKERS_PER_UNIT))) & 7;
  }
  return pack(TURNS[index].from);
}

const names = new Int8Array(COLORS.length);

/** Permutes `before`, renumbers the colors and packs the result. */
function pack(from: readonly number[]): Key {
  names.fill(-1);
  let count = 0;
  for (let at = 0; at < STICKERS; at++) {
    const color = before[from[at]];
    if (names[color] < 0) names[color] = count++;
    after[at] = names[color];
  }
  const unit = (start: number): number => {
    let bits = 0;
    for (let at = Math.min(start + STICKERS_PER_UNIT, STICKERS) - 1; at >= start; at--) {
      bits = (bits << BITS) | after[at];
    }
    return bits;
  };
  return String.fromCharCode(unit(0), unit(5), unit(10), unit(15), unit(20));
}

/** The turns by which the search reached a cube: undone one by one, they lead back to the start. */
function wayTo(key: Key, cameBy: ReadonlyMap<Key, number>): number[] {
  const turns: number[] = [];
  let at = key;
  for (let index = cameBy.get(at) ?? START; index !== START; index = cameBy.get(at) ?? START) {
    turns.push(index);
    at = turnKey(at, inverseOf(index));
  }
  return turns.reverse();
}

/** A turn and its inverse are neighbors in {@link TURNS}. */
function inverseOf(index: number): number {
  return index ^ 1;
}

function descend(key: Key, near: ReadonlyMap<Key, number>): number[] {
  const turns: number[] = [];
  let at = key;
  for (let left = near.get(key) ?? 0; left > 0; left--) {
    const index = TURNS.findIndex((_, candidate) => near.get(turnKey(at, candidate)) === left - 1);
    turns.push(index);
    at = turnKey(at, index);
  }
  return turns;
}

const REWARD_SOLVED = 1;
/** Stickers along an edge. */
const SIDE = 2;
const MAX_SCRAMBLE = 10;
/** Most characters of a cube in any form. */
const MAX_OBSERVATION_LENGTH = 256;

type RubiksCubeState = { readonly cube: Cube };

const configSchema = closed({
  scramble_length: integerSetting(
    1,
    [1, MAX_SCRAMBLE],
    'Random quarter turns applied to a solved cube; drawn again when they leave it solved.',
  ),
  split: splitSchema,
  max_steps: integerSetting(20, [1], 'Turns before truncation.'),
});

const optionsSchema = closed({
  scramble: Type.Optional(
    Type.Array(Type.Union(ACTIONS.names.map(name => Type.Literal(name))), {
      maxItems: 1000,
      description: 'Turns applied to a solved cube.',
    }),
  ),
  stickers: Type.Optional(
    Type.String({
      pattern: `^[${COLORS}]{${STICKERS}}$`,
      description: 'Colors of the faces U L F R B D, four letters each, row by row.',
    }),
  ),
});

type RubiksCubeConfig = Static<typeof configSchema>;
type RubiksCubeOptions = Static<typeof optionsSchema>;

const FACE_NAMES = ['Up', 'Left', 'Front', 'Right', 'Back', 'Down'];
const COLOR_NAMES = ['white', 'orange', 'green', 'red', 'blue', 'yellow'];

export const rubiksCube: Environment<RubiksCubeConfig, RubiksCubeState> = {
  spec: {
    id: 'RubiksCube-v0',
    title: "Rubik's cube 2×2",
    description: [
      "A 2×2×2 Rubik's cube, scrambled by a few random quarter turns. A letter turns that face a quarter clockwise as seen from outside, a letter with ' turns it back. The episode ends when every face has one color; how the cube is held does not matter.",
      '',
      'Turns move stickers as in RAGEN, where B swaps two stickers on their way from D to R; a cube of plastic would not.',
      '',
      `Solving the cube pays ${REWARD_SOLVED}, everything else 0. An action that is not a turn changes nothing.`,
      '',
      '`colors` of the structured form has the faces U L F R B D row by row, each sticker as the place of its color in white, orange, green, red, blue, yellow, from 0.',
    ].join('\n'),
    tags: ['puzzle'],
    configSchema,
    optionsSchema,
    presets: Object.fromEntries(
      [1, 2, 3, 5, 10].map(length => [`scramble-${length}`, { scramble_length: length }]),
    ),
    observationSpace: { type: 'Text', maxLength: MAX_OBSERVATION_LENGTH },
    actionSpace: ACTIONS.space,
    observationFormats: ['text', 'grid', 'structured'],
    rewardRange: [0, REWARD_SOLVED],
    rewardThreshold: REWARD_SOLVED,
    knownOptimum: {
      success: 1,
      source: 'exact search, reference policy `optimal`; a scramble takes at most its own length to undo',
    },
    maxEpisodeSteps: 20,
    ends: { solved: 'Solved the cube' },
    exampleAction: "R'",
    history: [{ version: 0, change: 'First version.' }],
  },

  describe: () => ({
    instruction:
      "Solve the 2×2 Rubik's cube: every face must show one color. A letter turns that face a quarter clockwise as seen from outside; a letter with ' turns it counter-clockwise. Faces are shown as upper row / lower row.",
    legend: Array.from(COLORS, (symbol, index) => ({ symbol, meaning: COLOR_NAMES[index] })),
    actions: ACTIONS.names,
    vocabulary: [...FACE_NAMES.map(name => `${name}:`), '/', ...COLORS, ...ACTIONS.names],
  }),

  observationSpaces: () => {
    const letters = (length: number): Space => ({
      type: 'Text',
      minLength: length,
      maxLength: length,
      charset: charactersOf(COLORS),
    });
    return {
      text: text(MAX_OBSERVATION_LENGTH, LINES),
      structured: dict({
        stickers: letters(STICKERS),
        colors: integers(0, COLORS.length - 1, FACES.length, SIDE, SIDE),
        faces: dict(Object.fromEntries([...FACES].map(face => [face, letters(SIDE * SIDE)]))),
      }),
    };
  },

  reset: ({ scramble_length, split }, rng, options) => ({
    cube: pinned(options) ?? scramble(scramble_length, split, rng),
  }),

  step(state, action) {
    const index = ACTIONS.indexOf(action);
    if (index < 0) {
      const solved = isSolved(state.cube);
      return {
        state,
        reward: 0,
        terminated: solved,
        info: stepInfo(solved, false, false, solved && 'solved'),
      };
    }
    const cube = turn(state.cube, index);
    const solved = isSolved(cube);
    return {
      state: { cube },
      reward: solved ? REWARD_SOLVED : 0,
      terminated: solved,
      info: stepInfo(solved, true, true, solved && 'solved'),
    };
  },

  // RAGEN's turns are not all those of a physical cube, so a cube in another orientation is a different cube.
  levelKey: ({ cube }) => cube,

  observe({ cube }, format) {
    const faces = FACES.map((_, index) => faceOf(cube, index));
    if (format === 'structured') {
      const colors = faces.map(face => {
        const codes = Array.from(face, color => COLORS.indexOf(color));
        return [codes.slice(0, SIDE), codes.slice(SIDE)];
      });
      return {
        stickers: cube,
        colors,
        faces: Object.fromEntries(FACES.map((face, index) => [face, faces[index]])),
      };
    }
    if (format === 'grid') return net(faces);
    return faces.map((face, index) => `${FACE_NAMES[index]}: ${row(face, 0)} / ${row(face, 1)}`).join('\n');
  },

  render,

  references: {
    optimal: {
      title: 'Shortest solution by search from both ends, for cubes up to some ten turns from solved',
      plan: async ({ cube }, count) =>
        ((await inScheduledSlices(solve(cube))) ?? []).slice(0, count).map(index => ACTIONS.names[index]),
    },
    random: randomPolicy(ACTIONS),
  },
};

function row(face: string, index: number): string {
  return `${face[2 * index]} ${face[2 * index + 1]}`;
}

/** The unfolded cube: U above F, D below it, L F R B side by side. */
function net(faces: readonly string[]): string {
  const [up, left, front, right, back, down] = faces;
  const above = (face: string) => [0, 1].map(index => `    ${row(face, index)}`);
  const middle = [0, 1].map(index => [left, front, right, back].map(face => row(face, index)).join(' '));
  return [...above(up), ...middle, ...above(down)].join('\n');
}

/** Every length has cubes of each split. */
function scramble(length: number, split: Split, rng: Random): Cube {
  for (;;) {
    let cube = SOLVED;
    for (let count = 0; count < length; count++) cube = turn(cube, rng.integer(ACTIONS.names.length));
    if (!isSolved(cube) && isInSplit(() => cube, split)) return cube;
  }
}

function pinned({ scramble: turns, stickers }: RubiksCubeOptions): Cube | null {
  if (turns && stickers) throw new InvalidOptions('/stickers', 'give either scramble or stickers');
  if (turns) return turns.reduce((cube, name) => turn(cube, ACTIONS.indexOf(name)), SOLVED);
  if (!stickers) return null;
  for (const color of COLORS) {
    const count = stickers.split(color).length - 1;
    if (count !== 4)
      throw new InvalidOptions('/stickers', `needs four stickers of each color, not ${count} ${color}`);
  }
  return stickers;
}

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

function render({ cube }: RubiksCubeState): Picture {
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
