import type { EpisodeRecord } from '../../shared/run-folder/run-files.ts';

/** [row, col], counted from 0. */
export type PathCell = readonly [row: number, col: number];

/** A longer path is a knot that shows nothing. */
const MAX_CELLS = 200;

/** Cells of the player from the first state to the last; undefined on boards without one, and for longer paths. */
export function pathOf({ turns, final_structured: last }: EpisodeRecord): readonly PathCell[] | undefined {
  const path: PathCell[] = [];
  for (const state of turns
    .flatMap(({ structured, between = [] }) => [structured, ...between])
    .concat(last)) {
    const cell = playerOf(state);
    if (!cell || path.length > MAX_CELLS) return undefined;
    const before = path.at(-1);
    if (cell[0] !== before?.[0] || cell[1] !== before[1]) path.push(cell);
  }
  return path;
}

/** The player's cell in a structured state; undefined where it has none. */
export function playerOf(state: unknown): PathCell | undefined {
  const player: unknown = (state as { readonly player?: unknown } | null | undefined)?.player;
  if (!Array.isArray(player) || player.length !== 2 || !player.every(Number.isInteger)) return undefined;
  return [player[0], player[1]];
}
