import { write, writeSync } from 'node:fs';

/** Buffer for a reader that does not read, in UTF-16 units; later lines are dropped and counted. */
const MAX_KEPT = 2 ** 20;
const RETRY_MS = 100;
/** Why nothing can be written for now: a full pipe, a full disk under a file. */
const PASSING = new Set(['EAGAIN', 'ENOSPC', 'EDQUOT']);

/**
 * Standard output or error as the destination of a log that holds nobody up: a reader that pauses or a full disk costs lines
 * beyond a mebibyte, a reader that is gone costs all later ones, and none of them the process. At its end what can be written
 * at once is.
 */
export class LogOutput {
  readonly #fd: number;
  #lines: string[] = [];
  #kept = 0;
  #dropped = 0;
  /** In progress, from where it is not written yet. */
  #chunk: Buffer = Buffer.alloc(0);
  #busy = false;
  #gone = false;

  constructor(stream: NodeJS.WriteStream & { readonly fd: number }) {
    // Node opens a pipe without blocking when its stream is made, which naming it here has done.
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
      const msg = `${this.#dropped} lines of the log were dropped: nobody read them`;
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
      // Nobody reads.
    }
  }
}

/** Lets the process outlive the reader of its output, and a full disk under it: what cannot be written is lost. */
export function outliveReaders(): void {
  for (const stream of [process.stdout, process.stderr]) stream.on('error', () => {});
}
