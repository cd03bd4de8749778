import { downsampled, Series, type SeriesPoints } from '../compute/series.ts';
import { RUN_FILES } from '../run-files.ts';
import { objectOn, readLines } from './lines.ts';
import { type FoundRun, openRunFile } from './run-folders.ts';

const MAX_ROW_BYTES = 4 * 1024 * 1024;
/** Points that a series keeps; twice as many are thinned out to as many. */
const MAX_POINTS = 8192;
const MAX_NAMES = 4000;
const MAX_NAME_LENGTH = 300;

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

  /** @param most points that are wanted: of more, the extremes */
  series(name: string, most: number): SeriesPoints | undefined {
    const series = this.#series.get(name);
    return series && downsampled(series, most);
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
        series = new Series(MAX_POINTS);
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
