import type { Tiles } from './rules.ts';

export type Game2048State = {
  readonly size: number;
  readonly tiles: Tiles;
  /** Sum of all tiles that merging has made. */
  readonly score: number;
  readonly p_two: number;
  readonly win_tile: number;
};
