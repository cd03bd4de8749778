import { closeSync, openSync, readSync } from 'node:fs';

const NANOSECONDS_PER_MS = 1e6;
const LONGEST = 128;

/** How long the main thread of a process has waited for a processor, in milliseconds (Linux; 0 elsewhere). */
export class ProcessorWait {
  readonly #file: number | undefined;
  readonly #buffer = Buffer.alloc(LONGEST);

  /** @param pid or `self` */
  constructor(pid: number | 'self') {
    this.#file = process.platform === 'linux' ? openSync(`/proc/${pid}/schedstat`, 'r') : undefined;
  }

  get ms(): number {
    if (this.#file === undefined) return 0;
    const length = readSync(this.#file, this.#buffer, 0, LONGEST, 0);
    const [, waited] = this.#buffer.toString('latin1', 0, length).split(' ');
    return Number(waited) / NANOSECONDS_PER_MS;
  }

  close(): void {
    if (this.#file !== undefined) closeSync(this.#file);
  }
}
