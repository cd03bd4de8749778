import { namedActions } from '../core/actions.ts';

/** Ids follow the clock: 0 Up, 1 Right, 2 Down, 3 Left. */
export const ACTIONS = namedActions(['Up', 'Right', 'Down', 'Left'], 0);

/** Row-major tile values; 0 is empty. */
export type Tiles = readonly number[];

export type Game2048State = {
  readonly size: number;
  readonly tiles: Tiles;
  /** Sum of all tiles that merging has made. */
  readonly score: number;
  readonly p_two: number;
  readonly win_tile: number;
};

export interface SlideResult {
  readonly tiles: Tiles;
  /** Sum of the tiles that merging made. */
  readonly merged: number;
  readonly moved: boolean;
}

const linesOf = new Map<number, readonly (readonly number[])[][]>();

/** For each direction the lines of cells, each from the edge that tiles slide to. */
function lines(size: number): readonly (readonly number[])[][] {
  const known = linesOf.get(size);
  if (known) return known;
  const range = Array.from({ length: size }, (_, index) => index);
  const left = range.map(row => range.map(col => row * size + col));
  const up = range.map(col => range.map(row => row * size + col));
  const all = [up, left.map(line => line.toReversed()), up.map(line => line.toReversed()), left];
  linesOf.set(size, all);
  return all;
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

/** Directions, as indices, in which something moves. */
export function openDirections(size: number, tiles: Tiles): number[] {
  return [0, 1, 2, 3].filter(direction => slide(size, tiles, direction).moved);
}

/** 0.1·log2(merged + 1), RAGEN's log reward. */
export function rewardOf(merged: number): number {
  return merged > 0 ? 0.1 * Math.log2(merged + 1) : 0;
}
