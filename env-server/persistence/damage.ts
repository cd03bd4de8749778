import type { DatabaseSync } from 'node:sqlite';

const SQLITE_CORRUPT = 11;
const SQLITE_NOTADB = 26;
const PRIMARY_CODE = 0xff;

/** The database is damaged; the message has the remedy. */
export class DamagedDatabase extends Error {
  override readonly name = 'DamagedDatabase';
  readonly file: string;

  constructor(file: string, cause: Error) {
    super(
      `the database ${file} is damaged (${cause.message}). Restore it from a backup, or start the server once with --repair: that keeps what can be read in a new database, keeps the damaged one under another name, and says what was lost`,
      { cause },
    );
    this.file = file;
  }
}

/** True if an error of SQLite means that the file is damaged. */
export function isDamage(error: unknown): boolean {
  const { code, errcode } = (error ?? {}) as { readonly code?: unknown; readonly errcode?: unknown };
  if (code !== 'ERR_SQLITE_ERROR' || typeof errcode !== 'number') return false;
  const primary = errcode & PRIMARY_CODE;
  return primary === SQLITE_CORRUPT || primary === SQLITE_NOTADB;
}

/** Faults that SQLite finds in a database, e.g. a page that belongs to no table; empty for a sound one. */
export function damageOf(database: DatabaseSync): string[] {
  try {
    const rows = database.prepare('PRAGMA quick_check(10)').all() as { quick_check: string }[];
    return rows.map(({ quick_check }) => quick_check).filter(line => line !== 'ok');
  } catch (error) {
    if (isDamage(error)) return [(error as Error).message];
    throw error;
  }
}
