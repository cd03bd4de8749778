import type { DatabaseSync } from 'node:sqlite';
import { storageFaultOf, storageProblem } from './storage-problem.ts';

/**
 * Runs work that is done whole or not at all, and that no other process writes between.
 * @throws Problem `storage_full`, `storage_failed` where the disk is why it was not done
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
