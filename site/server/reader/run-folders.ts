import { closeSync, constants, fstatSync, lstatSync, openSync, readFileSync, type Stats } from 'node:fs';
import { type FileHandle, lstat, open, readdir, realpath } from 'node:fs/promises';
import { join, sep } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { atEnd, closing } from '../../../shared/closing.ts';
import { attempted, parseShallowJson } from '../../../shared/json.ts';
import { RUN_FILES, type RunStatus } from '../../../shared/run-folder/run-files.ts';
import { mapConcurrently } from '../../../shared/scheduling/queues.ts';

/** Folders below the root in which runs are looked for: `runs/run`, `runs/sweep/run`, `runs/sweeps/sweep/run`. */
const DEEPEST = 3;
const MAX_RUNS = 20_000;
/** Folders that are looked at while none of them holds a run. */
const MAX_FOLDERS = 50_000;
/** Files that are looked at at once. */
const CONCURRENCY = 64;
/** Other work of the process gets its turn after so long. */
const SLICE_MS = 10;
/** The list is made again when it is older than this, and than this many times what making it takes. */
const LIST_AGE_MS = 1000;
const LIST_AGE_PER_SEARCH = 20;

/** A run that was found: its path below the root with slashes, which is its id, and when it last gave a sign. */
export interface FoundRun {
  readonly id: string;
  readonly path: string;
  /** Change of `status.json`, or of `config.yaml` in runs of earlier versions; milliseconds since the epoch. */
  readonly changedMs: number;
  readonly hasStatus: boolean;
  /** Change of `annotations.json`; undefined where there is none. */
  readonly annotatedMs: number | undefined;
}

/**
 * The run folders below one folder. Nothing outside is ever opened: ids are looked up among the folders that were found, file
 * names are this program's own, and links are not followed.
 */
export class RunFolders {
  readonly #root: string;
  #found: Promise<ReadonlyMap<string, FoundRun>> | undefined;
  #foundAt = Number.NEGATIVE_INFINITY;
  /** The list that is being made. */
  #next: Promise<ReadonlyMap<string, FoundRun>> | undefined;
  /** Longest age of a cached list. */
  #maxAgeMs = LIST_AGE_MS;

  /** @param root may be a link itself; a folder that is not there yet has no runs */
  constructor(root: string) {
    this.#root = root;
  }

  /** Every run by its id. Where the list is old, the next one is made meanwhile. */
  list(): Promise<ReadonlyMap<string, FoundRun>> {
    const old = performance.now() - this.#foundAt > this.#maxAgeMs;
    if (!this.#found || old) void this.#renew();
    return this.#found!;
  }

  /** A run as it is now. */
  async find(id: string): Promise<FoundRun | undefined> {
    const known = (await this.list()).get(id);
    if (known) return runAt(known.path, id);
    const recent = performance.now() - this.#foundAt < LIST_AGE_MS;
    return recent ? undefined : (await this.#renew()).get(id);
  }

  /** Looks at a run again after something was written into its folder. */
  async refresh({ id, path }: FoundRun): Promise<void> {
    await this.#next;
    const run = await runAt(path, id);
    const found = new Map(await this.list());
    if (run) found.set(id, run);
    this.#found = Promise.resolve(found);
  }

  /** Makes the next list, unless that is in progress; the present one is handed out until it is there. */
  #renew(): Promise<ReadonlyMap<string, FoundRun>> {
    this.#next ??= this.#timed().finally(() => {
      this.#found = this.#next;
      this.#next = undefined;
    });
    this.#found ??= this.#next;
    return this.#next;
  }

  async #timed(): Promise<ReadonlyMap<string, FoundRun>> {
    const began = performance.now();
    const found = await this.#search();
    this.#foundAt = performance.now();
    this.#maxAgeMs = Math.max(LIST_AGE_MS, LIST_AGE_PER_SEARCH * (this.#foundAt - began));
    return found;
  }

  async #search(): Promise<ReadonlyMap<string, FoundRun>> {
    const found = new Map<string, FoundRun>();
    const root = await realpath(this.#root).catch(() => undefined);
    if (root === undefined) return found;
    let folders = [''];
    let left = MAX_FOLDERS;
    for (let depth = 1; depth <= DEEPEST && folders.length > 0; depth++) {
      const below = (await mapped(folders, folder => foldersIn(root, folder))).flat().slice(0, left);
      left -= below.length;
      const runs = await mapped(below, folder => runAt(join(root, folder), folder));
      folders = [];
      runs.forEach((run, i) => {
        if (!run) folders.push(below[i]);
        else if (found.size < MAX_RUNS) found.set(run.id, run);
      });
    }
    return found;
  }
}

async function foldersIn(root: string, folder: string): Promise<string[]> {
  const entries = await readdir(join(root, folder), { withFileTypes: true }).catch(() => []);
  return entries
    .filter(entry => entry.isDirectory() && !entry.name.startsWith('.'))
    .map(entry => (folder === '' ? entry.name : `${folder}/${entry.name}`));
}

/** Asks the file system at once: for thousands of folders that takes a tenth of what promises take. */
async function runAt(path: string, id: string): Promise<FoundRun | undefined> {
  for (const name of [RUN_FILES.status, RUN_FILES.config]) {
    const stats = statsOf(join(path, name));
    if (stats?.isFile()) {
      const annotatedMs = statsOf(join(path, RUN_FILES.annotations))?.mtimeMs;
      return { id, path, changedMs: stats.mtimeMs, hasStatus: name === RUN_FILES.status, annotatedMs };
    }
  }
  return undefined;
}

/** Undefined for what is not there, or lies in a folder that this user may not look into. */
const statsOf = (path: string): Stats | undefined =>
  attempted(() => lstatSync(path, { throwIfNoEntry: false }));

/** The work for each item, this many at once, results in the order of the items. */
export function mapped<T, R>(items: readonly T[], work: (item: T) => Promise<R>): Promise<R[]> {
  let slice = performance.now();
  return mapConcurrently(items, CONCURRENCY, async item => {
    const result = await work(item);
    if (performance.now() - slice > SLICE_MS) {
      await nextTurn();
      slice = performance.now();
    }
    return result;
  });
}

/** Neither follows a link nor waits for the writer of a pipe. */
const READ_FLAGS = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;

function areNames(parts: readonly string[]): boolean {
  return parts.every(
    part => part !== '' && !part.startsWith('.') && !part.includes('/') && !part.includes(sep),
  );
}

/** True if everything above the last part is a folder and not a link. */
function areFolders(run: FoundRun, parts: readonly string[]): boolean {
  return parts.every((_, depth) => statsOf(join(run.path, ...parts.slice(0, depth)))?.isDirectory());
}

/** An open file of a run, to be closed by `await using`. */
export interface OpenFile extends AsyncDisposable {
  readonly handle: FileHandle;
  readonly stats: Stats;
}

/**
 * Opens a file of a run for reading; undefined where there is none. Neither the file nor the folder that holds it may be a link.
 * @param parts names below the run's folder
 */
export async function openRunFile(run: FoundRun, ...parts: readonly string[]): Promise<OpenFile | undefined> {
  if (!areNames(parts) || !areFolders(run, parts)) return undefined;
  const handle = await open(join(run.path, ...parts), READ_FLAGS).catch(() => undefined);
  if (!handle) return undefined;
  const stats = await handle.stat();
  if (stats.isFile()) return closing({ handle, stats, close: () => handle.close() });
  await handle.close();
  return undefined;
}

/** The JSON value of a small file of a run; undefined where it is missing, too large or no JSON. */
export async function readRunJson(
  run: FoundRun,
  mostBytes: number,
  ...parts: readonly string[]
): Promise<unknown> {
  const text = await readRunText(run, mostBytes, ...parts);
  return text === undefined ? undefined : parseShallowJson(text);
}

/** The text of a small file of a run, read at once; undefined where it is missing, a link or too large. */
export async function readRunText(
  run: FoundRun,
  mostBytes: number,
  ...parts: readonly string[]
): Promise<string | undefined> {
  if (!areNames(parts) || !areFolders(run, parts)) return undefined;
  const file = attempted(() => openSync(join(run.path, ...parts), READ_FLAGS));
  if (file === undefined) return undefined;
  using _file = atEnd(() => closeSync(file));
  const stats = fstatSync(file);
  return stats.isFile() && stats.size <= mostBytes ? readFileSync(file, 'utf8') : undefined;
}

/** Names of the files in a folder of a run that match, in the order of their names. */
export async function namesIn(run: FoundRun, folder: string, pattern: RegExp): Promise<string[]> {
  const path = join(run.path, folder);
  const stats = await lstat(path).catch(() => undefined);
  if (!stats?.isDirectory()) return [];
  const entries = await readdir(path, { withFileTypes: true }).catch(() => []);
  return entries
    .filter(entry => entry.isFile() && pattern.test(entry.name))
    .map(entry => entry.name)
    .sort();
}

/** The trainer writes about 6 KiB. */
const MAX_CONFIG_BYTES = 128 * 1024;

/** The text of a run's `config.yaml`; undefined where it is missing, a link or too large. */
export const readConfig = (run: FoundRun): Promise<string | undefined> =>
  readRunText(run, MAX_CONFIG_BYTES, RUN_FILES.config);

const MAX_STATUS_BYTES = 1024 * 1024;

/** The value of a run's `status.json`, or of another small file, which may have any fields; undefined for anything but an object. */
export async function readStatus(
  run: FoundRun,
  name: string = RUN_FILES.status,
): Promise<{ readonly [key in keyof RunStatus]?: unknown } | undefined> {
  const value = await readRunJson(run, MAX_STATUS_BYTES, name);
  return typeof value === 'object' && value !== null ? value : undefined;
}
