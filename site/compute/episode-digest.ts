import type { EpisodeRecord } from '../../shared/run-folder/run-files.ts';

/** Characters of a prompt in a list. */
const PROMPT_LENGTH = 100;

/** Summary of an episode. */
export interface EpisodeDigest {
  /** Line of the file, from 0. */
  readonly index: number;
  readonly env_id: string;
  readonly tag: string;
  readonly group_id: number;
  readonly member: number;
  /** Null where another program's file has none. */
  readonly seed: number | null;
  readonly success: boolean | null;
  readonly terminated: boolean;
  /** Name of its end; absent where none was recorded. */
  readonly ended_by?: string;
  readonly return: number | null;
  /** Sum of the format penalties; 0 or negative. */
  readonly penalty: number;
  readonly turns: number;
  /** Turns without a valid action. */
  readonly invalid: number;
  /** Sampled tokens. */
  readonly tokens: number;
  /** True if a response was cut off at the limit. */
  readonly cut: boolean;
  /** Mean advantage of its trained tokens; absent for untrained episodes. */
  readonly advantage?: number;
  readonly filter?: EpisodeRecord['filter'];
  /** Cells of the player, where the board has one. */
  readonly path?: readonly PathCell[];
  /** End of its first prompt; absent where environment and seed already identify the level. */
  readonly prompt?: string;
}

/** @param index line of its file, from 0 */
export function digestOf(record: EpisodeRecord, index: number): EpisodeDigest {
  const { turns, samples, filter } = record;
  let advantage = 0;
  let trained = 0;
  let tokens = 0;
  const path = pathOf(record);
  for (const { mask, advantages } of samples) {
    for (let t = 0; t < mask.length; t++) {
      if (!mask[t]) continue;
      tokens++;
      if (!advantages) continue;
      advantage += advantages[t];
      trained++;
    }
  }
  const { env_id, tag, group_id, member, seed, success, terminated, ended_by } = record;
  return {
    index,
    ...{ env_id, tag, group_id, member, seed, success, terminated },
    ...(ended_by === undefined ? {} : { ended_by }),
    return: record.return,
    penalty: turns.reduce((sum, turn) => sum + turn.penalty, 0),
    turns: turns.length,
    invalid: turns.filter(turn => turn.actions.length === 0).length,
    tokens,
    cut: turns.some(turn => turn.finish_reason === 'length' || turn.finish_reason === 'context'),
    ...(trained > 0
      ? { advantage: advantage / trained }
      : record.advantage === undefined
        ? {}
        : { advantage: record.advantage }),
    ...(filter ? { filter } : {}),
    ...(path ? { path } : {}),
    ...(seed === null && turns.length > 0 ? { prompt: turns[0].state.trimEnd().slice(-PROMPT_LENGTH) } : {}),
  };
}

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
