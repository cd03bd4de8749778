import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { crc32 } from 'node:zlib';
import { isOfOtherBoot } from '../lock.ts';
import { isDamage, storageFaultOf } from '../persistence-health.ts';
import {
  type JournalFault,
  type JournalFile,
  type JournalPosition,
  type JournalState,
  type PositionedRecord,
  type ReplayFindings,
  readState,
  STATE_FILE,
  turnFileName,
} from './journal-files.ts';
import { recordsOfSegment } from './legacy-segments.ts';
import { type RecordText, type ReplayedRecord, recordOf } from './records.ts';
import { TURN_FILE_FORMAT, type Turn, type TurnFileHead } from './turn-file.ts';

/** Longest time that reading blocks the event loop, including the records' effects, in milliseconds. */
const SLICE_MS = 4;
/** Kind, session id and number at the start of a line, even of a damaged one. */
const LINE_START = /^[a-z]([\w-]{1,128}) \d/;

interface StoredTurn extends Turn {
  readonly turn: number;
  readonly crc: number;
}

/**
 * Reads the records of a journal, oldest first. It pauses every few milliseconds, so that a server can answer requests
 * meanwhile. Damage is not an error: it is added to `findings`, and reading continues after it.
 * @param signal stops it between two records
 * @throws Error of SQLite where a file cannot be read now
 */
export async function* replayJournal(
  folder: string,
  files: readonly JournalFile[],
  findings: ReplayFindings,
  signal?: AbortSignal,
): AsyncGenerator<PositionedRecord> {
  let sliceEnd = performance.now() + SLICE_MS;
  const replay = new Replay(folder, files, findings);
  for (const file of files) {
    const records = file.isTurns ? replay.recordsOf(file) : recordsOfSegment(folder, file, files, findings);
    for (const found of records) {
      if (signal?.aborted) return;
      if (performance.now() >= sliceEnd) {
        await nextTurn();
        sliceEnd = performance.now() + SLICE_MS;
      }
      yield found;
    }
  }
}

/** Reads files of turns, and compares them with the journal's own state. */
class Replay {
  readonly #folder: string;
  readonly #files: readonly JournalFile[];
  readonly #findings: ReplayFindings;
  readonly #state: JournalState | undefined;
  /** Numbers of the last turns of the files read. */
  readonly #read = new Map<number, number>();

  constructor(folder: string, files: readonly JournalFile[], findings: ReplayFindings) {
    this.#folder = folder;
    this.#files = files.filter(({ isTurns }) => isTurns);
    this.#findings = findings;
    this.#state = readState(folder);
    if (this.#state?.unwrittenReplies) findings.incomplete = 'the disk took no writes when the server ended';
    const { number = 0 } = this.#state ?? {};
    if (!this.#state && this.#files.length > 0)
      this.#note('missing', { file: STATE_FILE, offset: 0 }, 'it says how far the journal was written');
    else if (number > 0 && !this.#has(number))
      this.#note('missing', { file: turnFileName(number), offset: 0 }, 'it was written last');
  }

  *recordsOf(file: JournalFile): Generator<PositionedRecord> {
    const { name, number } = file;
    let last = 0;
    let database: DatabaseSync | undefined;
    try {
      database = new DatabaseSync(join(this.#folder, name));
      const head = headOf(database);
      if (head && !this.#isReadable(file, head)) return;
      // Without a head the process ended while it made the file.
      for (const stored of head ? turnsOf(database) : []) {
        const position = { file: name, offset: stored.turn };
        const records = recordsOf(stored);
        const follows = stored.turn === last + 1;
        if (!follows || !records) this.#note('corrupt', position, undefined, follows && sessionsOf(stored));
        last = stored.turn;
        for (const record of records ?? []) yield { record, position };
      }
      this.#read.set(number, last);
      if (this.#state?.number === number) this.#expect(number, this.#state.turns);
    } catch (error) {
      // A locked file, or a failing disk, is not damage: its records would be given up.
      if (storageFaultOf(error) && !isDamage(error)) throw error;
      this.#note('unreadable', { file: name, offset: last + 1 }, (error as Error).message);
    } finally {
      database?.close();
    }
  }

  #isReadable({ name, number }: JournalFile, { boot, synced, format, after }: TurnFileHead): boolean {
    if (!synced && isOfOtherBoot(boot)) this.#findings.incomplete = 'the machine went down';
    const isFirst = !this.#files.some(other => other.number < number);
    // A checkpoint deletes the oldest first.
    if (after && !isFirst && !this.#has(after.number))
      this.#note('missing', { file: turnFileName(after.number), offset: 0 }, `${name} follows it`);
    else if (after) this.#expect(after.number, after.turns);
    if (format === TURN_FILE_FORMAT) return true;
    this.#note('unreadable', { file: name, offset: 0 }, 'it was written by another version of the server');
    return false;
  }

  /** Reports a file with fewer turns than expected. */
  #expect(number: number, turns: number): void {
    const last = this.#read.get(number);
    if (last !== undefined && last < turns)
      this.#note('cut', { file: turnFileName(number), offset: last + 1 });
  }

  #has(number: number): boolean {
    return this.#files.some(file => file.number === number);
  }

  #note(
    kind: JournalFault['kind'],
    position: JournalPosition,
    reason?: string,
    sessionIds?: readonly string[] | false,
  ): void {
    const more = { ...(reason !== undefined && { reason }), ...(sessionIds && { sessionIds }) };
    this.#findings.faults.push({ ...position, kind, ...more });
  }
}

function headOf(database: DatabaseSync): TurnFileHead | undefined {
  database.exec('PRAGMA locking_mode = EXCLUSIVE');
  const hasHead = database.prepare("SELECT 1 FROM sqlite_schema WHERE name = 'head'").get();
  const row = hasHead && database.prepare('SELECT json FROM head').get();
  return row ? (JSON.parse(String(row.json)) as TurnFileHead) : undefined;
}

/** Turns of a file, oldest first. */
function turnsOf(database: DatabaseSync): Iterable<StoredTurn> {
  const rows = database.prepare('SELECT turn, count, crc, records FROM turns ORDER BY turn').iterate();
  return rows as Iterable<unknown> as Iterable<StoredTurn>;
}

/**
 * The records of a turn.
 * @returns undefined where it is damaged, or has a record of a kind that this version does not know
 */
function recordsOf({ records, count, crc }: StoredTurn): ReplayedRecord[] | undefined {
  if (crc32(records, count) !== crc) return undefined;
  const found: ReplayedRecord[] = [];
  for (const line of linesOf(records)) {
    const afterId = line.indexOf(' ');
    const space = line.indexOf(' ', afterId + 1);
    const end = space < 0 ? line.length : space;
    const record = recordOf({
      letter: line[0] as RecordText['letter'],
      sessionId: line.slice(1, afterId),
      n: Number(line.slice(afterId + 1, end)),
      text: line.slice(end + 1),
    });
    if (!record) return undefined;
    found.push(record);
  }
  return found;
}

/** Sessions of the records of a damaged turn; undefined where not all can be identified. */
function sessionsOf({ records, count }: StoredTurn): string[] | undefined {
  const ids = linesOf(records).map(line => LINE_START.exec(line)?.[1]);
  return ids.length === count && ids.every(id => id !== undefined) ? (ids as string[]) : undefined;
}

function linesOf(records: string): string[] {
  return records === '' ? [] : records.slice(0, -1).split('\n');
}
