import type { FileHandle } from 'node:fs/promises';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { isObject, parseShallowJson } from '../../../shared/json.ts';
import { type FoundRun, openRunFile } from './run-folders.ts';

const CHUNK_BYTES = 1024 * 1024;
const NEWLINE = 0x0a;
/** Other requests get their turn after so long. */
const SLICE_MS = 10;

/** A whole line of a file, without its end. */
export interface Line {
  /** Until `onLine` returns. Absent for a line longer than allowed, which is passed over. */
  readonly bytes?: Buffer;
  readonly start: number;
  /** Byte at which the next line starts. */
  readonly end: number;
}

/**
 * The whole lines of a file from a byte on. What comes after the last line end is half written, and left for later. Gives way
 * to other work of the process every few milliseconds.
 * @param mostBytes longest line that is handed out
 * @returns where the first line starts that is not whole yet
 */
export async function readLines(
  handle: FileHandle,
  from: number,
  mostBytes: number,
  onLine: (line: Line) => void,
): Promise<number> {
  let start = from;
  let position = from;
  let parts: Buffer[] = [];
  let length = 0;
  let slice = performance.now();
  const chunk = Buffer.allocUnsafeSlow(CHUNK_BYTES);
  for (;;) {
    const { bytesRead } = await handle.read(chunk, 0, CHUNK_BYTES, position);
    if (bytesRead === 0) return start;
    const bytes = chunk.subarray(0, bytesRead);
    let done = 0;
    for (let at = bytes.indexOf(NEWLINE); at !== -1; at = bytes.indexOf(NEWLINE, done)) {
      const end = position + at + 1;
      const rest = bytes.subarray(done, at);
      const fits = length + rest.length <= mostBytes;
      onLine({
        ...(fits ? { bytes: length === 0 ? rest : Buffer.concat([...parts, rest]) } : {}),
        start,
        end,
      });
      parts = [];
      length = 0;
      done = at + 1;
      start = end;
      if (performance.now() - slice > SLICE_MS) {
        await nextTurn();
        slice = performance.now();
      }
    }
    length += bytesRead - done;
    if (length <= mostBytes) parts.push(Buffer.from(bytes.subarray(done)));
    else parts = [];
    position += bytesRead;
  }
}

/** The JSON object on a line; undefined for anything else. */
export function objectOn(line: Line): { readonly [key: string]: unknown } | undefined {
  if (!line.bytes) return undefined;
  const value = parseShallowJson(line.bytes.toString('utf8'));
  return isObject(value) ? value : undefined;
}

export const MAX_ROW_BYTES = 4 * 1024 * 1024;

/** Receiver of the rows of a file. */
export interface RowReader {
  add(row: { readonly [key: string]: unknown }): void;
  /** The file is another one: what was read counts no more. */
  clear(): void;
}

/** A file of JSON Lines that grows: read once, and from then on only what was appended. */
export class GrowingFile {
  readonly #run: FoundRun;
  readonly #name: string;
  readonly #reader: RowReader;
  /** First byte that is not part of a whole row, size when it was read, and identity of the file. */
  #offset = 0;
  #size = 0;
  #inode = 0;
  #reading: Promise<void> | undefined;

  constructor(run: FoundRun, name: string, reader: RowReader) {
    this.#run = run;
    this.#name = name;
    this.#reader = reader;
  }

  /** First byte that has not been read. */
  get offset(): number {
    return this.#offset;
  }

  /** Reads what was written since. */
  refresh(): Promise<void> {
    this.#reading ??= this.#read().finally(() => {
      this.#reading = undefined;
    });
    return this.#reading;
  }

  async #read(): Promise<void> {
    await using file = await openRunFile(this.#run, this.#name);
    if (!file) return this.#clear(0);
    // A run that resumes replaces the file by one without the rows that it will write again.
    const { ino, size } = file.stats;
    if (ino !== this.#inode || size < this.#offset) this.#clear(ino);
    // A long row that is half written would be searched for its end again and again.
    if (size === this.#size) return;
    this.#offset = await readLines(file.handle, this.#offset, MAX_ROW_BYTES, line => {
      const row = objectOn(line);
      if (row) this.#reader.add(row);
    });
    this.#size = size;
  }

  #clear(inode: number): void {
    this.#offset = 0;
    this.#size = 0;
    this.#inode = inode;
    this.#reader.clear();
  }
}
