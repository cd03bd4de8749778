import { isEndName } from '../../../shared/end-names.ts';
import { isRow, messagesIn, promptText, turnsOf } from './chat.ts';
import {
  clip,
  episodeOf,
  FormatError,
  numberOf,
  numbersOf,
  stepOf,
  successOf,
  type TrajectoryFormat,
  textOf,
} from './format.ts';

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
    let value: unknown;
    try {
      value = JSON.parse(text);
    } catch {
      return true;
    }
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
    try {
      return JSON.parse(text);
    } catch (error) {
      throw new FormatError(`neither JSON Lines nor one JSON document: ${(error as Error).message}`);
    }
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

/** Numbers of a row that are not rewards. */
const VERL_NOT_REWARDS = ['step', 'score', 'acc'];

/**
 * verl's `trainer.rollout_data_dir` and `trainer.validation_data_dir`, which RAGEN also writes: `10.jsonl` of step 10.
 */
export const VERL: TrajectoryFormat = {
  name: 'verl',
  fields: 'input, output, score',
  recognizes: row => typeof row.input === 'string' && typeof row.output === 'string',
  read(row) {
    const prompt = messagesIn(row, 'input', 'user');
    const rewards = numbersOf(row, VERL_NOT_REWARDS);
    const tag = typeof row.data_source === 'string' ? row.data_source : undefined;
    return {
      step: stepOf(row),
      group: promptText(prompt),
      episode: episodeOf({
        format: 'verl',
        turns: turnsOf(prompt, messagesIn(row, 'output', 'assistant')),
        success: successOf(row),
        return: numberOf(row, 'score'),
        expected: row.gts,
        ...(tag === undefined ? {} : { tag }),
        ...(rewards ? { rewards } : {}),
      }),
    };
  },
};

/** Fields that distinguish a result from a row of TRL. */
const OWN_FIELDS = ['example_id', 'is_completed', 'timing', 'generation_ms', 'stop_condition'];

/** Results of Prime Intellect's verifiers: `results.jsonl` of `vf-eval --save-results`. */
export const VERIFIERS: TrajectoryFormat = {
  name: 'verifiers',
  fields: 'prompt, completion, reward, example_id',
  recognizes: row =>
    row.prompt !== undefined &&
    row.completion !== undefined &&
    OWN_FIELDS.some(name => Object.hasOwn(row, name)),
  read(row) {
    const metrics = isRow(row.metrics) ? row.metrics : {};
    const rewards = numbersOf(metrics, []);
    const tag = typeof row.task === 'string' && row.task !== '' ? row.task : undefined;
    const end = isRow(row.error) || typeof row.error === 'string' ? 'error' : row.stop_condition;
    // A rollout that failed before its first request has null for both.
    const messages = (name: string, role: string) => (row[name] === null ? [] : messagesIn(row, name, role));
    return {
      step: 0,
      group: `${tag ?? ''} ${textOf(row.example_id ?? row.prompt)}`,
      episode: episodeOf({
        format: 'verifiers',
        turns: turnsOf(messages('prompt', 'user'), messages('completion', 'assistant')),
        success: successOf({ ...metrics, ...row }),
        return: numberOf(row, 'reward'),
        expected: row.answer,
        truncated: row.is_truncated === true,
        ...(isEndName(end) ? { endedBy: end } : {}),
        ...(tag === undefined ? {} : { tag }),
        ...(rewards ? { rewards } : {}),
      }),
    };
  },
};

/** Numbers of a row that are not rewards. */
const TRL_NOT_REWARDS = ['step', 'advantage', 'reward'];

/**
 * TRL's `log_completions`: `completions/completions_00010.parquet`, or the same table as JSON Lines. Every other number
 * of a row is the reward of a function; their sum is the return unless the row has a `reward`.
 */
export const TRL: TrajectoryFormat = {
  name: 'TRL',
  fields: 'prompt, completion',
  recognizes: row => row.prompt !== undefined && row.completion !== undefined,
  read(row) {
    const prompt = messagesIn(row, 'prompt', 'user');
    const rewards = numbersOf(row, TRL_NOT_REWARDS);
    const sum = rewards && Object.values(rewards).reduce((a, b) => a + b, 0);
    const tag = typeof row.mode === 'string' ? row.mode : undefined;
    return {
      step: stepOf(row),
      group: promptText(prompt),
      episode: episodeOf({
        format: 'TRL',
        turns: turnsOf(prompt, messagesIn(row, 'completion', 'assistant')),
        success: successOf(row),
        return: numberOf(row, 'reward') ?? sum ?? null,
        advantage: numberOf(row, 'advantage'),
        ...(tag === undefined ? {} : { tag }),
        ...(rewards ? { rewards } : {}),
      }),
    };
  },
};
