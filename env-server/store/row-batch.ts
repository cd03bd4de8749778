import type { RowWrite } from '../persistence/session-rows.ts';

/** Milliseconds for which changes are gathered, and their characters, before they are written. */
const SLICE_MS = 4;
const SLICE_LENGTH = 512 * 1024;

/** Changes of the next transaction, and callbacks for its success. */
export class RowBatch {
  #changes: RowWrite[] = [];
  #length = 0;
  #end = performance.now() + SLICE_MS;
  #written: (() => void)[] = [];

  /**
   * @param length characters to be written
   * @returns true when the gathered changes must be written first
   */
  add(change: RowWrite, length = 0): boolean {
    this.#changes.push(change);
    this.#length += length;
    return this.#length >= SLICE_LENGTH || performance.now() >= this.#end;
  }

  /** Calls back when the changes gathered so far are written. */
  onWritten(written: () => void): void {
    this.#written.push(written);
  }

  /** The changes with their callbacks; a new batch begins. */
  take(): { readonly changes: readonly RowWrite[]; readonly written: readonly (() => void)[] } {
    const taken = { changes: this.#changes, written: this.#written };
    this.#changes = [];
    this.#written = [];
    this.#length = 0;
    this.#end = performance.now() + SLICE_MS;
    return taken;
  }
}
