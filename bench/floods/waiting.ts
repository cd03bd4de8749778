import { closeSync, openSync, readSync } from 'node:fs';

const NANOSECONDS_PER_MS = 1e6;
/** Tick of the kernel's count of stolen time: `USER_HZ` is 100 on x86 and ARM. */
const MS_PER_TICK = 10;
const LONGEST = 128;
/** Bytes of `/proc/stat` that hold the lines of up to about a hundred processors. */
const LONGEST_STAT = 16_384;

/** Time for which the main thread of a process has waited for a processor, in milliseconds (Linux; 0 elsewhere). */
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

/**
 * How long a hypervisor ran others on this machine's processors while they had work, in milliseconds (Linux; 0 elsewhere).
 * A request runs on one of them at a time, so the most of any one is what it may have lost.
 */
export class StolenTime {
  readonly #file: number | undefined;
  readonly #buffer = Buffer.alloc(LONGEST_STAT);

  constructor() {
    this.#file = process.platform === 'linux' ? openSync('/proc/stat', 'r') : undefined;
  }

  /** Stolen time of each processor since the machine started. */
  get ms(): readonly number[] {
    if (this.#file === undefined) return [];
    const length = readSync(this.#file, this.#buffer, 0, LONGEST_STAT, 0);
    return stolenOf(this.#buffer.toString('latin1', 0, length));
  }

  /** The most that one processor lost since an earlier reading. */
  since(earlier: readonly number[]): number {
    return Math.max(0, ...this.ms.map((ms, i) => ms - (earlier[i] ?? ms)));
  }

  close(): void {
    if (this.#file !== undefined) closeSync(this.#file);
  }
}

/**
 * What each processor lost to others of its host.
 * @param stat text of `/proc/stat`
 * @returns milliseconds since the machine started
 */
export function stolenOf(stat: string): number[] {
  // cpuN user nice system idle iowait irq softirq steal …
  return [...stat.matchAll(/^cpu\d+((?: \d+)+)/gm)].map(([, counts]) => {
    const ticks = counts.trim().split(' ').map(Number);
    return (ticks[7] ?? 0) * MS_PER_TICK;
  });
}
