import { clip, FormatError } from './format.ts';

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
