import { cpSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Test } from 'tap';
import { replayJournal } from '../../store/left-records.ts';
import { PersistenceHealth } from '../persistence-health.ts';
import { Journal, type JournalSettings } from './journal.ts';
import { type JournalDisk, JournalFiles, listJournal, type ReplayFindings } from './journal-files.ts';
import { type Turn, TurnFile, type TurnFileHead } from './turn-file.ts';

/** A disk that fills up, fails, is slow, and recovers when the test says so. */
export class FaultyDisk implements JournalDisk {
  /** Code of the error that every write meets. */
  fault: string | undefined;
  /** Least milliseconds that a write takes in the event loop. */
  delayMs = 0;
  writes = 0;
  /** Late writes wait for `finishWrites`. */
  holds = false;
  /** Late writes that were begun. */
  readonly late: (() => void)[] = [];
  readonly #files = new Map<string, TurnFile>();

  create(path: string, head: TurnFileHead): Pick<TurnFile, 'write' | 'close'> {
    this.#check();
    const file = new TurnFile(path, head);
    return {
      write: turns => {
        const end = performance.now() + this.delayMs;
        while (performance.now() < end);
        this.#check();
        this.writes++;
        file.write(turns);
      },
      close: () => file.close(),
    };
  }

  writeLater(path: string, head: TurnFileHead, turns: readonly Turn[]): Promise<number> {
    const { promise, resolve, reject } = Promise.withResolvers<number>();
    this.late.push(() => {
      try {
        this.#check();
        const file = this.#files.get(path) ?? new TurnFile(path, head);
        this.#files.set(path, file);
        file.write(turns);
        this.writes++;
        resolve(0);
      } catch (error) {
        reject(error);
      }
    });
    if (!this.holds) setImmediate(() => this.finishWrites());
    return promise;
  }

  /** Lets the late writes end that were begun. */
  finishWrites(): void {
    for (const finish of this.late.splice(0)) finish();
  }

  close(): void {
    for (const file of this.#files.values()) file.close();
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
  readonly files: JournalFiles;
  readonly health: PersistenceHealth;
  readonly disk: FaultyDisk;
  /** Number of checkpoints that were requested. */
  readonly pressure: { count: number };
}

export function openJournal(folder: string, given: Partial<JournalSettings> = {}): TestJournal {
  const health = new PersistenceHealth();
  const disk = new FaultyDisk();
  const pressure = { count: 0 };
  const files = new JournalFiles(folder, given.synced ?? false, disk);
  const journal = new Journal(
    {
      synced: false,
      maxBytes: 16 * 1024 * 1024,
      maxWaitingBytes: 1024 * 1024,
      slowWriteMs: Number.POSITIVE_INFINITY,
      ...given,
    },
    { files, health, onPressure: () => pressure.count++ },
  );
  return { journal, files, health, disk, pressure };
}

export interface Replayed {
  /** `<kind> <session id> <n> <body>`, one each. */
  readonly records: string[];
  readonly findings: ReplayFindings;
}

/** Names of the files of a journal. */
export function filesOf(folder: string): string[] {
  return readdirSync(folder).filter(name => name.endsWith('.journal'));
}

/** All records of all files of a folder. */
export async function replayed(folder: string): Promise<Replayed> {
  const findings: ReplayFindings = { faults: [], incomplete: undefined };
  const records: string[] = [];
  for await (const { record } of replayJournal(folder, listJournal(folder), findings)) {
    const { kind, sessionId, n, body } = record;
    records.push(`${kind} ${sessionId} ${n} ${JSON.stringify(body)}`);
  }
  return { records, findings };
}

/** Records of a folder as after the end of the process: the files of a running server are locked. */
export async function copied(t: Pick<Test, 'teardown'>, folder: string): Promise<Replayed> {
  const copy = mkdtempSync(join(tmpdir(), 'ragen-journal-'));
  t.teardown(() => rmSync(copy, { recursive: true }));
  cpSync(folder, copy, { recursive: true });
  return replayed(copy);
}
