import { write, writeSync } from 'node:fs';
import { counted } from './text.ts';

/** Buffer for a stalled reader, in UTF-16 units; later lines are dropped and counted. */
const MAX_KEPT = 2 ** 20;
const RETRY_MS = 100;
/** Errors that pass: a full pipe, or a full disk under a file. */
const PASSING = new Set(['EAGAIN', 'ENOSPC', 'EDQUOT']);

/**
 * Standard output or error as a log destination that never blocks the process. A stalled reader or a full disk loses
 * the lines beyond a mebibyte; a closed reader loses all later lines. On exit it writes what the destination
 * takes at once.
 */
export class LogOutput {
  readonly #fd: number;
  #lines: string[] = [];
  #kept = 0;
  #dropped = 0;
  /** The chunk in progress, and where its unwritten part begins. */
  #chunk: Buffer = Buffer.alloc(0);
  #busy = false;
  #gone = false;

  constructor(stream: NodeJS.WriteStream & { readonly fd: number }) {
    // Node makes a pipe non-blocking when it creates the stream; reading the property here does that.
    this.#fd = stream.fd;
    process.once('exit', () => this.#finish());
  }

  write(line: string): void {
    if (this.#gone) return;
    if (this.#kept + line.length > MAX_KEPT) {
      this.#dropped++;
      return;
    }
    this.#lines.push(line);
    this.#kept += line.length;
    if (!this.#busy) this.#next();
  }

  #next(): void {
    if (this.#chunk.length === 0) this.#chunk = this.#take();
    this.#busy = this.#chunk.length > 0;
    if (!this.#busy) return;
    write(this.#fd, this.#chunk, (error, written) => {
      if (error === null) this.#chunk = this.#chunk.subarray(written);
      else if (PASSING.has(error.code ?? '')) {
        setTimeout(() => this.#next(), RETRY_MS).unref();
        return;
      } else {
        this.#gone = true;
        this.#lines = [];
        return;
      }
      this.#next();
    });
  }

  #take(): Buffer {
    if (this.#dropped > 0) {
      const msg = `the log lacks ${counted(this.#dropped, 'line')} here: nobody read them`;
      this.#lines.push(`${JSON.stringify({ level: 40, time: Date.now(), msg })}\n`);
      this.#dropped = 0;
    }
    const text = this.#lines.join('');
    this.#lines = [];
    this.#kept = 0;
    return Buffer.from(text);
  }

  #finish(): void {
    if (this.#gone) return;
    try {
      for (let rest = Buffer.concat([this.#chunk, this.#take()]); rest.length > 0; ) {
        rest = rest.subarray(writeSync(this.#fd, rest));
      }
    } catch {
      // The reader is gone.
    }
  }
}

/**
 * Keeps the process alive when the reader of its output is gone or the disk is full: output that cannot be written is
 * lost.
 */
export function outliveReaders(): void {
  for (const stream of [process.stdout, process.stderr]) stream.on('error', () => {});
}
