import {
  closeSync,
  cpSync,
  createReadStream,
  existsSync,
  lstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  readSync,
  statSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { hostname } from 'node:os';
import { basename, extname, join, relative } from 'node:path';
import type { RowGroup } from 'hyparquet';
import { atEnd } from '../../shared/closing.ts';
import { attempted, isObject } from '../../shared/json.ts';
import { type EpisodeRecord, RUN_FILES, type RunStatus } from '../../shared/run-folder/run-files.ts';
import { FormatError } from '../../site/compute/formats/format.ts';
import { type OnRow, RowSplitter, TrajectoryImport } from '../../site/compute/formats/import.ts';

const MIB = 1024 * 1024;
/** Most bytes of a command's files, and of the episodes that are written out again: a packed file may hold more. */
const MAX_BYTES = 2048 * MIB;
/** Most trajectory files in a folder, and its depth: `job/trial/agent/trajectory.json`. */
const MAX_FILES = 10_000;
/** Most files of a run's folder, which has one for each iteration. */
const MAX_RUN_FILES = 100_000;
const MAX_DEPTH = 4;
const PARQUET_MARK = 'PAR1';
/** Bytes of episodes kept in memory until they are written. */
const MAX_WAITING_BYTES = 8 * MIB;
/** Endings of trajectory files in a folder; other files must be named one by one. */
const IS_TRAJECTORY_FILE = /\.(jsonl|parquet)$|^trajectory\.json$/;

/** A run made from files. */
export interface ImportedRun {
  readonly id: string;
  readonly episodes: number;
  readonly formats: readonly string[];
  /** Words about omitted episodes. */
  readonly notes: readonly string[];
}

/**
 * Writes other programs' trajectories as run folders, one for each path: a file, or a folder of files such as verl's
 * `rollout_data_dir`. Of a run folder what pages show is copied.
 * @param root folder for the run folders
 * @param signal ends it early
 * @param maxBytes largest sum of the files, and of what is written
 * @throws Error that names file and line for anything but a trajectory
 */
export async function importRuns(
  paths: readonly string[],
  root: string,
  signal?: AbortSignal,
  maxBytes = MAX_BYTES,
): Promise<ImportedRun[]> {
  const space = { left: maxBytes };
  const runs: ImportedRun[] = [];
  const taken = new Set<string>();
  let left = maxBytes;
  for (const path of paths) {
    const isRun = isRunFolder(path);
    const files = isRun
      ? Object.values(RUN_FILES)
          .map(name => join(path, name))
          .filter(isNoLink)
          .flatMap(file => filesBelow(file))
      : filesAt(path);
    left -= files.reduce((sum, file) => sum + statSync(file).size, 0);
    if (left < 0)
      throw new Error(
        `${path}: the files have more than ${maxBytes / MIB} MiB together; view some of them, e.g. of one step`,
      );
    const id = freeName(basename(path, extname(path)).replace(/^\.+/, '') || 'trajectories', taken);
    runs.push(isRun ? copiedRun(files, path, root, id) : await importRun(files, root, id, space, signal));
  }
  return runs;
}

function freeName(name: string, taken: Set<string>): string {
  let free = name;
  for (let i = 2; taken.has(free); i++) free = `${name}-${i}`;
  taken.add(free);
  return free;
}

/** True for a folder that a run of ragen has written. */
const isRunFolder = (path: string): boolean =>
  existsSync(join(path, RUN_FILES.status)) && existsSync(join(path, RUN_FILES.trajectories));

/** True for a regular file and a folder: not for a link out of the run, a pipe or a device, which have no end. */
function isNoLink(path: string): boolean {
  const stats = lstatSync(path, { throwIfNoEntry: false });
  return stats !== undefined && (stats.isFile() || stats.isDirectory());
}

/**
 * The files in a folder and below that have a fitting name, or the file itself; none where nothing is.
 * @throws Error for more than `most`
 */
function filesBelow(path: string, most = MAX_RUN_FILES, fits = /./): string[] {
  const stats = statSync(path, { throwIfNoEntry: false });
  if (!stats?.isDirectory()) return stats ? [path] : [];
  const found: string[] = [];
  const collect = (folder: string, depth: number): void => {
    for (const entry of readdirSync(folder, { withFileTypes: true })) {
      const file = join(folder, entry.name);
      if (entry.isDirectory() && depth < MAX_DEPTH) collect(file, depth + 1);
      if (entry.isFile() && fits.test(entry.name) && found.push(file) > most)
        throw new Error(`${path}: more than ${most} files; name fewer, or show a run with \`dashboard\``);
    }
  };
  collect(path, 1);
  return found;
}

/** Copies the files of a run that pages show; checkpoints are not among them. */
function copiedRun(files: readonly string[], path: string, root: string, id: string): ImportedRun {
  const folder = join(root, id);
  for (const file of files) cpSync(file, join(folder, relative(path, file)));
  const episodes = filesBelow(join(folder, RUN_FILES.trajectories)).reduce(
    (sum, file) => sum + linesIn(file),
    0,
  );
  if (episodes === 0) throw new Error(`${path}: no episodes in it; tracking.trajectories_every keeps some`);
  const status = attempted(() => JSON.parse(readFileSync(join(folder, RUN_FILES.status), 'utf8')));
  if (!isObject(status))
    throw new Error(`${path}: ${RUN_FILES.status} must be a regular file with a JSON object`);
  const note = `${path}: a copy of a run that is training; the command \`dashboard\` shows how it continues`;
  return { id, episodes, formats: ['ragen'], notes: status.state === 'running' ? [note] : [] };
}

function linesIn(file: string): number {
  const handle = openSync(file, 'r');
  using _handle = atEnd(() => closeSync(handle));
  const chunk = Buffer.allocUnsafe(MIB);
  let lines = 0;
  for (let length = readSync(handle, chunk); length > 0; length = readSync(handle, chunk)) {
    const bytes = chunk.subarray(0, length);
    for (let at = bytes.indexOf(0x0a); at !== -1; at = bytes.indexOf(0x0a, at + 1)) lines++;
  }
  return lines;
}

/** The file, or a folder's trajectory files, sorted by name, with numbers in numeric order. */
function filesAt(path: string): string[] {
  const stats = statSync(path, { throwIfNoEntry: false });
  if (!stats) throw new Error(`${path} does not exist`);
  if (stats.isFile()) return [path];
  if (!stats.isDirectory()) throw new Error(`${path} is neither a file nor a folder`);
  const runs = readdirSync(path).filter(name => isRunFolder(join(path, name)));
  if (runs.length > 0)
    throw new Error(
      `${path} holds the runs of ragen ${runs.slice(0, 3).join(', ')}: name one of them, or show all with the command \`dashboard\``,
    );
  const found = filesBelow(path, MAX_FILES, IS_TRAJECTORY_FILE);
  if (found.length === 0)
    throw new Error(`${path} has no .jsonl, .parquet or trajectory.json in it; name the files themselves`);
  return found.sort(new Intl.Collator('en', { numeric: true }).compare);
}

async function importRun(
  files: readonly string[],
  root: string,
  id: string,
  space: Space,
  signal?: AbortSignal,
): Promise<ImportedRun> {
  const folder = join(root, id);
  mkdirSync(join(folder, RUN_FILES.trajectories), { recursive: true });
  const output = new StepFiles(join(folder, RUN_FILES.trajectories), space);
  const rows = new TrajectoryImport((step, episode) => output.add(step, episode));
  const notes: string[] = [];
  for (const file of files) {
    rows.startFile();
    signal?.throwIfAborted();
    const before = rows.episodes;
    try {
      const onRow: OnRow = (value, place) => rows.add(value, place);
      const isCut = isParquet(file) ? await parquetRows(file, onRow) : await jsonRows(file, onRow, signal);
      if (isCut) notes.push(`${file}: its last line is half written, and left out`);
    } catch (error) {
      if (error instanceof FormatError) throw new Error(`${file}: ${error.message}`);
      throw error;
    }
    if (rows.episodes === before) notes.push(`${file}: no episodes in it`);
  }
  output.flush();
  if (rows.episodes === 0) throw new Error(`${files[0]}: no episodes in it`);
  const format = rows.formats.join(', ');
  writeFileSync(join(folder, RUN_FILES.status), JSON.stringify(statusOf(id, format, output.lastStep)));
  return { id, episodes: rows.episodes, formats: rows.formats, notes };
}

/** @returns true if the last line is incomplete */
async function jsonRows(file: string, onRow: OnRow, signal?: AbortSignal): Promise<boolean> {
  const splitter = new RowSplitter(onRow);
  for await (const chunk of createReadStream(file, { signal })) splitter.push(chunk as Buffer);
  return splitter.end();
}

function isParquet(file: string): boolean {
  const handle = openSync(file, 'r');
  using _handle = atEnd(() => closeSync(handle));
  const mark = Buffer.alloc(PARQUET_MARK.length);
  readSync(handle, mark, 0, mark.length, 0);
  return mark.toString('latin1') === PARQUET_MARK;
}

/** Bytes that may still be written. */
interface Space {
  left: number;
}

/** Trajectory files by step, written in large pieces. */
class StepFiles {
  readonly #folder: string;
  readonly #waiting = new Map<number, string[]>();
  #bytes = 0;
  readonly #space: Space;
  lastStep = 0;

  constructor(folder: string, space: Space) {
    this.#folder = folder;
    this.#space = space;
  }

  add(step: number, episode: EpisodeRecord): void {
    const line = `${JSON.stringify(episode)}\n`;
    const lines = this.#waiting.get(step) ?? [];
    lines.push(line);
    this.#waiting.set(step, lines);
    this.#bytes += line.length;
    this.#space.left -= line.length;
    if (this.#space.left < 0)
      throw new FormatError('its episodes are too large when they are unpacked; view some of them');
    this.lastStep = Math.max(this.lastStep, step);
    if (this.#bytes > MAX_WAITING_BYTES) this.flush();
  }

  flush(): void {
    for (const [step, lines] of this.#waiting) {
      const file = openSync(join(this.#folder, `train-${String(step).padStart(6, '0')}.jsonl`), 'a');
      using _file = atEnd(() => closeSync(file));
      writeSync(file, lines.join(''));
    }
    this.#waiting.clear();
    this.#bytes = 0;
  }
}

function statusOf(name: string, format: string, step: number): RunStatus {
  const now = new Date().toISOString();
  return {
    ...{
      format: 1,
      state: 'finished',
      stage: 'done',
      done: step,
      total: step,
      step,
      steps: step,
      eta_s: null,
    },
    ...{ pid: process.pid, host: hostname(), started_at: now, updated_at: now, seconds: 0 },
    ...{ last_error: null, notes: [], validations: [] },
    run: { name, format, recipe: [], advantage: '', seed: 0, model: '', parameters: null, tags: [] },
  };
}

/** Most uncompressed bytes of a row group, which is in memory as a whole. */
const MAX_GROUP_BYTES = 512 * MIB;
/** Most rows of a row group: equal rows take no bytes. */
const MAX_GROUP_ROWS = 1_000_000;

/**
 * The rows of a Parquet file, one row group at a time.
 * @returns false: a file without its end is not Parquet
 * @throws FormatError
 */
async function parquetRows(path: string, onRow: OnRow): Promise<boolean> {
  const { asyncBufferFromFile, parquetMetadataAsync, parquetReadObjects } = await import('hyparquet');
  const { compressors } = await import('hyparquet-compressors');
  const readable = async <T>(work: Promise<T>): Promise<T> => {
    try {
      return await work;
    } catch (error) {
      throw new FormatError(`not readable Parquet: ${(error as Error).message}`);
    }
  };
  const file = await asyncBufferFromFile(path);
  const metadata = await readable(parquetMetadataAsync(file));
  let start = 0;
  for (const [i, group] of metadata.row_groups.entries()) {
    if (bytesOf(group) > MAX_GROUP_BYTES)
      throw new FormatError(`row group ${i + 1} is larger than ${MAX_GROUP_BYTES / MIB} MiB`);
    if (group.num_rows > MAX_GROUP_ROWS)
      throw new FormatError(`row group ${i + 1} has ${group.num_rows} rows, more than ${MAX_GROUP_ROWS}`);
    const end = start + Number(group.num_rows);
    const rows = await readable(
      parquetReadObjects({ file, metadata, compressors, rowStart: start, rowEnd: end }),
    );
    for (const [k, row] of rows.entries()) onRow(plain(row), `row ${start + k + 1}`);
    start = end;
  }
  return false;
}

const bytesOf = ({ total_byte_size, columns }: RowGroup): number =>
  Math.max(
    Number(total_byte_size),
    columns.reduce((sum, { meta_data }) => sum + Number(meta_data?.total_uncompressed_size ?? 0), 0),
  );

/** A value without Parquet's 64-bit integers, typed arrays and dates; empty columns are left out. */
function plain(value: unknown): unknown {
  if (typeof value === 'bigint') return Number(value);
  if (Array.isArray(value) || ArrayBuffer.isView(value))
    return Array.from(value as ArrayLike<unknown>, plain);
  if (value instanceof Date) return value.toISOString();
  if (typeof value !== 'object' || value === null) return value;
  const known = Object.entries(value).filter(([, part]) => part !== null && part !== undefined);
  return Object.fromEntries(known.map(([name, part]) => [name, plain(part)]));
}
