import { isObject, jsonOf, parseJson } from '../../../shared/json.ts';
import type { EpisodeRecord } from '../../../shared/run-folder/run-files.ts';
import { episodeOf } from '../episode-record.ts';
import { clip, FormatError, type ReadEpisode, type Row, stepOf, type TrajectoryFormat } from './format.ts';
import { ATIF, TRL, VERIFIERS, VERIFIERS_TRACES, VERL } from './rows.ts';

/**
 * ragen's own trajectories, e.g. from another person's run folder. Without the run's `tokens.jsonl` tokens have no
 * texts.
 */
const RAGEN: TrajectoryFormat = {
  name: 'ragen',
  fields: 'turns, samples',
  recognizes: row => Array.isArray(row.turns) && Array.isArray(row.samples),
  read(row) {
    const episode = episodeOf(row);
    if (!episode) throw new FormatError('`turns` is a list');
    return { step: stepOf(row), group: `${episode.tag} ${episode.group_id} ${episode.seed}`, episode };
  },
};

/** Formats in the order in which the first row is tried; those with an unmistakable field come first. */
const FORMATS: readonly TrajectoryFormat[] = [ATIF, RAGEN, VERIFIERS_TRACES, VERL, VERIFIERS, TRL];
/** Most episodes of all files together. */
const MAX_EPISODES = 100_000;
const MAX_STEPS = 10_000;

/**
 * Receives episodes.
 * @param step training step; 0 where the file has none
 */
export type OnEpisode = (step: number, episode: EpisodeRecord) => void;

interface Group {
  readonly id: number;
  members: number;
}

/**
 * Turns rows of files into the episodes of one run: detects each file's format by its first row, and numbers groups.
 */
export class TrajectoryImport {
  readonly #onEpisode: OnEpisode;
  readonly #groups = new Map<number, Map<string, Group>>();
  readonly #formats = new Set<string>();
  #format: TrajectoryFormat | undefined;
  #episodes = 0;

  constructor(onEpisode: OnEpisode) {
    this.#onEpisode = onEpisode;
  }

  get episodes(): number {
    return this.#episodes;
  }

  /** Names of the formats found so far. */
  get formats(): readonly string[] {
    return [...this.#formats];
  }

  /** Starts the next file. */
  startFile(): void {
    this.#format = undefined;
  }

  /**
   * Adds a row.
   * @param place position of the row, for errors
   * @throws FormatError for a row that does not fit the file's format, and for too many rows
   */
  add(value: unknown, place: string): void {
    if (!isObject(value)) throw new FormatError(`${place} is not an object: ${clip(value)}`);
    this.#format ??= formatOf(value, place);
    const format = this.#format;
    if (!format.recognizes(value))
      throw new FormatError(
        `${place} is not of the format of the lines before it, ${format.name} (${format.fields}): it has ${keysOf(value)}`,
      );
    if (this.#episodes === MAX_EPISODES)
      throw new FormatError(
        `${place} is episode ${MAX_EPISODES + 1}: at most ${MAX_EPISODES} are shown at once`,
      );
    try {
      for (const read of [format.read(value)].flat() as readonly ReadEpisode[]) this.#number(format, read);
    } catch (error) {
      if (error instanceof FormatError) throw new FormatError(`${place}, ${format.name}: ${error.message}`);
      // Protects against values nested thousands of levels deep.
      if (error instanceof RangeError) throw new FormatError(`${place}, ${format.name}: nested too deeply`);
      throw error;
    }
  }

  #number(format: TrajectoryFormat, { step, group, episode }: ReadEpisode): void {
    const { id, members } = this.#memberOf(step, group);
    this.#episodes++;
    this.#formats.add(format.name);
    // ragen's own episodes keep their numbers: the rest of a group may be in other files.
    const numbered =
      format === RAGEN ? (episode as EpisodeRecord) : { ...episode, group_id: id, member: members };
    this.#onEpisode(step, numbered);
  }

  #memberOf(step: number, text: string): Group {
    let groups = this.#groups.get(step);
    if (!groups) {
      if (this.#groups.size === MAX_STEPS)
        throw new FormatError(
          `step ${step} is step ${MAX_STEPS + 1} of these files: at most ${MAX_STEPS} are shown at once`,
        );
      groups = new Map();
      this.#groups.set(step, groups);
    }
    const key = groupKey(text);
    const group = groups.get(key) ?? { id: groups.size, members: 0 };
    groups.set(key, group);
    return { id: group.id, members: group.members++ };
  }
}

function formatOf(row: Row, place: string): TrajectoryFormat {
  const found = FORMATS.find(format => format.recognizes(row));
  if (found) return found;
  const known = FORMATS.map(({ name, fields }) => `${name} (${fields})`).join(', ');
  throw new FormatError(
    `${place} is not a trajectory: it has ${keysOf(row)}; the known formats are ${known}`,
  );
}

function keysOf(row: Row): string {
  const keys = Object.keys(row);
  return keys.length === 0 ? 'no fields' : `the fields ${clip(keys)}`;
}

/** A short key that differs between prompts, so that long prompts are not kept. */
function groupKey(text: string): string {
  let [low, high] = [0xdeadbeef, 0x41c6ce57];
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i);
    low = Math.imul(low ^ code, 2_654_435_761);
    high = Math.imul(high ^ code, 1_597_334_677);
  }
  return `${text.length} ${low} ${high}`;
}

const MIB = 1024 * 1024;
const MAX_LINE_BYTES = 16 * MIB;
/** Largest file that is parsed as one JSON document. */
const MAX_DOCUMENT_BYTES = 64 * MIB;
const NEWLINE = 0x0a;

/**
 * Receives the values of a file.
 * @param place position in the file, e.g. `line 3`
 */
export type OnRow = (value: unknown, place: string) => void;

/**
 * Splits a file that arrives in pieces into values: JSON Lines, or the items of one JSON document. It decides by
 * content, not by name. Errors are {@link FormatError}s that name the line.
 */
export class RowSplitter {
  readonly #onRow: OnRow;
  #parts: Uint8Array[] = [];
  #bytes = 0;
  #line = 1;
  #kind: 'unknown' | 'lines' | 'document' = 'unknown';
  /** The error of the first line, when it is not JSON by itself. */
  #firstError = '';

  constructor(onRow: OnRow) {
    this.#onRow = onRow;
  }

  /** @throws FormatError */
  push(chunk: Uint8Array): void {
    let start = 0;
    while (this.#kind !== 'document') {
      const at = chunk.indexOf(NEWLINE, start);
      if (at === -1) break;
      this.#keep(chunk.subarray(start, at + 1));
      start = at + 1;
      this.#takeLine();
    }
    // The caller may reuse the memory of a piece.
    if (start < chunk.length) this.#keep(chunk.slice(start));
  }

  /**
   * Ends the file.
   * @returns true if its last line was incomplete and left out
   * @throws FormatError
   */
  end(): boolean {
    if (this.#bytes === 0) return false;
    if (this.#kind !== 'lines') {
      const text = this.#text('the file');
      if (text.trim() !== '') this.#rowsOf(this.#document(text));
      return false;
    }
    const text = this.#text(`line ${this.#line}`);
    if (text.trim() === '') return false;
    const value = parseJson(text);
    if (value === undefined) return true;
    this.#onRow(value, `line ${this.#line}`);
    return false;
  }

  #keep(bytes: Uint8Array): void {
    this.#bytes += bytes.length;
    if (this.#kind === 'document' && this.#bytes > MAX_DOCUMENT_BYTES)
      throw new FormatError(
        `line 1 is not JSON by itself (${this.#firstError}), and as one document it has more than ${MAX_DOCUMENT_BYTES / MIB} MiB`,
      );
    if (this.#kind !== 'document' && this.#bytes > MAX_LINE_BYTES)
      throw new FormatError(`line ${this.#line} is longer than ${MAX_LINE_BYTES / MIB} MiB`);
    this.#parts.push(bytes);
  }

  #takeLine(): void {
    const text = this.#text(`line ${this.#line}`);
    if (text.trim() !== '') this.#parseLine(text);
    if (this.#kind !== 'document') this.#line++;
  }

  #parseLine(text: string): void {
    let value: unknown;
    try {
      value = JSON.parse(text);
    } catch (error) {
      const { message } = error as Error;
      if (this.#kind === 'lines' || !/^\s*[[{]/.test(text))
        throw new FormatError(
          `line ${this.#line} is not JSON: ${message.replace(/line 1 (column \d+)/, '$1')}`,
        );
      this.#kind = 'document';
      this.#firstError = message;
      this.#keep(new TextEncoder().encode(text));
      return;
    }
    this.#kind = 'lines';
    if (Array.isArray(value)) this.#rowsOf(value);
    else this.#onRow(value, `line ${this.#line}`);
  }

  #document(text: string): unknown {
    return jsonOf(text, reason => new FormatError(`neither JSON Lines nor one JSON document: ${reason}`));
  }

  #rowsOf(value: unknown): void {
    if (!Array.isArray(value)) {
      this.#onRow(value, 'the document');
      return;
    }
    if (value.length === 0) throw new FormatError('an empty list');
    for (const [i, item] of value.entries()) this.#onRow(item, `item ${i + 1}`);
  }

  #text(place: string): string {
    const bytes = new Uint8Array(this.#bytes);
    let at = 0;
    for (const part of this.#parts) {
      bytes.set(part, at);
      at += part.length;
    }
    this.#parts = [];
    this.#bytes = 0;
    try {
      return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
    } catch {
      throw new FormatError(`${place} is not UTF-8: it begins with ${clip([...bytes.subarray(0, 8)])}`);
    }
  }
}
