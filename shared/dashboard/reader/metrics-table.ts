import { RUN_FILES } from '../run-files.ts';
import { objectOn, readLines } from './lines.ts';
import { type FoundRun, openRunFile } from './run-folders.ts';

const MAX_ROW_BYTES = 4 * 1024 * 1024;
/** Points that a series keeps; twice as many are thinned out to as many. */
const MAX_POINTS = 8192;
const MAX_NAMES = 4000;
const MAX_NAME_LENGTH = 300;

/** Points of one metric in the order of the file: step and value; NaN for a value that is no number. */
export interface SeriesPoints {
  readonly x: readonly number[];
  readonly y: readonly number[];
}

/** One metric; of many points it keeps the least and the greatest of each few, so that no peak is lost. */
export class Series {
  x: number[] = [];
  y: number[] = [];

  push(x: number, y: number): void {
    this.x.push(x);
    this.y.push(y);
    if (this.x.length >= 2 * MAX_POINTS) this.#thinOut();
  }

  #thinOut(): void {
    const x: number[] = [];
    const y: number[] = [];
    for (let start = 0; start < this.x.length; start += 4) {
      let low = start;
      let high = start;
      for (let i = start + 1; i < Math.min(start + 4, this.x.length); i++) {
        if (this.y[i] < this.y[low]) low = i;
        if (this.y[i] > this.y[high]) high = i;
      }
      if (low === high) high = Math.min(start + 3, this.x.length - 1);
      for (const i of [Math.min(low, high), Math.max(low, high)]) {
        x.push(this.x[i]);
        y.push(this.y[i]);
      }
    }
    this.x = x;
    this.y = y;
  }
}

/** The metrics of a run, read once and from then on only what was appended. */
export class MetricsTable {
  readonly #run: FoundRun;
  #series = new Map<string, Series>();
  #rows = 0;
  /** How far the file has been read, and which file that was. */
  #offset = 0;
  #inode = 0;
  #reading: Promise<void> | undefined;

  constructor(run: FoundRun) {
    this.#run = run;
  }

  get rows(): number {
    return this.#rows;
  }

  /** First byte of `metrics.jsonl` that has not been read. */
  get offset(): number {
    return this.#offset;
  }

  get names(): string[] {
    return [...this.#series.keys()];
  }

  series(name: string): SeriesPoints | undefined {
    return this.#series.get(name);
  }

  /** Reads what was written since. */
  refresh(): Promise<void> {
    this.#reading ??= this.#read().finally(() => {
      this.#reading = undefined;
    });
    return this.#reading;
  }

  async #read(): Promise<void> {
    const file = await openRunFile(this.#run, RUN_FILES.metrics);
    if (!file) return this.#clear(0);
    try {
      // A run that resumes replaces the file by one without the rows that it will write again.
      if (file.stats.ino !== this.#inode || file.stats.size < this.#offset) this.#clear(file.stats.ino);
      this.#offset = await readLines(file.handle, this.#offset, MAX_ROW_BYTES, line => {
        const row = objectOn(line);
        if (row) this.#add(row);
      });
    } finally {
      await file.handle.close();
    }
  }

  #clear(inode: number): void {
    this.#series = new Map();
    this.#rows = 0;
    this.#offset = 0;
    this.#inode = inode;
  }

  #add(row: { readonly [key: string]: unknown }): void {
    const { step } = row;
    if (typeof step !== 'number') return;
    this.#rows++;
    for (const [name, value] of Object.entries(row)) {
      if (name === 'step') continue;
      const number = numberOf(name, value);
      if (number === undefined) continue;
      let series = this.#series.get(name);
      if (!series) {
        if (this.#series.size >= MAX_NAMES || name.length > MAX_NAME_LENGTH) continue;
        series = new Series();
        this.#series.set(name, series);
      }
      series.push(step, number);
    }
  }
}

/** A value of a row; `time` in seconds since the epoch. */
export function numberOf(name: string, value: unknown): number | undefined {
  if (typeof value === 'number') return value;
  if (typeof value !== 'string') return undefined;
  if (name === 'time') {
    const ms = Date.parse(value);
    return Number.isNaN(ms) ? undefined : ms / 1000;
  }
  return value === 'NaN' || value === 'Infinity' || value === '-Infinity' ? Number.NaN : undefined;
}
