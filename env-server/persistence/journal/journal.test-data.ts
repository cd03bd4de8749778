import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { PersistenceHealth } from '../persistence-health.ts';
import { Journal, type JournalSettings } from './journal.ts';
import { type ReplayFindings, replayJournal } from './replay.ts';
import { FILE_SYSTEM, type JournalFiles, listSegments } from './segments.ts';

/** A file system with a disk that fills up, fails, and recovers when the test says so. */
export class FaultyFiles implements JournalFiles {
  /** Bytes that there is room for. */
  room = Number.POSITIVE_INFINITY;
  /** Code of the error that every write meets. */
  fault: string | undefined;
  syncFault: string | undefined;
  writes = 0;
  syncs = 0;
  /** Syncs that wait for `finishSyncs`; undefined lets them finish by themselves. */
  waiting: (() => void)[] | undefined;

  /** Late writes that wait for `finishWrites`. */
  readonly late: (() => void)[] = [];

  create(path: string): number {
    this.#check();
    return FILE_SYSTEM.create(path);
  }

  extend(file: number, bytes: number): void {
    FILE_SYSTEM.extend(file, bytes);
  }

  write(file: number, bytes: Buffer, offset: number, length: number, position: number): number {
    // The first byte of a file is changed in place.
    if (position === 0) return FILE_SYSTEM.write(file, bytes, offset, length, position);
    this.#check();
    this.writes++;
    const taken = Math.min(length, this.room);
    if (taken === 0) throw systemError('ENOSPC');
    this.room -= taken;
    return FILE_SYSTEM.write(file, bytes, offset, taken, position);
  }

  writeLater(
    file: number,
    bytes: Buffer,
    offset: number,
    position: number,
    done: (error: Error | null, count: number) => void,
  ): void {
    this.late.push(() => {
      let count = 0;
      try {
        count = this.write(file, bytes, offset, bytes.length - offset, position);
      } catch (error) {
        done(error as Error, 0);
        return;
      }
      done(null, count);
    });
  }

  /** Lets the late writes end that were begun. */
  finishWrites(): void {
    for (const finish of this.late.splice(0)) finish();
  }

  sync(file: number, done: (error: Error | null) => void): void {
    const finish = () => {
      this.syncs++;
      if (this.syncFault !== undefined) done(systemError(this.syncFault));
      else FILE_SYSTEM.sync(file, done);
    };
    if (this.waiting) this.waiting.push(finish);
    else finish();
  }

  finishSyncs(): void {
    for (const finish of this.waiting?.splice(0) ?? []) finish();
  }

  syncNow(file: number): void {
    if (this.syncFault !== undefined) throw systemError(this.syncFault);
    FILE_SYSTEM.syncNow(file);
  }

  syncFolder(path: string): void {
    FILE_SYSTEM.syncFolder(path);
  }

  close(file: number): void {
    FILE_SYSTEM.close(file);
  }

  mark(path: string, byte: number): void {
    FILE_SYSTEM.mark(path, byte);
  }

  remove(path: string): void {
    FILE_SYSTEM.remove(path);
  }

  #check(): void {
    if (this.fault !== undefined) throw systemError(this.fault);
  }
}

export function systemError(code: string): Error {
  return Object.assign(new Error(`${code}: injected`), { code });
}

export interface TestJournal {
  readonly journal: Journal;
  readonly health: PersistenceHealth;
  readonly files: FaultyFiles;
  /** Number of checkpoints that were asked for. */
  readonly pressure: { count: number };
}

export function openJournal(folder: string, given: Partial<JournalSettings> = {}): TestJournal {
  const health = new PersistenceHealth();
  const files = new FaultyFiles();
  const pressure = { count: 0 };
  const journal = new Journal(
    {
      folder,
      writer: { run: 'first', index: 0, count: 1 },
      synced: false,
      segmentBytes: 1024 * 1024,
      maxBytes: 16 * 1024 * 1024,
      maxWaitingBytes: 1024 * 1024,
      slowWriteMs: Number.POSITIVE_INFINITY,
      ...given,
    },
    { health, files, onPressure: () => pressure.count++ },
  );
  return { journal, health, files, pressure };
}

export interface Replayed {
  /** `<kind> <session id> <n> <body>`, one each. */
  readonly records: string[];
  readonly findings: ReplayFindings;
}

/** Bytes of the segments of a folder without the zeros behind their records. */
export function recordBytes(folder: string): number {
  return listSegments(folder).reduce((sum, { name }) => {
    const bytes = readFileSync(join(folder, name));
    return sum + bytes.findLastIndex(byte => byte !== 0) + 1;
  }, 0);
}

/** All records of all segments of a folder. */
export async function replayed(folder: string): Promise<Replayed> {
  const findings: ReplayFindings = { faults: [], incomplete: undefined };
  const records: string[] = [];
  for await (const { record } of replayJournal(folder, listSegments(folder), findings)) {
    const { kind, sessionId, n, body } = record;
    records.push(`${kind} ${sessionId} ${n} ${JSON.stringify(body)}`);
  }
  return { records, findings };
}
