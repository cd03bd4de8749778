import type { Static } from 'typebox';
import type { Random } from '../../../shared/random.ts';
import { remembered } from '../../../shared/remembered.ts';
import { closed, Type } from '../../../shared/schema/type.ts';
import { namedActions, randomPolicy } from '../core/actions.ts';
import { Canvas, type Color } from '../core/drawing/painting.ts';
import {
  type Environment,
  InvalidOptions,
  type Picture,
  type ReferencePolicy,
  stepInfo,
  type Transition,
} from '../core/environment.ts';
import { integerSetting, numberSetting } from '../core/settings.ts';
import { COUNT, choice, dict, integers, list, text } from '../core/spaces.ts';
import { isInSplit, type Split, splitSchema } from '../core/splits.ts';

/** Ids are clockwise: 0 Up, 1 Right, 2 Down, 3 Left. */
export const ACTIONS = namedActions(['Up', 'Right', 'Down', 'Left'], 0);

/** Row-major tile values; 0 is empty. */
type Tiles = readonly number[];

type Game2048State = {
  readonly size: number;
  readonly tiles: Tiles;
  /** Sum of all merged tiles. */
  readonly score: number;
  readonly p_two: number;
  readonly win_tile: number;
};

interface SlideResult {
  readonly tiles: Tiles;
  /** Sum of the tiles merged by the move. */
  readonly merged: number;
  readonly moved: boolean;
}

const linesOf = new Map<number, readonly (readonly number[])[][]>();

/** For each direction the lines of cells, each from the edge that tiles slide to. */
function lines(size: number): readonly (readonly number[])[][] {
  return remembered(linesOf, size, () => {
    const range = Array.from({ length: size }, (_, index) => index);
    const left = range.map(row => range.map(col => row * size + col));
    const up = range.map(col => range.map(row => row * size + col));
    return [up, left.map(line => line.toReversed()), up.map(line => line.toReversed()), left];
  });
}

/**
 * Slides all tiles and merges equal neighbors, each tile once and those nearest the edge first. No new
 * tile appears.
 * @param direction index in {@link ACTIONS}
 */
export function slide(size: number, tiles: Tiles, direction: number): SlideResult {
  const next: number[] = new Array(tiles.length).fill(0);
  let merged = 0;
  let moved = false;
  for (const line of lines(size)[direction]) {
    let end = -1;
    let open = false;
    for (let index = 0; index < size; index++) {
      const tile = tiles[line[index]];
      if (tile === 0) continue;
      if (open && next[line[end]] === tile) {
        next[line[end]] = 2 * tile;
        merged += 2 * tile;
        open = false;
        moved = true;
      } else {
        end++;
        next[line[end]] = tile;
        open = true;
        moved ||= end !== index;
      }
    }
  }
  return { tiles: next, merged, moved };
}

/** Indices of the directions in which something moves. */
export function openDirections(size: number, tiles: Tiles): number[] {
  return [0, 1, 2, 3].filter(direction => slide(size, tiles, direction).moved);
}

/** 0.1·log2(merged + 1), RAGEN's log reward. */
export function rewardOf(merged: number): number {
  return merged > 0 ? 0.1 * Math.log2(merged + 1) : 0;
}

/** Search depth when few tiles can appear; one less on an open board. */
const DEPTH = 2;
/** Number of empty cells above which the last move is not searched. */
const OPEN_BOARD = 6;
/** Falling weights along a snake from a corner, which keep large tiles in order. */
const WEIGHT_RATIO = 0.5;

const random: ReferencePolicy<Game2048State> = randomPolicy(ACTIONS);

const heuristic: ReferencePolicy<Game2048State> = {
  title: 'Expectimax over two moves, large tiles in a snake from a corner',
  plan({ size, tiles }) {
    const snake = snakeWeights(size);
    const depth = tiles.filter(tile => tile === 0).length > OPEN_BOARD ? DEPTH - 1 : DEPTH;
    let best = -Infinity;
    let choice: string[] = [];
    for (const direction of openDirections(size, tiles)) {
      const value = expectation(size, slide(size, tiles, direction).tiles, depth, snake);
      if (value > best) {
        best = value;
        choice = [ACTIONS.names[direction]];
      }
    }
    return choice;
  },
};

/** The best move's value, averaged over the cells where a 2 can appear. */
function expectation(size: number, tiles: Tiles, depth: number, snake: Tiles): number {
  if (depth === 0) return evaluate(tiles, snake);
  let sum = 0;
  let cells = 0;
  for (let cell = 0; cell < tiles.length; cell++) {
    if (tiles[cell] !== 0) continue;
    const grown = tiles.with(cell, 2);
    let best = 0;
    for (const direction of openDirections(size, grown)) {
      best = Math.max(best, expectation(size, slide(size, grown, direction).tiles, depth - 1, snake));
    }
    sum += best;
    cells++;
  }
  return cells > 0 ? sum / cells : evaluate(tiles, snake);
}

function evaluate(tiles: Tiles, snake: Tiles): number {
  let value = 0;
  let empty = 0;
  for (let cell = 0; cell < tiles.length; cell++) {
    value += tiles[cell] * snake[cell];
    if (tiles[cell] === 0) empty++;
  }
  return value * (1 + empty / tiles.length);
}

function snakeWeights(size: number): number[] {
  return Array.from({ length: size * size }, (_, cell) => {
    const row = Math.floor(cell / size);
    const col = cell % size;
    return WEIGHT_RATIO ** (row * size + (row % 2 === 0 ? col : size - 1 - col));
  });
}

const START_TILES = 2;
const MAX_TILE = 2 ** 17;
/** Part of `info.rewards` for a move that changes nothing; the reward leaves it out. */
const REFUSED = -1;
/** Most characters of a board with the lines below it. */
const MAX_OBSERVATION_LENGTH = 1024;

const configSchema = closed({
  size: integerSetting(4, [3, 6], 'Rows and columns.'),
  p_two: numberSetting(0.9, [0, 1], 'Chance that a new tile is a 2; otherwise it is a 4.'),
  win_tile: integerSetting(2048, [8, MAX_TILE], 'Success is a tile of at least this value.'),
  split: splitSchema,
  max_steps: integerSetting(5000, [1], 'Moves before truncation.'),
});

const optionsSchema = closed({
  grid: Type.Optional(
    Type.Array(Type.Array(Type.Integer({ minimum: 0, maximum: MAX_TILE })), {
      description: 'Rows of tiles, 0 for an empty cell.',
    }),
  ),
  score: Type.Optional(Type.Integer({ minimum: 0, description: 'Score so far.' })),
});

type Game2048Config = Static<typeof configSchema>;
type Game2048Options = Static<typeof optionsSchema>;

/** Every tile is a word, and the score is written digit by digit. */
const VOCABULARY = [
  ...ACTIONS.names,
  ...Array.from({ length: Math.log2(MAX_TILE) }, (_, i) => String(2 ** (i + 1))),
  ...Array.from({ length: 10 }, (_, digit) => String(digit)),
  'Valid moves: ',
  'Score: ',
  ', ',
  'none',
];

export const game2048: Environment<Game2048Config, Game2048State> = {
  spec: {
    id: 'Game2048-v0',
    title: '2048',
    description: [
      'Tiles slide in one of four directions; two equal tiles that meet merge into their sum, each tile once a move. After every move that changes something a 2 (90 %) or a 4 appears on a random empty cell. The game ends when nothing can move.',
      '',
      'A move earns 0.1·log2(m + 1), where m is the sum of the tiles it made by merging. A move that changes nothing earns 0, is reported as invalid, and no tile appears.',
      'Success: a tile of at least `win_tile` (2048). The game continues after it.',
      '',
      '`info` has `score` (the sum of all merges), `merged` (of this move) and `max_tile`. `action_mask` of the structured form has a 1 for every move that changes something, by action id.',
      '',
      '`info.rewards` has the reward as `merges`, and next to it `doubled`, 1 where the largest tile became twice as large by merging, and `refused`, −1 for a move that changes nothing.',
    ].join('\n'),
    tags: ['puzzle', 'grid', 'stochastic'],
    configSchema,
    optionsSchema,
    presets: { small: { size: 3, win_tile: 128 } },
    observationSpace: { type: 'Text', maxLength: MAX_OBSERVATION_LENGTH },
    actionSpace: ACTIONS.space,
    observationFormats: ['text', 'grid', 'structured'],
    rewardRange: [0, rewardOf(36 * MAX_TILE)],
    maxEpisodeSteps: 5000,
    ends: { stuck: 'No tile could move any more' },
    exampleAction: 'Left',
    history: [{ version: 0, change: 'First version.' }],
  },

  describe: ({ size, win_tile }) => ({
    instruction: `You are playing 2048 on a ${size}×${size} board. Every move slides all tiles in one direction and merges equal tiles that meet; then a new 2 or 4 appears. Reach a tile of ${win_tile} before the board is stuck.`,
    legend: [{ symbol: '0', meaning: 'empty cell' }],
    actions: ACTIONS.names,
    vocabulary: VOCABULARY,
  }),

  observationSpaces: ({ size }) => ({
    text: text(MAX_OBSERVATION_LENGTH),
    structured: dict({
      grid: integers(0, Number.MAX_SAFE_INTEGER, size, size),
      score: COUNT,
      valid_moves: list(choice(...ACTIONS.names)),
      action_mask: { type: 'MultiBinary', shape: [ACTIONS.names.length] },
    }),
  }),

  reset({ size, p_two, win_tile, split }, rng, options) {
    const tiles = pinnedTiles(size, options) ?? startTiles(size, p_two, split, rng);
    const { score = 0 } = options as Game2048Options;
    return { size, tiles, score, p_two, win_tile };
  },

  step(state, action, rng) {
    const direction = ACTIONS.indexOf(action);
    const slid = direction < 0 ? undefined : slide(state.size, state.tiles, direction);
    if (!slid?.moved) {
      return transition(state, 0, false, { merges: 0, doubled: 0, refused: REFUSED });
    }
    const next = {
      ...state,
      tiles: spawn(slid.tiles, state.p_two, rng),
      score: state.score + slid.merged,
    };
    const doubled = Number(Math.max(...slid.tiles) > Math.max(...state.tiles));
    return transition(next, slid.merged, true, { merges: rewardOf(slid.merged), doubled, refused: 0 });
  },

  levelKey: ({ tiles }) => boardKey(tiles),

  observe({ size, tiles, score }, format) {
    const rows = Array.from({ length: size }, (_, row) => tiles.slice(row * size, (row + 1) * size));
    const open = openDirections(size, tiles).map(direction => ACTIONS.names[direction]);
    if (format === 'structured') {
      const mask = ACTIONS.names.map(name => Number(open.includes(name)));
      return { grid: rows, score, valid_moves: open, action_mask: mask };
    }
    const grid = rows.map(row => row.join(' ')).join('\n');
    if (format === 'grid') return grid;
    return `${grid}\nValid moves: ${open.join(', ') || 'none'}\nScore: ${score}`;
  },

  validActions: ({ size, tiles }) => openDirections(size, tiles).map(direction => ACTIONS.names[direction]),

  render: ({ size, tiles }) => renderTiles(size, tiles),

  references: { heuristic, random },
};

function transition(
  state: Game2048State,
  merged: number,
  moved: boolean,
  rewards: { readonly merges: number; readonly doubled: number; readonly refused: number },
): Transition<Game2048State> {
  const maxTile = Math.max(...state.tiles);
  const stuck = openDirections(state.size, state.tiles).length === 0;
  return {
    state,
    reward: rewards.merges,
    terminated: stuck,
    info: stepInfo(maxTile >= state.win_tile, moved, moved, stuck && 'stuck', {
      score: state.score,
      merged,
      max_tile: maxTile,
      rewards,
    }),
  };
}

/** A new tile on a random empty cell; after a move there always is one. */
/** Every size has boards of each split, with tiles of either kind. */
function startTiles(size: number, pTwo: number, split: Split, rng: Random): Tiles {
  for (;;) {
    let tiles: Tiles = new Array<number>(size * size).fill(0);
    for (let count = 0; count < START_TILES; count++) tiles = spawn(tiles, pTwo, rng);
    if (isInSplit(() => boardKey(tiles), split)) return tiles;
  }
}

/** Level identity of a start: the exact tiles, because small boards have too few starts up to symmetry. */
function boardKey(tiles: Tiles): string {
  return tiles.join(' ');
}

function spawn(tiles: Tiles, pTwo: number, rng: Random): Tiles {
  const empty = tiles.flatMap((tile, cell) => (tile === 0 ? [cell] : []));
  return tiles.with(rng.choice(empty), rng.chance(pTwo) ? 2 : 4);
}

function pinnedTiles(size: number, { grid }: Game2048Options): Tiles | null {
  if (!grid) return null;
  if (grid.length !== size || grid.some(row => row.length !== size)) {
    throw new InvalidOptions('/grid', `needs ${size} rows of ${size} tiles, as config.size says`);
  }
  const tiles = grid.flat();
  const odd = tiles.find(tile => tile !== 0 && (tile < 2 || !Number.isInteger(Math.log2(tile))));
  if (odd !== undefined) {
    throw new InvalidOptions('/grid', `tiles are 0 or powers of two from 2 on, not ${odd}`);
  }
  if (openDirections(size, tiles).length === 0) {
    throw new InvalidOptions('/grid', 'nothing can move on this board');
  }
  return tiles;
}

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
/** Tiles from this value on are dark enough for light digits. */
const FIRST_DARK = 32;

function renderTiles(size: number, tiles: Tiles): Picture {
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
