import { relative, resolve } from 'node:path';
import { attempted, isObject } from '../../../shared/json.ts';
import { RecentMap, remembered } from '../../../shared/remembered.ts';
import type { Annotations, ControlCommand } from '../../../shared/run-folder/requests.ts';
import {
  type EndMeanings,
  type GroupsRow,
  type LogLine,
  RUN_FILES,
} from '../../../shared/run-folder/run-files.ts';
import { shellWord, withoutCredentials } from '../../../shared/text.ts';
import { parseYaml } from '../../../shared/yaml.ts';
import {
  type EpisodeDigest,
  type FoundHits,
  type SearchQuery,
  searchFiles,
} from '../../compute/episode-digest.ts';
import type { RunGroup } from '../../compute/run-query.ts';
import { downsampled, Series, type SeriesPoints } from '../../compute/series.ts';
import { Leaderboard, type LeaderboardRow } from './leaderboard.ts';
import { GrowingFile } from './lines.ts';
import { LogTail } from './log-tail.ts';
import { type FoundRun, RunFolders, readConfig, readStatus } from './run-folders.ts';
import { RunControl } from './run-writes.ts';
import { type RunRow, type RunsQuery, type RunsReply, type RunsSummary, RunsTable } from './runs-table.ts';
import { type SignedReply, SignedResults, type SignedSettings } from './signed-results.ts';
import { type EpisodeReply, type SearchHit, Trajectories, type TrajectoryFile } from './trajectories.ts';

/** Number of runs with metrics in memory. */
const MAX_TABLES = 8;
/** Points of a metric that are handed out: two for each pixel of a wide chart. */
const MAX_POINTS = 2048;
/** Longest time of a search. */
const SEARCH_MS = 3000;

export type { RunsQuery, RunsReply, RunsSummary };

/** A run: its row, its settings, and what there is to look at. */
export interface RunDetail {
  readonly row: RunRow;
  /** Path of the run folder as a shell takes it where the server was started; absolute for a folder elsewhere. */
  readonly folder: string;
  readonly notes: readonly { readonly time: string; readonly text: string }[];
  /** The last lines of the log, oldest first. */
  readonly log: readonly LogLine[];
  readonly config: unknown;
  /** Meaning of each `ended_by`, by tag; absent in runs of older versions. */
  readonly ends?: EndMeanings;
  readonly metrics: readonly string[];
  /** First byte of the metrics file that was not read: where live rows continue. */
  readonly offset: number;
  readonly files: readonly TrajectoryFile[];
}

/** Metrics of a run. */
export interface MetricsReply {
  readonly names: readonly string[];
  readonly rows: number;
  /** First byte of the metrics file that they leave out: where live rows continue. */
  readonly offset: number;
  readonly series: { readonly [name: string]: SeriesPoints };
}

export type SearchReply = FoundHits<SearchHit>;

/**
 * All that the pages about runs show, read from a folder of run folders. It writes annotations only. Unknown runs, files and episodes
 * give undefined.
 */
export class RunReader {
  readonly #folders: RunFolders;
  readonly #table: RunsTable;
  readonly #metrics = new RecentMap<string, MetricsTable>(MAX_TABLES);
  readonly #groups = new RecentMap<string, GroupsTable>(MAX_TABLES);
  readonly #trajectories = new Trajectories();
  readonly #control = new RunControl();
  readonly #leaderboard: Leaderboard;
  readonly #signed: SignedResults;

  /**
   * @param root folder of run folders
   * @param published file of published results for the leaderboard
   * @param signed checks of signed results; without them none is listed
   */
  constructor(root: string, published?: string, signed?: SignedSettings) {
    this.#folders = new RunFolders(root);
    this.#table = new RunsTable(this.#folders);
    this.#leaderboard = new Leaderboard(this.#folders, this.#table, published);
    this.#signed = new SignedResults(this.#folders, signed);
  }

  find(id: string): Promise<FoundRun | undefined> {
    return this.#folders.find(id);
  }

  /** Runs that match the query, the latest first; all runs by default. */
  runs(query?: RunsQuery): Promise<RunsReply> {
    return this.#table.rows(query);
  }

  runGroups(by: string, q?: string): Promise<RunGroup[]> {
    return this.#table.groups(by, q);
  }

  summary(q?: string): Promise<RunsSummary> {
    return this.#table.summary(q);
  }

  /**
   * Replaces tags, note and archive mark of a run. @returns false where there is no such run
   * @throws Error of the file system
   */
  async annotate(id: string, annotations: Annotations): Promise<boolean> {
    const run = await this.find(id);
    if (run) await this.#table.annotate(run, annotations);
    return run !== undefined;
  }

  /**
   * Passes a command on to the trainer of a run. @returns false where there is no such run
   * @throws ControlRefused, and Error of the file system
   */
  async control(id: string, command: ControlCommand): Promise<boolean> {
    const run = await this.find(id);
    if (run) await this.#control.send(run, command);
    return run !== undefined;
  }

  leaderboard(): Promise<LeaderboardRow[]> {
    return this.#leaderboard.rows();
  }

  /** Signed results of the runs and what is known about them by now. @param wait for the checks that are in progress */
  signedResults({ wait = false } = {}): Promise<SignedReply> {
    return wait ? this.#signed.settled() : this.#signed.reply();
  }

  async run(id: string): Promise<RunDetail | undefined> {
    const run = await this.find(id);
    if (!run) return undefined;
    const log = new LogTail(run);
    const [row, text, status, files, metrics] = await Promise.all([
      this.row(run),
      readConfig(run),
      readStatus(run),
      this.#trajectories.files(run),
      this.table(run),
      log.refresh(),
    ]);
    return {
      row,
      folder: shellWord(shownPath(run.path)),
      notes: row.notes ?? [],
      log: log.lines,
      config: yamlOf(text),
      ...endsIn(status),
      metrics: metrics.names,
      offset: metrics.offset,
      files,
    };
  }

  /** The row of a run as it is now. */
  row(run: FoundRun): Promise<RunRow> {
    return this.#table.row(run);
  }

  /** The metrics of a run, up to date. */
  async table(run: FoundRun): Promise<MetricsTable> {
    const table = remembered(this.#metrics, run.path, () => new MetricsTable(run));
    await table.refresh();
    return table;
  }

  /**
   * @param names metrics that are wanted; all where it is undefined
   * @param most points of each: of more, the extremes of every stretch
   */
  async metrics(id: string, names?: readonly string[], most = MAX_POINTS): Promise<MetricsReply | undefined> {
    const run = await this.find(id);
    if (!run) return undefined;
    const table = await this.table(run);
    const series = (names ?? table.names).flatMap(name => {
      const points = table.series(name, most);
      return points ? [[name, points] as const] : [];
    });
    return { names: table.names, rows: table.rows, offset: table.offset, series: Object.fromEntries(series) };
  }

  /** The groups of the iterations. @param after only those of later steps */
  async groups(id: string, after?: number): Promise<readonly GroupsRow[] | undefined> {
    const run = await this.find(id);
    return run && remembered(this.#groups, run.path, () => new GroupsTable(run)).rows(after);
  }

  async files(id: string): Promise<readonly TrajectoryFile[] | undefined> {
    const run = await this.find(id);
    return run && this.#trajectories.files(run);
  }

  async episodes(id: string, file: string): Promise<readonly EpisodeDigest[] | undefined> {
    const run = await this.find(id);
    return run && this.#trajectories.digests(run, file);
  }

  async episode(id: string, file: string, index: number): Promise<EpisodeReply | undefined> {
    const run = await this.find(id);
    return run && this.#trajectories.episode(run, file, index);
  }

  /** Episodes with a text in a prompt or a response that pass the filters, a page of them. */
  async search(id: string, query: SearchQuery): Promise<SearchReply | undefined> {
    const run = await this.find(id);
    if (!run || !query.q) return run && { hits: [], complete: true };
    const files = await this.#trajectories.files(run);
    return searchFiles(files, query, SEARCH_MS, (name, first, most) =>
      this.#trajectories.search(run, name, query, { first, most }),
    );
  }
}

/** Ends in `status.json`; what is not text is left out. */
function endsIn(status: unknown): { readonly ends?: EndMeanings } {
  const entries = (value: unknown): [string, unknown][] => (isObject(value) ? Object.entries(value) : []);
  const { run } = (status ?? {}) as { readonly run?: { readonly ends?: unknown } };
  const tags = entries(run?.ends).map(([tag, meanings]) => {
    const known = entries(meanings).filter(
      (entry): entry is [string, string] => typeof entry[1] === 'string',
    );
    return [tag, Object.fromEntries(known)] as const;
  });
  return tags.length === 0 ? {} : { ends: Object.fromEntries(tags) };
}

function yamlOf(text: string | undefined): unknown {
  if (text === undefined) return null;
  return attempted(() => withoutTokens(parseYaml(withoutCredentials(text)))) ?? null;
}

/** Settings without the servers' tokens. */
function withoutTokens(config: unknown): unknown {
  const { servers } = (config ?? {}) as { readonly servers?: unknown };
  if (!Array.isArray(servers)) return config;
  const known = servers.map(server => ({ ...(server as object), token: null }));
  return { ...(config as object), servers: known };
}

/** A path from the working folder, or the absolute one where that leads out of it. */
function shownPath(path: string): string {
  const below = relative('.', path);
  return below.startsWith('..') ? resolve(path) : below;
}

/** Iterations and groups that are kept; of more, iterations are thinned out evenly. */
const MAX_ROWS = 400;
const MAX_GROUPS = 200_000;

/** The groups of a run's iterations, read once and from then on only what was appended. */
class GroupsTable {
  readonly #file: GrowingFile;
  #rows: GroupsRow[] = [];
  #last: GroupsRow | undefined;
  #groups = 0;
  /** One of this many rows is kept. */
  #every = 1;
  #seen = 0;

  constructor(run: FoundRun) {
    this.#file = new GrowingFile(run, RUN_FILES.groups, {
      add: row => this.#add(row as unknown as GroupsRow),
      clear: () => this.#clear(),
    });
  }

  /** @param after only iterations with a later step */
  async rows(after = Number.NEGATIVE_INFINITY): Promise<readonly GroupsRow[]> {
    await this.#file.refresh();
    const isKept = this.#last === undefined || this.#rows.at(-1) === this.#last;
    const rows = isKept ? this.#rows : [...this.#rows, this.#last!];
    return rows.filter(({ step }) => step > after);
  }

  #add(row: GroupsRow): void {
    if (typeof row.step !== 'number' || !Array.isArray(row.groups)) return;
    this.#last = row;
    if (this.#seen++ % this.#every !== 0) return;
    this.#rows.push(row);
    this.#groups += row.groups.length;
    while (this.#rows.length > MAX_ROWS || (this.#groups > MAX_GROUPS && this.#rows.length > 1)) {
      this.#rows = this.#rows.filter((_, i) => i % 2 === 0);
      this.#groups = this.#rows.reduce((sum, { groups }) => sum + groups.length, 0);
      this.#every *= 2;
    }
  }

  #clear(): void {
    this.#rows = [];
    this.#last = undefined;
    this.#groups = 0;
    this.#every = 1;
    this.#seen = 0;
  }
}

/** Points that a series keeps; twice as many are thinned out to as many. */
const MAX_TABLE_POINTS = 8192;
const MAX_NAMES = 4000;
const MAX_NAME_LENGTH = 300;

/** The metrics of a run, read once and from then on only what was appended. */
class MetricsTable {
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
        series = new Series(MAX_TABLE_POINTS);
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
