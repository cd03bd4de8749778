import type { Logger } from 'pino';
import type {
  JournalFault,
  JournalFile,
  JournalPosition,
  ReplayFindings,
} from '../persistence/journal/journal-files.ts';
import type { OpenBody, RecordBody } from '../persistence/journal/records.ts';
import { replayJournal } from '../persistence/journal/replay.ts';
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
      log[kind === 'torn' ? 'warn' : 'error'](fault, `the journal is ${kind}: ${where}`);
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
