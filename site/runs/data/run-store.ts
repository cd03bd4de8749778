import { listText } from '../../compute/run-query.ts';
import { Series, type SeriesPoints } from '../../compute/series.ts';
import type { LogNews } from '../../server/reader/log-tail.ts';
import type { MetricsReply, RunDetail } from '../../server/reader/run-reader.ts';
import type { RunRow } from '../../server/reader/runs-table.ts';
import type { TrajectoryFile } from '../../server/reader/trajectories.ts';
import type { Source } from './source.ts';

const RECONNECT_MS = 2000;
/** Milliseconds until metrics that could not be read are requested again; doubled with each failure. */
const RETRY_MS = 1000;
const MAX_RETRY_MS = 60_000;

/** Points of a metric that stay in memory, as many as the server sends; a page may be open for days. */
const MAX_POINTS = 2048;

/** Lines of the log that stay. */
const LOG_LINES = 200;

/** Characters of names in the address of one request; servers reject addresses of 16 KiB. */
const MAX_NAMES_LENGTH = 4000;
/** Most names in one request. */
const MAX_NAMES = 200;

export type Points = SeriesPoints;

const NO_POINTS: Points = { x: [], y: [] };

/** A run with its metrics, kept up to date while a page shows it. */
export class RunStore {
  readonly id: string;
  detail: RunDetail | undefined;
  error: string | undefined;
  /** Grows when the run's files were replaced, which makes everything read so far invalid. */
  replaced = 0;
  readonly #source: Source;
  readonly #series = new Map<string, { readonly points: Series; readonly offset: number }>();
  readonly #wanted = new Set<string>();
  readonly #answered = new Set<string>();
  /** Metrics that could not be read, with the error. */
  readonly #failed = new Map<string, string>();
  readonly #listeners = new Set<() => void>();
  readonly #stop = new AbortController();
  #offset: number | undefined;
  #retry: ReturnType<typeof setTimeout> | undefined;
  /** Consecutive failures since all metrics could be read. */
  #failures = 0;

  constructor(source: Source, id: string) {
    this.#source = source;
    this.id = id;
  }

  /** Reads the run and follows it; a run that cannot be read yet is requested again. */
  async open(): Promise<void> {
    await this.#load();
    while (this.error && !this.#source.site.exported && !this.#stop.signal.aborted) {
      await new Promise(resolve => setTimeout(resolve, RECONNECT_MS));
      await this.#load();
    }
    void this.#follow();
  }

  close(): void {
    this.#stop.abort();
    clearTimeout(this.#retry);
  }

  listen(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  series(name: string): Points {
    return this.#series.get(name)?.points ?? NO_POINTS;
  }

  /** The last value of a metric; undefined without one. */
  last(name: string): number | undefined {
    return this.series(name).y.at(-1);
  }

  /** Names of metrics that match. */
  names(pattern: RegExp): string[] {
    return (this.detail?.metrics ?? []).filter(name => pattern.test(name));
  }

  /** The reason why one of these metrics could not be read; undefined where all could. */
  problemOf(names: readonly string[]): string | undefined {
    return this.#failed.size === 0 ? undefined : names.map(name => this.#failed.get(name)).find(Boolean);
  }

  /** @returns true once each of these metrics was answered, with or without values, or could not be read */
  knows(names: readonly string[]): boolean {
    return names.every(name => this.#answered.has(name) || this.#failed.has(name));
  }

  /** Reads missing metrics; those that could not be read are requested again, here at once and later. */
  async want(names: readonly string[]): Promise<void> {
    await this.#read(names.filter(name => !this.#wanted.has(name)));
  }

  async #load(): Promise<void> {
    try {
      this.detail = await this.#source.get<RunDetail>('run', { id: this.id });
      this.#offset = this.detail.offset;
      this.error = undefined;
    } catch (error) {
      this.error = (error as Error).message;
    }
    this.#changed();
  }

  async #read(names: readonly string[]): Promise<void> {
    for (const name of names) this.#wanted.add(name);
    await Promise.all(portions(names).map(portion => this.#readPortion(portion)));
  }

  async #readPortion(names: readonly string[]): Promise<void> {
    try {
      const reply = await this.#source.get<MetricsReply>('metrics', { id: this.id, names: listText(names) });
      for (const [name, { x, y }] of Object.entries(reply.series)) {
        // Values that are no numbers come as null.
        const numbers = y.map(value => value ?? Number.NaN);
        const points = new Series(MAX_POINTS, { x, y: numbers });
        this.#series.set(name, { points, offset: reply.offset });
      }
      for (const name of names) {
        this.#failed.delete(name);
        this.#answered.add(name);
      }
      if (this.#failed.size === 0) this.#failures = 0;
    } catch (error) {
      for (const name of names) {
        this.#wanted.delete(name);
        this.#failed.set(name, (error as Error).message);
      }
      this.#retryLater();
    }
    this.#changed();
  }

  #retryLater(): void {
    if (this.#retry !== undefined || this.#source.site.exported || this.#stop.signal.aborted) return;
    const wait = Math.min(RETRY_MS * 2 ** this.#failures++, MAX_RETRY_MS);
    this.#retry = setTimeout(() => {
      this.#retry = undefined;
      void this.#read([...this.#failed.keys()]);
    }, wait);
  }

  async #follow(): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted && !this.#source.site.exported) {
      try {
        await this.#source.live(
          { id: this.id, offset: this.#offset ?? 0 },
          (name, data) => this.#take(name, data),
          signal,
        );
      } catch {
        // The server disappeared or the page was left; requested again below.
      }
      await new Promise(resolve => setTimeout(resolve, RECONNECT_MS));
    }
  }

  #take(name: string, data: unknown): void {
    if (!this.detail) return;
    if (name === 'gone') this.error = 'The folder of this run is gone. What is below was read before.';
    if (name === 'row') {
      this.error = undefined;
      this.detail = { ...this.detail, row: data as RunRow, notes: (data as RunRow).notes ?? [] };
    }
    if (name === 'files') this.detail = { ...this.detail, files: data as TrajectoryFile[] };
    if (name === 'log') {
      const { lines, whole } = data as LogNews;
      this.detail = { ...this.detail, log: whole ? lines : [...this.detail.log, ...lines].slice(-LOG_LINES) };
    }
    if (name === 'metrics') this.#append(data as { rows: Record<string, unknown>[]; offset: number });
    if (name === 'replaced') {
      this.#series.clear();
      this.replaced++;
      this.#offset = (data as { offset: number }).offset;
      void this.#read([...this.#wanted]);
    }
    this.#changed();
  }

  #append({
    rows,
    offset,
  }: {
    readonly rows: readonly Record<string, unknown>[];
    readonly offset: number;
  }): void {
    const names = new Set(this.detail!.metrics);
    const known = names.size;
    for (const row of rows) {
      const step = Number(row.step);
      for (const [name, value] of Object.entries(row)) {
        if (name === 'step' || name === 'time') continue;
        names.add(name);
        if (!this.#wanted.has(name)) continue;
        const series = this.#series.get(name) ?? { points: new Series(MAX_POINTS), offset: 0 };
        this.#series.set(name, series);
        const last = series.points.x.at(-1) ?? Number.NEGATIVE_INFINITY;
        // Rows read a moment ago may come again.
        if (step < last || (step === last && offset <= series.offset)) continue;
        if (step === last && !name.startsWith('sft/')) continue;
        series.points.push(step, typeof value === 'number' ? value : Number.NaN);
      }
    }
    this.#offset = offset;
    if (names.size > known) this.detail = { ...this.detail!, metrics: [...names] };
  }

  #changed(): void {
    for (const listener of this.#listeners) listener();
  }
}

/** Names in lists that each fit the address of a request. */
function portions(names: readonly string[]): string[][] {
  const lists: string[][] = [];
  let length = Number.POSITIVE_INFINITY;
  for (const name of names) {
    const size = encodeURIComponent(listText([name, ''])).length;
    if (length + size > MAX_NAMES_LENGTH || lists.at(-1)!.length === MAX_NAMES) {
      lists.push([]);
      length = 0;
    }
    lists.at(-1)!.push(name);
    length += size;
  }
  return lists;
}
