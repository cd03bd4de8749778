import type { PendingTurns, Reply } from './pending-turns.ts';
import type { SegmentWriter } from './segment-writer.ts';

/** Milliseconds after the last slow write for which the event loop waits for none. */
const SLOW_MS = 60_000;
/** Milliseconds after which a write counts as a fault and is reported. */
const HANGING_MS = 1000;

export interface LateWritesParts {
  readonly segments: SegmentWriter;
  /** A write that took longer says that the disk is slow, in milliseconds. */
  readonly slowWriteMs: number;
  /** A write has not returned for long. */
  readonly onHanging: (error: Error) => void;
}

/** Knows whether the disk is slow. While it is, records are written one write after the other while the event loop goes on. */
export class LateWrites {
  readonly #parts: LateWritesParts;
  /** Turns that are being written. */
  #turns: PendingTurns | undefined;
  /** Until then the disk counts as slow, in milliseconds of `performance.now`. */
  #slowUntil = 0;

  constructor(parts: LateWritesParts) {
    this.#parts = parts;
  }

  /** Something is being written. */
  get isWriting(): boolean {
    return this.#turns !== undefined;
  }

  /** Bytes that are being written. */
  get bytes(): number {
    return this.#turns?.frames.length ?? 0;
  }

  /** The event loop is to wait for no write. */
  get isSlow(): boolean {
    return this.#turns !== undefined || (this.#slowUntil > 0 && performance.now() < this.#slowUntil);
  }

  /** The next write is one that the event loop waits for. */
  forget(): void {
    this.#slowUntil = 0;
  }

  /** A write ends that was begun then, in milliseconds of `performance.now`. */
  measure(begun: number): void {
    const now = performance.now();
    if (now - begun > this.#parts.slowWriteMs) this.#slowUntil = now + SLOW_MS;
  }

  /** Delivers a reply after all that wait. Something must be being written. */
  deliver(reply: Reply): void {
    this.#turns!.replies.push(reply);
  }

  /**
   * Begins to write. Nothing may be being written.
   * @param from offset of the first byte that is not in the segment
   * @param done called with the reason if not all are written, and where it stopped; not called for what was taken back
   */
  begin(turns: PendingTurns, from: number, done: (error: Error | null, end: number) => void): void {
    const { segments, onHanging } = this.#parts;
    this.#turns = turns;
    const begun = performance.now();
    const hanging = setTimeout(() => {
      const error = Object.assign(new Error('a write has not returned'), { code: 'ETIMEDOUT' });
      if (this.#turns === turns) onHanging(error);
    }, HANGING_MS).unref();
    segments.writeLater(turns.frames, from, (error, end) => {
      clearTimeout(hanging);
      this.measure(begun);
      if (this.#turns !== turns) return;
      this.#turns = undefined;
      done(error, end);
    });
  }

  /** The segment is left: gives what is being written. */
  takeBack(): PendingTurns[] {
    const turns = this.#turns;
    this.#turns = undefined;
    return turns ? [turns] : [];
  }
}
