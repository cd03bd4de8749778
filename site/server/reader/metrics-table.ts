import { RUN_FILES } from '../../../shared/run-folder/run-files.ts';
import { downsampled, Series, type SeriesPoints } from '../../compute/series.ts';
import { GrowingFile } from './growing-file.ts';
import type { FoundRun } from './run-folders.ts';

/** Points that a series keeps; twice as many are thinned out to as many. */
const MAX_POINTS = 8192;
const MAX_NAMES = 4000;
const MAX_NAME_LENGTH = 300;

/** The metrics of a run, read once and from then on only what was appended. */
export class MetricsTable {
  readonly #file: GrowingFile;
  #series = new Map<string, Series>();
  #rows = 0;

  constructor(run: FoundRun) {
    this.#file = new GrowingFile(run, RUN_FILES.metrics, {
      add: row => this.#add(row),
      clear: () => {
        this.#series = new Map();
        this.#rows = 0;
      },
    });
  }

  get rows(): number {
    return this.#rows;
  }

  /** First byte of `metrics.jsonl` that has not been read. */
  get offset(): number {
    return this.#file.offset;
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
    return this.#file.refresh();
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
function numberOf(name: string, value: unknown): number | undefined {
  if (typeof value === 'number') return value;
  if (typeof value !== 'string') return undefined;
  if (name === 'time') {
    const ms = Date.parse(value);
    return Number.isNaN(ms) ? undefined : ms / 1000;
  }
  return value === 'NaN' || value === 'Infinity' || value === '-Infinity' ? Number.NaN : undefined;
}
