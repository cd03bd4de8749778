import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { crc32 } from 'node:zlib';
import type { Logger } from 'pino';
import {
  type JournalFault,
  type JournalFile,
  type JournalPosition,
  type JournalState,
  KEPT,
  type PositionedRecord,
  type ReplayFindings,
  readState,
  STATE_FILE,
  turnFileName,
} from '../persistence/journal/journal-files.ts';
import { recordsOfSegment } from '../persistence/journal/legacy-segments.ts';
import {
  type OpenBody,
  type RecordBody,
  type RecordText,
  type ReplayedRecord,
  recordOf,
} from '../persistence/journal/records.ts';
import { TURN_FILE_FORMAT, type Turn, type TurnFileHead } from '../persistence/journal/turn-file.ts';
import { isOfOtherBoot } from '../persistence/lock.ts';
import { isDamage, storageFaultOf } from '../persistence/persistence-health.ts';
import type { StoredEntry } from './session-store.ts';

/** A session in the database or in the journal. Records have no object for each, because there may be millions. */
interface LeftSession {
  /** Number of its last record in order; at first, of the last one that the database covers. */
  n: number;
  /** Position of that record, if it is in the journal. */
  position: JournalPosition | undefined;
  /** True if a record is missing: those after it do not count. */
  hasGap: boolean;
  /** Number of the first record in the journal. */
  first: number;
  kinds: StoredEntry['kind'][];
  bodies: string[];
  /** First record of the session that has the same beginning, as its own first record says. */
  like: OpenBody | undefined;
}

/**
 * Records that earlier servers left in the journal, by session. Their text is kept until they are taken. A record may be
 * there twice, and where one is missing the session stands before it.
 */
export class LeftRecords {
  readonly #sessions = new Map<string, LeftSession>();
  readonly #findings: ReplayFindings = { faults: [], incomplete: undefined };

  /**
   * Reads the journal, with pauses for other work.
   * @param covered sessions in the database, each with the number of its records there
   * @param onReply gets the replies to clients' requests that concern no session yet
   * @returns what is damaged or missing
   */
  async read(
    folder: string,
    files: readonly JournalFile[],
    covered: Iterable<readonly [id: string, records: number]>,
    onReply: (body: RecordBody<'clientReply'>) => void,
    { log, signal }: { readonly log: Logger; readonly signal: AbortSignal },
  ): Promise<ReplayFindings> {
    const begun = performance.now();
    for (const [id, n] of covered) this.#sessions.set(id, leftSession(n));
    /** The last completely recorded session; later ones may have the same beginning. */
    let example: { readonly id: string; readonly body: OpenBody } | undefined;
    let records = 0;
    for await (const { record, position } of replayJournal(folder, files, this.#findings, signal)) {
      if (record.kind === 'clientReply') {
        onReply(record.body);
        continue;
      }
      const { sessionId: id, letter, n, text } = record;
      const body = record.kind === 'open' ? record.body : undefined;
      if (body?.episode) example = { id, body };
      const session = this.#next(id, n, position);
      if (!session) continue;
      records++;
      if (session.kinds.length === 0) session.first = n;
      if (body && body.like === example?.id) session.like = example?.body;
      session.kinds.push(letter);
      session.bodies.push(text);
    }
    if (!signal.aborted) this.#report(log, records, Math.round(performance.now() - begun));
    return this.#findings;
  }

  /** The session of a record, if it is the next one. */
  #next(id: string, n: number, position: JournalPosition): LeftSession | undefined {
    const session = this.#sessions.get(id) ?? leftSession(0);
    this.#sessions.set(id, session);
    if (session.hasGap || n <= session.n) return undefined;
    session.hasGap = n > session.n + 1;
    if (session.hasGap) return undefined;
    session.n = n;
    session.position = position;
    return session;
  }

  #report(log: Logger, records: number, ms: number): void {
    const { faults, incomplete } = this.#findings;
    const behind = [...this.#sessions.keys()].filter(id => this.isBehind(id)).length;
    const counts = { records, behind, ms };
    for (const fault of faults) {
      const { kind, file, offset } = fault;
      const where = kind === 'missing' ? file : `${file} from ${offset} on`;
      const kept = KEPT.has(kind) ? '; the next checkpoint keeps it as .damaged-<time>' : '';
      log[kind === 'torn' ? 'warn' : 'error'](fault, `the journal is ${kind}: ${where}${kept}`);
    }
    if (incomplete !== undefined)
      log.error(counts, `the last records of the journal may be missing: ${incomplete}`);
    log.info(counts, `read ${records} records of the journal`);
  }

  /** Sessions with records that are not yet taken. */
  *ids(): Generator<string> {
    for (const [id, { kinds }] of this.#sessions) if (kinds.length > 0) yield id;
  }

  /**
   * True if a session is, or may be, behind what its clients saw last: its records are missing; or damage followed its last
   * record, and the sessions of the damaged records are unknown. A request for it gets `session_rolled_back`.
   */
  isBehind(id: string): boolean {
    const session = this.#sessions.get(id);
    if (!session) return false;
    const { faults, incomplete } = this.#findings;
    if (session.hasGap || incomplete !== undefined) return true;
    return faults.some(fault => fault.kind !== 'torn' && this.#mayConcern(fault, id, session));
  }

  #mayConcern(fault: JournalFault, id: string, { position }: LeftSession): boolean {
    const { sessionIds } = fault;
    const named = sessionIds?.every(each => this.#sessions.has(each)) ?? false;
    if (named && !sessionIds!.includes(id)) return false;
    return position === undefined || isBefore(position, fault);
  }

  /** Returns the records of a session once. */
  take(id: string): { readonly entries: StoredEntry[]; readonly like: OpenBody | undefined } {
    const session = this.#sessions.get(id) ?? leftSession(0);
    const { first, kinds, bodies, like } = session;
    [session.kinds, session.bodies] = [[], []];
    return { entries: bodies.map((body, i) => ({ epoch: 1, n: first + i, kind: kinds[i], body })), like };
  }

  /** All are taken. */
  clear(): void {
    this.#sessions.clear();
  }
}

function leftSession(n: number): LeftSession {
  return { n, position: undefined, hasGap: false, first: n, kinds: [], bodies: [], like: undefined };
}

/** Files are named in creation order. */
function isBefore(a: JournalPosition, b: JournalPosition): boolean {
  return a.file === b.file ? a.offset < b.offset : a.file < b.file;
}

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
