import { existsSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync, type SQLInputValue } from 'node:sqlite';
import { parseJson } from '../../shared/json.ts';
import { counted } from '../../shared/text.ts';
import { COMPANIONS, DATABASE_FILE, emptiedFault, openFile } from './database.ts';
import { lockFolder } from './lock.ts';
import { damageOf, isDamage, problemOf, storageFaultOf } from './persistence-health.ts';

const NEW_SUFFIX = '.new';
/** Lost rows of a table, or lost sessions, listed in the report for people. */
const MAX_NAMED = 20;
const BUSY_TIMEOUT_MS = 5000;
/** Missing row numbers in a row after which a table with an unreadable end counts as ended. */
const MAX_GAP_LENGTH = 100_000;

interface TableReport {
  readonly table: string;
  readonly kept: number;
  /** Rows that were found but cannot be used: their ids where readable, else their numbers. */
  readonly lost: readonly string[];
  /** Reason why the table ends early, where that is damage: there may have been more. */
  readonly cutShort?: string;
}

export interface RepairReport {
  /** The damaged database, under its new name. */
  readonly aside: string;
  /** Faults that SQLite found. */
  readonly damage: readonly string[];
  readonly tables: readonly TableReport[];
  /** Sessions with kept rows that cannot continue, because parts of them were lost. */
  readonly lostSessions: readonly string[];
}

/**
 * Makes a new database from the readable rows of a damaged one, and keeps the damaged one under another name.
 * @returns undefined, with nothing done, where there is no database or it is sound
 * @throws FolderInUse; Error of the system
 */
export function repairDatabase(folder: string, now = new Date()): RepairReport | undefined {
  const path = join(folder, DATABASE_FILE);
  if (!existsSync(path)) return undefined;
  const lock = lockFolder(folder);
  try {
    const damaged = openDamaged(path);
    try {
      const damage = damaged instanceof DatabaseSync ? damageIn(damaged) : [damaged.message];
      if (damage.length === 0) return undefined;
      return { damage, ...replaced(path, damaged instanceof DatabaseSync ? damaged : undefined, now) };
    } finally {
      if (damaged instanceof DatabaseSync && damaged.isOpen) damaged.close();
    }
  } finally {
    lock.release();
  }
}

/** Read-only, so that the kept copy does not change. */
function openDamaged(path: string): DatabaseSync | Error {
  const emptied = emptiedFault(path);
  if (emptied) return emptied;
  const database = new DatabaseSync(path, { readOnly: true, timeout: BUSY_TIMEOUT_MS });
  try {
    database.prepare('SELECT count(*) FROM sqlite_schema').get();
    return database;
  } catch (error) {
    database.close();
    if (isDamage(error)) return error as Error;
    throw error;
  }
}

/** Faults that SQLite finds, and rows with invalid JSON. */
function damageIn(database: DatabaseSync): string[] {
  const damage = damageOf(database);
  if (damage.length > 0) return damage;
  for (const table of TABLES) {
    if (columnsOf(database, table.table).length === 0) continue;
    for (const row of database.prepare(`SELECT * FROM ${table.table}`).iterate() as Iterable<DatabaseRow>) {
      const fault = faultOf(table, row);
      if (fault) damage.push(`${table.table} ${nameOf(table, row)}: ${fault}`);
    }
  }
  return damage;
}

function replaced(path: string, damaged: DatabaseSync | undefined, now: Date): Omit<RepairReport, 'damage'> {
  const fresh = path + NEW_SUFFIX;
  for (const suffix of ['', ...COMPANIONS]) rmSync(fresh + suffix, { force: true });
  const database = openFile(fresh, BUSY_TIMEOUT_MS);
  let tables: TableReport[];
  let lostSessions: string[] = [];
  try {
    tables = TABLES.map(table => copyTable(table, damaged, database));
    if (damaged) {
      const parts = tables.findIndex(({ table }) => table === 'session_parts');
      const { kept, lost, cutShort } = tables[parts];
      const whole = lost.length === 0 && cutShort === undefined;
      lostSessions = loseIncompleteSessions(damaged, database, whole);
      tables[parts] = { ...tables[parts], kept: kept - dropPartsWithoutSession(database) };
    }
    database.exec('PRAGMA wal_checkpoint(TRUNCATE)');
  } catch (error) {
    throw problemOf(error);
  } finally {
    database.close();
    damaged?.close();
  }
  const aside = `${path}.damaged-${now.toISOString().replaceAll(/[:.]/g, '-')}`;
  // The log belongs to the damaged database: next to the new one it would corrupt that.
  for (const suffix of [...COMPANIONS, '']) {
    if (existsSync(path + suffix)) renameSync(path + suffix, aside + suffix);
  }
  renameSync(fresh, path);
  return { aside, tables, lostSessions };
}

function copyTable(table: StoredTable, from: DatabaseSync | undefined, to: DatabaseSync): TableReport {
  const lost: string[] = [];
  let kept = 0;
  const present = from ? columnsOf(from, table.table) : [];
  const columns = columnsOf(to, table.table).filter(column => present.includes(column));
  if (!from || columns.length === 0) {
    return { table: table.table, kept, lost, cutShort: 'the table cannot be found' };
  }
  const marks = columns.map(() => '?').join(', ');
  const insert = to.prepare(`INSERT INTO ${table.table} (${columns.join(', ')}) VALUES (${marks})`);
  to.exec('BEGIN');
  const cutShort = eachRow(from, table.table, (row, number) => {
    if (row === undefined || faultOf(table, row)) {
      lost.push(row === undefined ? `row ${number}` : nameOf(table, row));
      return;
    }
    try {
      insert.run(...columns.map(column => row[column]));
      kept++;
    } catch (error) {
      if (storageFaultOf(error)) throw error;
      // Damage gave it a value that the column does not accept, or the id of another row.
      lost.push(nameOf(table, row));
    }
  });
  to.exec('COMMIT');
  return { table: table.table, kept, lost, ...(cutShort !== undefined && { cutShort }) };
}

/**
 * Every row by its number; undefined for an unreadable one.
 * @returns the reason why it ends, where that is damage
 */
function eachRow(
  database: DatabaseSync,
  table: string,
  take: (row: DatabaseRow | undefined, number: number) => void,
): string | undefined {
  const next = database.prepare(
    `SELECT rowid AS "#", * FROM ${table} WHERE rowid >= ? ORDER BY rowid LIMIT 1`,
  );
  const only = database.prepare(`SELECT rowid AS "#", * FROM ${table} WHERE rowid = ?`);
  const last = numberOf(database, `SELECT coalesce(max(rowid), 0) AS number FROM ${table}`);
  const first = numberOf(database, `SELECT min(rowid) AS number FROM ${table}`) ?? 1;
  let failed = 0;
  for (let number = first; last === undefined || number <= last; ) {
    try {
      // Right after damage the next rows are on other pages: they are searched one by one.
      const found = (failed > 0 ? only.get(number) : next.get(number)) as DatabaseRow | undefined;
      if (found) {
        take(found, Number(found['#']));
        number = Number(found['#']) + 1;
        failed = 0;
        continue;
      }
      if (failed === 0) return undefined;
      failed++;
    } catch (error) {
      if (!isDamage(error)) throw error;
      take(undefined, number);
      failed++;
    }
    if (last === undefined && failed > MAX_GAP_LENGTH) return 'its end cannot be read';
    number++;
  }
  return undefined;
}

function numberOf(database: DatabaseSync, sql: string): number | undefined {
  try {
    return (database.prepare(sql).get() as { number: number | null }).number ?? undefined;
  } catch (error) {
    if (isDamage(error)) return undefined;
    throw error;
  }
}

/** The report for people. */
export function describeRepair({ aside, damage, tables, lostSessions }: RepairReport): string {
  const lines = tables.map(({ table, kept, lost, cutShort }) => {
    const names = lost.length > 0 ? `, ${lost.length} lost: ${named(lost)}` : '';
    return `  ${table}: ${counted(kept, 'row')} kept${names}${cutShort === undefined ? '' : `; ${cutShort}`}`;
  });
  if (lostSessions.length > 0) {
    lines.push(`  sessions that cannot continue, as parts of them are lost: ${named(lostSessions)}`);
  }
  return [`the database was damaged (${damage[0]})`, ...lines, `the damaged one is kept as ${aside}`].join(
    '\n',
  );
}

function named(names: readonly string[]): string {
  const more = names.length > MAX_NAMED ? `, and ${names.length - MAX_NAMED} more` : '';
  return names.slice(0, MAX_NAMED).join(', ') + more;
}

const LOST = 'parts of it were lost when the database was damaged';
const NAMES = 'SELECT kind, number FROM session_parts WHERE session_id = ?';
/** The same from the index alone, which often still has the content of a damaged page of the table. */
const NAMES_IN_INDEX = NAMES.replace('WHERE', 'INDEXED BY sqlite_autoindex_session_parts_1 WHERE');

/** Ends of a document's parts: parts with smaller numbers of their kind belong to it. */
interface Ends {
  readonly [kind: string]: number;
}

/**
 * Marks the sessions of a repaired database as lost that have lost parts: without an action a session would be in
 * another state, without a reply or a dropped key it would carry out a repeated request again.
 * @param whole true if all rows of parts could be read
 * @returns their ids
 */
function loseIncompleteSessions(damaged: DatabaseSync, repaired: DatabaseSync, whole: boolean): string[] {
  const lost: string[] = [];
  const namesBefore = partNamesIn(damaged);
  const namesNow = repaired.prepare(NAMES);
  const sessions = repaired.prepare(
    'SELECT session_id AS id, document FROM sessions WHERE lost IS NULL AND document IS NOT NULL ORDER BY rowid',
  );
  for (const { id, document } of sessions.iterate() as Iterable<{ id: string; document: string }>) {
    const ends = (JSON.parse(document) as { readonly ends?: Ends } | null)?.ends;
    // A document of version 1 is complete in itself.
    if (!ends) continue;
    const kept = new Set(ownParts(namesNow.all(id) as unknown as PartName[], ends));
    const before = namesBefore(id);
    const incomplete = before
      ? ownParts(before, ends).some(name => !kept.has(name))
      : // Parts that a session no longer needs leave gaps, too, and look like lost ones.
        !whole && kept.size < Object.values(ends).reduce((sum, end) => sum + end, 0);
    if (incomplete) lost.push(id);
  }
  const lose = repaired.prepare('UPDATE sessions SET lost = ? WHERE session_id = ?');
  for (const id of lost) lose.run(LOST, id);
  return lost;
}

interface PartName {
  readonly kind: string;
  readonly number: number;
}

/** @returns names of the session's parts; undefined where damage hides them */
function partNamesIn(damaged: DatabaseSync): (sessionId: string) => PartName[] | undefined {
  if (columnsOf(damaged, 'session_parts').length === 0) return () => undefined;
  const names = damaged.prepare(NAMES_IN_INDEX);
  return sessionId => {
    try {
      return names.all(sessionId) as unknown as PartName[];
    } catch (error) {
      if (isDamage(error)) return undefined;
      throw error;
    }
  };
}

function ownParts(names: readonly PartName[], ends: Ends): string[] {
  return names
    .filter(({ kind, number }) => number < ends[kind])
    .map(({ kind, number }) => `${kind} ${number}`);
}

/** @returns number of parts removed because their session's row was lost */
function dropPartsWithoutSession(repaired: DatabaseSync): number {
  const { changes } = repaired
    .prepare('DELETE FROM session_parts WHERE session_id NOT IN (SELECT session_id FROM sessions)')
    .run();
  return Number(changes);
}

/** Hashes of request keys have two 32-bit words. */
const HASH_BYTES = 8;

export type DatabaseRow = { readonly [column: string]: SQLInputValue };

/** Format of a text column. */
type TextForm = 'JSON' | 'hashes in base64';

export interface StoredTable {
  readonly table: string;
  /** The columns that identify a row. */
  readonly id: readonly string[];
  /** Formats of the columns that have one. */
  readonly forms: { readonly [column: string]: TextForm | ((row: DatabaseRow) => TextForm) };
}

/** Every table of the database, in the order in which a repair copies them. */
export const TABLES: readonly StoredTable[] = [
  { table: 'environments', id: ['env_id'], forms: { definition: 'JSON', facts: 'JSON' } },
  { table: 'audit', id: ['id'], forms: {} },
  { table: 'sessions', id: ['session_id'], forms: { settings: 'JSON', document: 'JSON' } },
  {
    table: 'session_parts',
    id: ['session_id', 'kind', 'number'],
    forms: { data: ({ kind }) => (kind === 'dropped' ? 'hashes in base64' : 'JSON') },
  },
  { table: 'ended_sessions', id: ['session_id'], forms: {} },
  { table: 'replies', id: ['id'], forms: { reply: 'JSON' } },
  { table: 'dropped_keys', id: ['id'], forms: { hashes: 'hashes in base64' } },
  { table: 'clock', id: ['id'], forms: {} },
];

function nameOf({ id }: StoredTable, row: DatabaseRow): string {
  return id.map(column => row[column]).join(' ');
}

/** Fault of a readable row. */
function faultOf({ forms }: StoredTable, row: DatabaseRow): string | undefined {
  for (const [column, given] of Object.entries(forms)) {
    const text = row[column];
    if (text === null || text === undefined) continue;
    const form = typeof given === 'function' ? given(row) : given;
    const holds = form === 'JSON' ? parseJson(String(text)) !== undefined : areHashes(String(text));
    if (!holds) return `${column} is not ${form}`;
  }
  return undefined;
}

function areHashes(text: string): boolean {
  const bytes = Buffer.from(text, 'base64');
  return bytes.length % HASH_BYTES === 0 && bytes.toString('base64') === text;
}

/** Columns of a table; empty where the database lacks the table, or damage hides it. */
function columnsOf(database: DatabaseSync, table: string): string[] {
  try {
    return database
      .prepare('SELECT name FROM pragma_table_info(?)')
      .all(table)
      .map(({ name }) => String(name));
  } catch (error) {
    if (isDamage(error)) return [];
    throw error;
  }
}
