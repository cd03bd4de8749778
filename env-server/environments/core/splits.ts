import { RecentMap, remembered } from '../../../shared/remembered.ts';
import { choiceSetting } from './settings.ts';

/**
 * The eight rotations and mirror images of a board: for each the cells of the board in the order in which the image
 * shows them, row by row. Images of boards that are not square may have width and height exchanged.
 */
export function boardImages(rows: number, cols: number): number[][] {
  const flips = [
    (row: number, col: number) => row * cols + col,
    (row: number, col: number) => row * cols + (cols - 1 - col),
    (row: number, col: number) => (rows - 1 - row) * cols + col,
    (row: number, col: number) => (rows - 1 - row) * cols + (cols - 1 - col),
  ];
  const cells = (height: number, width: number, cellAt: (row: number, col: number) => number) =>
    Array.from({ length: height * width }, (_, i) => cellAt(Math.floor(i / width), i % width));
  return flips.flatMap(flip => [cells(rows, cols, flip), cells(cols, rows, (row, col) => flip(col, row))]);
}

/**
 * A key that a board shares with its rotations and mirror images.
 * @param symbols of the cells, row by row
 * @returns the first of the eight images in text order
 */
export function symmetricKey(rows: number, cols: number, symbols: ArrayLike<string>): string {
  const sides = [`${rows}x${cols} `, `${cols}x${rows} `];
  let first: string | undefined;
  for (const [i, image] of imagesOf(rows, cols).entries()) {
    let text = sides[i % 2];
    for (let at = 0; at < image.length; at++) text += symbols[image[at]];
    if (first === undefined || text < first) first = text;
  }
  return first!;
}

/** Images of boards with more cells are not remembered. */
const MAX_REMEMBERED_CELLS = 400;
/** Sizes with remembered images. */
const MAX_REMEMBERED = 32;
const images = new RecentMap<string, readonly number[][]>(MAX_REMEMBERED);

/** The images of small boards, which are drawn often, are made once. */
function imagesOf(rows: number, cols: number): readonly number[][] {
  if (rows * cols > MAX_REMEMBERED_CELLS) return boardImages(rows, cols);
  return remembered(images, `${rows} ${cols}`, () => boardImages(rows, cols));
}

export const SPLITS = ['any', 'train', 'validation', 'test'] as const;
export type Split = (typeof SPLITS)[number];

/** One level in ten is for validation and one for tests. */
const BUCKETS = 10;
const VALIDATION_BUCKET = 0;
const TEST_BUCKET = 1;

/** The configuration key of environments that generate their levels. */
export const splitSchema = choiceSetting(
  SPLITS,
  'any',
  'Draws only levels of this part: every level belongs to train (8 of 10), validation or test by a hash of what makes it the same, mirror images included, so the parts never overlap.',
);

export const SPLIT_PRESETS = {
  train: { split: 'train' },
  validation: { split: 'validation' },
  test: { split: 'test' },
} as const;

/** The split of a level by its text: the same on every machine. */
export function splitOf(level: string): Exclude<Split, 'any'> {
  const bucket = fnv1a(level) % BUCKETS;
  if (bucket === VALIDATION_BUCKET) return 'validation';
  return bucket === TEST_BUCKET ? 'test' : 'train';
}

/**
 * True if a level may be drawn for a split.
 * @param level makes its text, which is needed only where there is a choice
 */
export function isInSplit(level: () => string, split: Split): boolean {
  return split === 'any' || splitOf(level()) === split;
}

/** FNV-1a over UTF-16 units with a final mix, 32 bits. */
function fnv1a(text: string): number {
  let hash = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return (hash ^ (hash >>> 16)) >>> 0;
}
