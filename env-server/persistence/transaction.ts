import type { DatabaseSync } from 'node:sqlite';
import { storageFaultOf, storageProblem } from './storage-problem.ts';

/**
 * Runs work as one transaction that no other process can write between.
 * @throws Problem `storage_full`, `storage_failed` where the disk prevented it
 */
export function inTransaction<T>(database: DatabaseSync, work: () => T): T {
  try {
    database.exec('BEGIN IMMEDIATE');
    const result = work();
    database.exec('COMMIT');
    return result;
  } catch (error) {
    // After some faults, such as a full disk, SQLite has rolled back already.
    if (database.isTransaction) database.exec('ROLLBACK');
    const fault = storageFaultOf(error);
    throw fault ? storageProblem(fault, error) : error;
  }
}
