import type { DatabaseSync, SQLInputValue } from 'node:sqlite';
import { isDamage } from './faults.ts';

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

export function nameOf({ id }: StoredTable, row: DatabaseRow): string {
  return id.map(column => row[column]).join(' ');
}

/** Fault of a readable row. */
export function faultOf({ forms }: StoredTable, row: DatabaseRow): string | undefined {
  for (const [column, given] of Object.entries(forms)) {
    const text = row[column];
    if (text === null || text === undefined) continue;
    const form = typeof given === 'function' ? given(row) : given;
    const holds = form === 'JSON' ? isJson(String(text)) : areHashes(String(text));
    if (!holds) return `${column} is not ${form}`;
  }
  return undefined;
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

function areHashes(text: string): boolean {
  const bytes = Buffer.from(text, 'base64');
  return bytes.length % HASH_BYTES === 0 && bytes.toString('base64') === text;
}

/** Columns of a table; empty where the database lacks the table, or damage hides it. */
export function columnsOf(database: DatabaseSync, table: string): string[] {
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
