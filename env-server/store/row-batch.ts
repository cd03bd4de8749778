import type { SessionChanges } from '../persistence/session-rows.ts';

/** Milliseconds for which rows are gathered, and their characters, before they are written. */
const SLICE_MS = 4;
const SLICE_LENGTH = 512 * 1024;
const TABLES = [
  'putParts',
  'put',
  'removeParts',
  'ended',
  'replies',
  'removeReplies',
  'droppedKeys',
] as const;

type Table = (typeof TABLES)[number];
type Row<T extends Table> = NonNullable<SessionChanges[T]> extends Iterable<infer R> ? R : never;

/** Rows of the next transaction, and what is to be done when it has succeeded. */
export class RowBatch {
  #rows = rowsOf();
  #length = 0;
  #end = performance.now() + SLICE_MS;
  #written: (() => void)[] = [];

  /** @returns true when what was gathered is to be written before more is */
  add<T extends Table>(table: T, row: Row<T>, length = 0): boolean {
    (this.#rows[table] as Row<T>[]).push(row);
    this.#length += length;
    return this.#length >= SLICE_LENGTH || performance.now() >= this.#end;
  }

  /** Called when the rows that are there by now are written. */
  onWritten(written: () => void): void {
    this.#written.push(written);
  }

  /** The rows, and what is to be called when they are written; others are gathered from now on. */
  take(): { readonly rows: SessionChanges; written(): void } {
    const [rows, written] = [this.#rows, this.#written];
    this.#rows = rowsOf();
    this.#written = [];
    this.#length = 0;
    this.#end = performance.now() + SLICE_MS;
    return {
      rows,
      written() {
        for (const each of written) each();
      },
    };
  }
}

function rowsOf(): { [T in Table]: Row<T>[] } {
  return Object.fromEntries(TABLES.map(table => [table, []])) as never;
}
