import { constants, readFileSync } from 'node:fs';
import { access, stat } from 'node:fs/promises';
import { extname, relative, resolve } from 'node:path';
import { isObject, type Json, type JsonObject, parseJson } from '../../../../shared/json.ts';
import type { Random } from '../../../../shared/random.ts';
import { remembered } from '../../../../shared/remembered.ts';
import { InvalidConfig, InvalidOptions } from '../environment.ts';
import { isInSplit, type Split } from '../splits.ts';
import { jsonParts, NotJson, textLines } from './json-stream.ts';

/** Records of each split, kept as long as the records. */
const parts = new WeakMap<readonly unknown[], Map<Split, readonly unknown[]>>();

interface ChosenRecord<T> {
  /** Path of the data file; `/data` in the configuration. */
  readonly path: string;
  readonly read: RecordReader<T>;
  readonly split: Split;
  /** The text that decides a record's split. */
  key(record: T): string;
  /** The record at this index of the split, from 0, instead of a random one; `/index` in the options. */
  readonly index?: number;
}

/**
 * A record of a data file.
 * @throws InvalidConfig for a file that cannot be read or has no record of the split
 * @throws InvalidOptions for an index past the end
 */
export async function chooseRecord<T>(
  { path, read, split, key, index }: ChosenRecord<T>,
  rng: Random,
): Promise<T> {
  return pick(partOf(await readRecords('/data', path, read), split, key), index, rng);
}

/** The records of a `.jsonl` file that ships with an environment. */
export function shippedRecords<T>(file: URL): readonly T[] {
  return readFileSync(file, 'utf8')
    .trimEnd()
    .split('\n')
    .map(line => JSON.parse(line) as T);
}

/** The records of one split. */
export function partOf<T>(records: readonly T[], split: Split, key: (record: T) => string): readonly T[] {
  const known = remembered(parts, records, () => new Map());
  const part: readonly T[] = remembered(known, split, () =>
    records.filter(record => isInSplit(() => key(record), split)),
  );
  if (part.length === 0) throw new InvalidConfig('/split', `none of the records belongs to ${split}`);
  return part;
}

/** The record at an index, or a random one. */
export function pick<T>(records: readonly T[], index: number | undefined, rng: Random): T {
  if (index === undefined) return rng.choice(records);
  if (index >= records.length) {
    throw new InvalidOptions(
      '/index',
      `there are ${records.length} records, so the last index is ${records.length - 1}`,
    );
  }
  return records[index];
}

/** When set, data files must be in this folder, and relative paths start there. */
export const DATA_FOLDER_VARIABLE = 'RAGEN_DATA_DIR';
/** The value that forbids all files. */
export const NO_DATA = 'none';

/** Fault in one field of a record; `readRecords` adds file and row. */
export class InvalidField extends Error {
  readonly field: string;
  constructor(field: string, message: string) {
    super(message);
    this.name = 'InvalidField';
    this.field = field;
  }
}

/**
 * Reduces a record to what an environment keeps; undefined drops the record.
 * @throws InvalidField
 */
export type RecordReader<T> = (record: JsonObject) => T | undefined;

interface CachedRecords {
  readonly version: string;
  readonly rows: Promise<readonly unknown[]>;
}

/** Cached files by reader and path; a changed file is read again. */
const kept = new WeakMap<RecordReader<unknown>, Map<string, CachedRecords>>();

/**
 * The records of a `.jsonl`, `.json` (one array) or `.parquet` file, streamed and reduced by `read`, which must be the
 * same function every time: it is part of the cache key.
 * @param pointer JSON pointer to the path in the configuration, e.g. `/data`
 * @throws InvalidConfig naming file, row (from 1) and field
 */
export async function readRecords<T>(
  pointer: string,
  path: string,
  read: RecordReader<T>,
): Promise<readonly T[]> {
  const { file, version } = await findFile(pointer, path);
  const files = remembered(kept, read, () => new Map());
  const known = files.get(file);
  if (known?.version === version) return known.rows;
  const rows = collect(pointer, path, file, read);
  files.set(file, { version, rows });
  rows.catch(() => files.delete(file));
  return rows;
}

/**
 * The file at a configured path, and a text that changes when the file does.
 * @throws InvalidConfig
 */
export async function findFile(pointer: string, path: string): Promise<{ file: string; version: string }> {
  const file = locate(pointer, path);
  const found = await stat(file).catch(() => undefined);
  if (!found?.isFile()) throw new InvalidConfig(pointer, `there is no data file ${path}`);
  await access(file, constants.R_OK).catch(() => {
    throw new InvalidConfig(pointer, `the data file ${path} may not be read by this server`);
  });
  return { file, version: `${found.mtimeMs} ${found.size}` };
}

/**
 * The file at a configured path.
 * @throws InvalidConfig outside the permitted folder
 */
function locate(pointer: string, path: string): string {
  const folder = process.env[DATA_FOLDER_VARIABLE];
  if (!folder) return resolve(path);
  if (folder === NO_DATA) {
    throw new InvalidConfig(
      pointer,
      `this server reads no data files; its operator can name a folder for them by ${DATA_FOLDER_VARIABLE}`,
    );
  }
  const file = resolve(folder, path);
  if (relative(folder, file).startsWith('..')) {
    throw new InvalidConfig(
      pointer,
      `data files must lie under the folder that ${DATA_FOLDER_VARIABLE} names`,
    );
  }
  return file;
}

async function collect<T>(
  pointer: string,
  path: string,
  file: string,
  read: RecordReader<T>,
): Promise<readonly T[]> {
  const rows: T[] = [];
  let row = 0;
  const fault = (message: string) => new InvalidConfig(pointer, `data file ${path}, row ${row}: ${message}`);
  for await (const record of records(pointer, path, file)) {
    row++;
    if (typeof record === 'string') throw fault(record);
    try {
      const item = read(record);
      if (item !== undefined) rows.push(item);
    } catch (error) {
      throw error instanceof InvalidField ? fault(`field ${error.field}: ${error.message}`) : error;
    }
  }
  if (rows.length === 0) throw new InvalidConfig(pointer, `data file ${path} has no usable record`);
  return rows;
}

/** Records one by one; a string is the reason why one could not be read. */
async function* records(pointer: string, path: string, file: string): AsyncGenerator<JsonObject | string> {
  switch (extname(file).toLowerCase()) {
    case '.jsonl':
    case '.ndjson':
      return yield* jsonLines(file);
    case '.json':
      return yield* jsonArray(file);
    case '.parquet':
      return yield* parquet(pointer, path, file);
    default:
      throw new InvalidConfig(pointer, `data file ${path} must end in .jsonl, .json or .parquet`);
  }
}

async function* jsonLines(file: string): AsyncGenerator<JsonObject | string> {
  for await (const line of textLines(file)) if (line.trim() !== '') yield parseRecord(line);
}

async function* jsonArray(file: string): AsyncGenerator<JsonObject | string> {
  try {
    for await (const { of, text } of jsonParts(file)) {
      if (of !== 'array') {
        yield 'the file is not an array of objects';
        return;
      }
      yield parseRecord(text);
    }
  } catch (error) {
    if (!(error instanceof NotJson)) throw error;
    yield error.message;
  }
}

function parseRecord(line: string): JsonObject | string {
  const record = parseJson(line);
  if (record === undefined) return 'the record is not JSON';
  return isObject(record) ? record : 'the record is not an object';
}

async function* parquet(pointer: string, path: string, name: string): AsyncGenerator<JsonObject | string> {
  try {
    const { asyncBufferFromFile, parquetMetadataAsync, parquetReadObjects } = await import('hyparquet');
    const { compressors } = await import('hyparquet-compressors');
    const file = await asyncBufferFromFile(name);
    const metadata = await parquetMetadataAsync(file);
    let start = 0;
    for (const group of metadata.row_groups) {
      const end = start + Number(group.num_rows);
      const rows = await parquetReadObjects({ file, metadata, compressors, rowStart: start, rowEnd: end });
      for (const row of rows) yield present(row);
      start = end;
    }
  } catch (error) {
    throw new InvalidConfig(
      pointer,
      `data file ${path} is not readable Parquet: ${(error as Error).message}`,
    );
  }
}

/** A row without empty columns: a Parquet row always has every column. */
function present(row: object): JsonObject {
  const entries = Object.entries(row).filter(([, value]) => value !== null && value !== undefined);
  return Object.fromEntries(entries.map(([name, value]) => [name, toJson(value)]));
}

/** Converts Parquet's 64-bit integers, typed arrays and dates to plain JSON. */
function toJson(value: unknown): Json {
  if (typeof value === 'bigint') return Number(value);
  if (Array.isArray(value) || ArrayBuffer.isView(value))
    return Array.from(value as ArrayLike<unknown>, toJson);
  if (value instanceof Date) return value.toISOString();
  if (typeof value === 'object' && value !== null) {
    return Object.fromEntries(Object.entries(value).map(([key, part]) => [key, toJson(part)]));
  }
  return value === undefined ? null : (value as Json);
}

/** A text field. @throws InvalidField */
export function textField(record: JsonObject, field: string): string {
  const value = record[field];
  if (typeof value !== 'string') throw new InvalidField(field, `expected text, got ${kind(value)}`);
  return value;
}

/** A field that holds a finite number. @throws InvalidField */
export function numberField(record: JsonObject, field: string): number {
  const value = record[field];
  if (typeof value !== 'number' || !Number.isFinite(value)) {
    throw new InvalidField(field, `expected a number, got ${kind(value)}`);
  }
  return value;
}

/** A field that holds a list of finite numbers. @throws InvalidField */
export function numbersField(record: JsonObject, field: string): number[] {
  const value = record[field];
  if (!Array.isArray(value)) throw new InvalidField(field, `expected a list of numbers, got ${kind(value)}`);
  for (const [i, item] of value.entries()) {
    if (typeof item !== 'number' || !Number.isFinite(item)) {
      throw new InvalidField(`${field}[${i}]`, `expected a number, got ${kind(item)}`);
    }
  }
  return value as number[];
}

function kind(value: Json | undefined): string {
  if (value === undefined) return 'nothing';
  if (value === null) return 'null';
  return Array.isArray(value) ? 'a list' : typeof value === 'object' ? 'an object' : `a ${typeof value}`;
}
