import { DatabaseSync, type StatementSync } from 'node:sqlite';
import { crc32 } from 'node:zlib';
import { inTransaction } from '../database.ts';
import { makePrivateFile } from '../lock.ts';

/** Pages of the write-ahead log after which SQLite moves them to the file. */
const LOG_PAGES = 256;
export const TURN_FILE_FORMAT = 1;

/**
 * Records of one turn of the event loop, one a line: letter of the kind, session id, space, number and, after a space,
 * JSON. The text is UTF-8 with a letter for each byte (Latin-1): with one letter beyond Latin-1, as symbols of boards are,
 * all text of the turn would be twice as large and slower to write.
 */
export interface Turn {
  readonly records: string;
  readonly count: number;
}

/** Description of a file; the only row of its table `head`. */
export interface TurnFileHead {
  readonly format: number;
  /** Boot id of the operating system; empty where unknown. A different one now means that the machine went down. */
  readonly boot: string;
  /** True if turns were on the disk before their replies left. */
  readonly synced: boolean;
  /** The file that the same process wrote before, where it was not yet deleted: its number, and its number of turns. */
  readonly after?: { readonly number: number; readonly turns: number };
}

/** A journal file being written: an SQLite database with an append-only table of turns. */
export class TurnFile {
  readonly #database: DatabaseSync;
  readonly #insert: StatementSync;
  #turns = 0;

  /**
   * Makes the file, for this process alone.
   * @throws Error of SQLite or of the system
   */
  constructor(path: string, head: TurnFileHead) {
    makePrivateFile(path);
    this.#database = new DatabaseSync(path);
    try {
      // An exclusive lock avoids the shared memory of the write-ahead log: a turn alone costs 5 µs instead of 10.
      this.#database.exec(
        `PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = ${LOG_PAGES};
         PRAGMA synchronous = ${head.synced ? 'FULL' : 'OFF'};
         CREATE TABLE IF NOT EXISTS head (json TEXT NOT NULL) STRICT;
         CREATE TABLE IF NOT EXISTS turns
           (turn INTEGER PRIMARY KEY, count INTEGER NOT NULL, crc INTEGER NOT NULL, records TEXT NOT NULL) STRICT;`,
      );
      this.#database.prepare('INSERT INTO head VALUES (?)').run(JSON.stringify(head));
      this.#insert = this.#database.prepare('INSERT INTO turns VALUES (?, ?, ?, CAST(? AS TEXT))');
    } catch (error) {
      this.#database.close();
      throw error;
    }
  }

  /**
   * Adds turns, all or none.
   * @throws Error of SQLite
   */
  write(turns: readonly Turn[]): void {
    if (turns.length === 1) this.#add(turns[0], 1);
    else
      inTransaction(this.#database, () => {
        for (const [index, turn] of turns.entries()) this.#add(turn, index + 1);
      });
    this.#turns += turns.length;
  }

  #add({ records, count }: Turn, offset: number): void {
    // Encoded once, for the checksum and for SQLite.
    const bytes = Buffer.from(records, 'latin1');
    this.#insert.run(this.#turns + offset, count, crc32(bytes, count), bytes);
  }

  /** Does nothing the second time. */
  close(): void {
    if (this.#database.isOpen) this.#database.close();
  }
}
