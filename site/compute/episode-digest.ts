import type { EpisodeChoices } from '../../shared/run-folder/episode-filter.ts';
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

/** Characters around a hit. */
const SNIPPET = 60;
/** Most hits in one reply. */
const MAX_HITS = 100;
const PLACE = /^((?:train|validation)-\d{1,9}):(\d{1,9})$/;

/** Position of a text in an episode. */
export interface TextHit {
  /** From 0. */
  readonly turn: number;
  readonly where: 'prompt' | 'response';
  /** The text around the place. */
  readonly snippet: string;
}

/** Text of a token; undefined where it is unknown. */
type TokenText = (id: number) => string | undefined;

/** The first place of a text in an episode. @param wanted in lower case */
export function findIn(record: EpisodeRecord, wanted: string, texts: TokenText): TextHit | undefined {
  for (const [turn, { state, llm_raw_response: response }] of record.turns.entries()) {
    const prompt = promptText(record, turn, texts) ?? state;
    for (const [where, text] of [
      ['prompt', prompt],
      ['response', response],
    ] as const) {
      const at = text.toLowerCase().indexOf(wanted);
      if (at === -1) continue;
      const snippet = text.slice(Math.max(0, at - SNIPPET), at + wanted.length + SNIPPET);
      return { turn, where, snippet };
    }
  }
  return undefined;
}

/** Text that a turn's prompt added to its sequence; undefined where token texts are unknown. */
function promptText({ turns, samples }: EpisodeRecord, turn: number, texts: TokenText): string | undefined {
  const { sample, tokens } = turns[turn];
  const ids = samples[sample]?.token_ids;
  if (!ids || tokens[1] === 0 || texts(ids[0]) === undefined) return undefined;
  const before = turns[turn - 1];
  const start = before?.sample === sample ? before.tokens[1] : 0;
  return ids
    .slice(start, tokens[0])
    .map(id => texts(id) ?? `<${id}>`)
    .join('');
}

/** A search: text, place and filters. */
export interface SearchQuery extends EpisodeChoices {
  /** In either case; an empty text finds nothing. */
  readonly q?: string;
  /** The file to search; all files, newest first, where it is absent. */
  readonly file?: string;
  /** Start of the next search: `next` of the previous reply. */
  readonly from?: string;
}

/** Hits in the order of their files and episodes. */
export interface FoundHits<H> {
  readonly hits: readonly H[];
  /** True if everything was searched. */
  readonly complete: boolean;
  /** Start of the next search, as its `from`; absent when everything was searched. */
  readonly next?: string;
}

/**
 * Searches file after file until a reply is full or the time is over.
 * @param searchFile returns up to this many hits of a file, starting at the episode `first`
 */
export async function searchFiles<H extends { readonly file: string; readonly index: number }>(
  all: readonly { readonly name: string; readonly step: number }[],
  { file, from = '' }: SearchQuery,
  milliseconds: number,
  searchFile: (name: string, first: number, most: number) => Promise<readonly H[]>,
): Promise<FoundHits<H>> {
  const names = all
    .filter(({ name }) => file === undefined || name === file)
    .sort((a, b) => b.step - a.step)
    .map(({ name }) => name);
  const [, startFile, startIndex] = PLACE.exec(from) ?? [];
  const until = performance.now() + milliseconds;
  const hits: H[] = [];
  for (const name of names.slice(Math.max(0, names.indexOf(startFile)))) {
    if (performance.now() > until) return { hits, complete: false, next: `${name}:0` };
    const first = name === startFile ? Number(startIndex) : 0;
    hits.push(...(await searchFile(name, first, MAX_HITS + 1 - hits.length)));
    const further = hits.at(MAX_HITS);
    if (further) {
      return { hits: hits.slice(0, MAX_HITS), complete: false, next: `${further.file}:${further.index}` };
    }
  }
  return { hits, complete: true };
}
