import { hostname } from 'node:os';
import { attempted, isObject } from '../../../shared/json.ts';
import { isAlive } from '../../../shared/run-folder/is-alive.ts';
import type { Annotations } from '../../../shared/run-folder/requests.ts';
import {
  RUN_FILES,
  RUN_STATES,
  type RunDescription,
  type RunNote,
  SILENT_MS,
  type ValidationPoint,
} from '../../../shared/run-folder/run-files.ts';
import { withoutCredentials } from '../../../shared/text.ts';
import { parseYaml } from '../../../shared/yaml.ts';
import { type Outcome, outcomeOf, type Verdict } from '../../compute/outcome.ts';
import {
  groupRuns,
  parseRunQuery,
  type RunGroup,
  runMatcher,
  runOrder,
  settingKeys,
} from '../../compute/run-query.ts';
import type { SettingValue } from '../../compute/settings-text.ts';
import { type FoundRun, mapped, type RunFolders, readConfig, readStatus } from './run-folders.ts';
import { RunSettings } from './run-settings.ts';
import { RunAnnotations } from './run-writes.ts';

const MAX_TEXT_LENGTH = 300;
/** Validations of a row of the table, enough for its small curve. */
const MAX_ROW_VALIDATIONS = 100;
/** Names that are read of a list of names, such as a run's recipes. */
const MAX_NAMES = 200;
/** Latest runs with settings that a summary names. */
const MAX_SAMPLED = 200;

/** State of a run according to its files; `unknown` for runs of earlier versions without an outcome. */
type ShownState = Exclude<Outcome, Verdict>;

/** A row of the table of runs. */
export interface RunRow {
  readonly id: string;
  readonly state: ShownState;
  readonly stage: string;
  readonly step: number;
  readonly steps: number;
  readonly eta_s: number | null;
  /** Milliseconds since the epoch. */
  readonly started: number | null;
  readonly updated: number;
  /** Seconds of training. */
  readonly seconds: number;
  readonly validations: readonly ValidationPoint[];
  readonly run: RunDescription;
  readonly last_error: RunNote | null;
  /** The last lines that the trainer noted. */
  readonly notes?: readonly RunNote[];
  /** Absent where nobody wrote any. */
  readonly annotations?: Annotations;
  /** The settings that were requested. */
  readonly settings?: { readonly [key: string]: SettingValue };
}

/** Which rows are wanted. */
export interface RunsQuery {
  readonly offset?: number;
  readonly limit?: number;
  /** Words and terms that must all hold, e.g. `lake group_size>1 tag:baseline`. */
  readonly q?: string;
  /** Field or setting to order by, `-` before it for the greatest first; the latest sign of life first where it is empty. */
  readonly sort?: string;
  /** Settings that the rows have; all where it is `all`. */
  readonly settings?: readonly string[] | 'all';
}

export interface RunsReply {
  /** All runs, and those that match. */
  readonly total: number;
  readonly matching: number;
  /** Index of the first row among those that match. */
  readonly offset: number;
  readonly rows: readonly RunRow[];
}

/** Numbers and names for the controls of the table. */
export interface RunsSummary {
  /** Runs that match the query, by outcome. */
  readonly outcomes: { readonly [outcome in Outcome]?: number };
  readonly archived: number;
  /** Tags of all runs, the most frequent first. */
  readonly tags: readonly string[];
  /** Settings of all runs, those that differ first. */
  readonly settings: readonly string[];
}

/** The table of runs: status files are read again only when they have changed. */
export class RunsTable {
  readonly #folders: RunFolders;
  readonly #annotations = new RunAnnotations();
  readonly #settings = new RunSettings();
  readonly #known = new Map<string, KnownRow>();
  #sorted: { readonly found: ReadonlyMap<string, FoundRun>; readonly runs: readonly FoundRun[] } | undefined;

  constructor(folders: RunFolders) {
    this.#folders = folders;
  }

  /** Rows, the run that gave a sign last first. Reads no more files than the rows that are wanted need. */
  async rows({ offset = 0, limit, q = '', sort = '', settings = [] }: RunsQuery = {}): Promise<RunsReply> {
    const latest = await this.#latest();
    const end = limit === undefined ? undefined : offset + limit;
    const isPlain = q.trim() === '' && sort === '';
    const matching = isPlain
      ? await this.#unarchived(latest)
      : (await this.#matching(latest, q, sort)).map(({ run }) => run);
    const rows = await mapped(matching.slice(offset, end), async run => {
      const whole = await this.row(run);
      const row = { ...whole, validations: thinned(whole.validations), notes: undefined };
      return settings.length === 0 ? row : { ...row, settings: await this.#settingsOf(run, settings) };
    });
    return { total: latest.length, matching: matching.length, offset, rows };
  }

  /** Groups of the runs that match, by a field or setting. */
  async groups(by: string, q = ''): Promise<RunGroup[]> {
    const matching = await this.#matching(await this.#latest(), q, '', by);
    const rows = matching.map(({ row }) => row);
    return groupRuns(rows, by, (row, key) => this.#settings.value(row.id, key));
  }

  async summary(q = ''): Promise<RunsSummary> {
    const latest = await this.#latest();
    const outcomes: { [outcome in Outcome]?: number } = {};
    const withoutState = q.replace(/(?:^|\s)state[:=]\S+/g, '');
    for (const { row } of await this.#matching(latest, withoutState, '')) {
      const outcome = outcomeOf(row);
      outcomes[outcome] = (outcomes[outcome] ?? 0) + 1;
    }
    const annotated = await mapped(latest, run => this.#annotations.of(run));
    const counts = new Map<string, number>();
    for (const tag of annotated.flatMap(({ tags }) => tags)) counts.set(tag, (counts.get(tag) ?? 0) + 1);
    await this.#settings.read(latest.slice(0, MAX_SAMPLED));
    return {
      outcomes,
      archived: annotated.filter(({ archived }) => archived).length,
      tags: [...counts].sort((a, b) => b[1] - a[1] || a[0].localeCompare(b[0])).map(([tag]) => tag),
      settings: this.#settings.keys(),
    };
  }

  /** Replaces the annotations of a run. @throws Error of the file system */
  async annotate(run: FoundRun, annotations: Annotations): Promise<void> {
    await this.#annotations.write(run, annotations);
    await this.#folders.refresh(run);
  }

  /** Runs that match a query, in the order of `sort`, with their rows as they are now. */
  async #matching(runs: readonly FoundRun[], q: string, sort: string, by = '') {
    const query = parseRunQuery(q);
    const needed = settingKeys(query, sort.replace(/^-/, ''), by);
    if (needed.length > 0) await this.#settings.read(runs);
    const setting = (row: RunRow, key: string) => this.#settings.value(row.id, key);
    const matches = runMatcher(query, setting);
    const rows = await mapped(runs, async run => ({ run, row: await this.row(run) }));
    const found = rows.filter(({ row }) => matches(row));
    if (sort !== '') {
      const order = runOrder(sort, setting);
      found.sort((a, b) => order(a.row, b.row));
    }
    return found;
  }

  async #unarchived(runs: readonly FoundRun[]): Promise<readonly FoundRun[]> {
    if (runs.every(({ annotatedMs }) => annotatedMs === undefined)) return runs;
    const annotations = await mapped(runs, run => this.#annotations.of(run));
    return runs.filter((_, i) => !annotations[i].archived);
  }

  async #settingsOf(run: FoundRun, wanted: readonly string[] | 'all') {
    await this.#settings.read([run]);
    if (wanted === 'all') return this.#settings.all(run.id);
    const values = wanted.map(key => [key, this.#settings.value(run.id, key)] as const);
    return Object.fromEntries(
      values.filter((entry): entry is [string, SettingValue] => entry[1] !== undefined),
    );
  }

  /** All runs in their order, sorted once for each time that they are listed. */
  async #latest(): Promise<readonly FoundRun[]> {
    const found = await this.#folders.list();
    if (this.#sorted?.found !== found) {
      for (const id of this.#known.keys()) {
        if (found.has(id)) continue;
        this.#known.delete(id);
        this.#annotations.forget(id);
        this.#settings.forget(id);
      }
      this.#sorted = { found, runs: [...found.values()].sort((a, b) => b.changedMs - a.changedMs) };
    }
    return this.#sorted.runs;
  }

  /** The row of a run as it is now. */
  async row(run: FoundRun): Promise<RunRow> {
    const known = this.#read(run);
    const row = withLife(await known.row, known);
    return run.annotatedMs === undefined ? row : { ...row, annotations: await this.#annotations.of(run) };
  }

  #read(run: FoundRun): KnownRow {
    const known = this.#known.get(run.id);
    const now = Date.now();
    if (known?.changedMs === run.changedMs) {
      known.lookedMs = now;
      return known;
    }
    const row = run.hasStatus ? rowOfStatus(run) : rowOfConfig(run);
    const aliveMs = known?.lookedMs ?? 0;
    const read = { changedMs: run.changedMs, seenMs: now, aliveMs, lookedMs: now, row };
    this.#known.set(run.id, read);
    return read;
  }
}

interface KnownRow {
  readonly changedMs: number;
  /** When this change was found, by the clock of this machine. */
  readonly seenMs: number;
  /** The last look before this change, so that the run lived after it; 0 at the first look. */
  readonly aliveMs: number;
  /** The last look that found this change. */
  lookedMs: number;
  readonly row: Promise<OwnedRow>;
}

/** A row with the process that wrote it. */
type OwnedRow = RunRow & {
  readonly pid?: number;
  readonly pidStart?: string | null;
  readonly host?: string;
};

/** The state of a run, seen now: one that says it runs may have died. The clock of its machine may be fast or slow. */
function withLife({ pid, pidStart, host, ...row }: OwnedRow, { seenMs, aliveMs }: KnownRow): RunRow {
  if (row.state !== 'running') return row;
  const here = host === hostname() && pid !== undefined;
  const lastSign = Math.max(Math.min(row.updated, seenMs), aliveMs);
  const alive = here ? isAlive(pid, pidStart) : Date.now() - lastSign < SILENT_MS;
  return alive ? row : { ...row, state: 'stalled' };
}

async function rowOfStatus(run: FoundRun): Promise<OwnedRow> {
  const status = await readStatus(run);
  if (typeof status?.run !== 'object') return emptyRow(run);
  return {
    ...emptyRow(run),
    state: RUN_STATES.find(state => state === status.state) ?? 'unknown',
    stage: text(status.stage),
    step: count(status.step),
    steps: count(status.steps),
    eta_s: typeof status.eta_s === 'number' ? status.eta_s : null,
    started: timeOf(status.started_at) ?? null,
    updated: timeOf(status.updated_at) ?? run.changedMs,
    seconds: count(status.seconds),
    validations: points(status.validations),
    run: description(run, status.run),
    last_error: note(status.last_error),
    notes: list(status.notes).flatMap(item => note(item) ?? []),
    pid: count(status.pid),
    pidStart: typeof status.pid_start === 'string' ? status.pid_start : null,
    host: text(status.host),
  };
}

/** Row of a run of an earlier version, without `status.json`. */
async function rowOfConfig(run: FoundRun): Promise<RunRow> {
  const row = emptyRow(run);
  const config = await readConfig(run);
  const summary: { readonly [key: string]: unknown } | undefined = await readStatus(run, RUN_FILES.summary);
  const settings = attempted(() => (parseYaml(config ?? '') ?? {}) as { readonly [key: string]: unknown });
  if (settings === undefined) return row;
  const of = (value: unknown) => (value ?? {}) as { readonly [key: string]: unknown };
  const ended = summary?.ended;
  return {
    ...row,
    state: ended === undefined ? 'unknown' : ended === 'stopped' ? 'stopped' : 'finished',
    step: count(summary?.step),
    steps: count(of(settings.training).steps),
    seconds: count(summary?.seconds),
    validations: points([summary?.before, summary?.after].filter(point => point !== undefined)),
    run: description(run, {
      recipe: settings.recipe,
      advantage: of(settings.algorithm).advantage,
      seed: settings.seed,
      model: of(settings.policy).init,
      tags: (Array.isArray(settings.train_tags) ? settings.train_tags : []).map(tag => ({
        ...of(of(settings.tags)[String(tag)]),
        tag,
      })),
    }),
  };
}

function emptyRow(run: FoundRun): RunRow {
  return {
    id: run.id,
    state: 'unknown',
    stage: '',
    step: 0,
    steps: 0,
    eta_s: null,
    started: null,
    updated: run.changedMs,
    seconds: 0,
    validations: [],
    run: description(run, {}),
    last_error: null,
  };
}

function description(run: FoundRun, value: unknown): RunDescription {
  const given = (value ?? {}) as { readonly [key in keyof RunDescription]?: unknown };
  return {
    name: text(given.name) || run.id,
    ...(typeof given.format === 'string' ? { format: text(given.format) } : {}),
    recipe: names(given.recipe).map(item => text(item)),
    advantage: text(given.advantage),
    seed: count(given.seed),
    model: text(given.model),
    parameters: typeof given.parameters === 'number' ? given.parameters : null,
    ...(Array.isArray(given.changed) ? { changed: names(given.changed).map(item => text(item)) } : {}),
    tags: names(given.tags).map(item => {
      const tag = (item ?? {}) as { readonly [key: string]: unknown };
      return {
        tag: text(tag.tag),
        env_id: text(tag.env_id),
        config: (isObject(tag.config) ? tag.config : {}) as RunDescription['tags'][0]['config'],
        random: share(tag.random ?? tag.random_success) ?? null,
        optimum: share(tag.optimum ?? tag.optimum_success) ?? null,
      };
    }),
  };
}

function points(value: unknown): ValidationPoint[] {
  return list(value).flatMap(item => {
    const point = (item ?? {}) as { readonly [key: string]: unknown };
    const success = share(point.success);
    if (success === undefined || typeof point.step !== 'number') return [];
    const [low, high] = [share(point.low), share(point.high)];
    return [{ step: point.step, success, ...(low === undefined || high === undefined ? {} : { low, high }) }];
  });
}

/** The first, the last, and some evenly chosen between them: one run of many validations slows no table. */
function thinned(points: readonly ValidationPoint[]): readonly ValidationPoint[] {
  const most = MAX_ROW_VALIDATIONS;
  if (points.length <= most) return points;
  return Array.from({ length: most }, (_, i) => points[Math.round((i * (points.length - 1)) / (most - 1))]);
}

function note(value: unknown): RunNote | null {
  const given = value as { readonly time?: unknown; readonly text?: unknown } | null | undefined;
  return typeof given === 'object' && given !== null
    ? { time: text(given.time), text: withoutCredentials(text(given.text, 4000)) }
    : null;
}

const list = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : []);
const names = (value: unknown): readonly unknown[] => list(value).slice(0, MAX_NAMES);
const text = (value: unknown, most = MAX_TEXT_LENGTH): string =>
  typeof value === 'string' ? value.slice(0, most) : '';
const count = (value: unknown): number => (typeof value === 'number' && Number.isFinite(value) ? value : 0);
const share = (value: unknown): number | undefined =>
  typeof value === 'number' && value >= 0 && value <= 1 ? value : undefined;

function timeOf(value: unknown): number | undefined {
  const ms = typeof value === 'string' ? Date.parse(value) : Number.NaN;
  return Number.isNaN(ms) ? undefined : ms;
}
