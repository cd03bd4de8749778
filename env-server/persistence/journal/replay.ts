import { join } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { isDamage, storageFaultOf } from '../faults.ts';
import { isOfOtherBoot } from '../lock.ts';
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
import { recordsOf, sessionsOf, TURN_FILE_FORMAT, type TurnFileHead, TurnReader } from './turn-file.ts';

/** Longest time that reading blocks the event loop, including the records' effects, in milliseconds. */
const SLICE_MS = 4;

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
    let reader: TurnReader | undefined;
    try {
      reader = new TurnReader(join(this.#folder, name));
      if (!this.#isReadable(file, reader.head)) return;
      for (const stored of reader.turns()) {
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
      reader?.close();
    }
  }

  #isReadable({ name, number }: JournalFile, head: TurnFileHead | undefined): boolean {
    // The process ended while it made the file.
    if (!head) return true;
    const { boot, synced, format, after } = head;
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
