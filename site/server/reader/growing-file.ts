import { objectOn, readLines } from './lines.ts';
import { type FoundRun, openRunFile } from './run-folders.ts';

const MAX_ROW_BYTES = 4 * 1024 * 1024;

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
    const file = await openRunFile(this.#run, this.#name);
    if (!file) return this.#clear(0);
    try {
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
    } finally {
      await file.handle.close();
    }
  }

  #clear(inode: number): void {
    this.#offset = 0;
    this.#size = 0;
    this.#inode = inode;
    this.#reader.clear();
  }
}
