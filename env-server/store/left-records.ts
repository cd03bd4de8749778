import type { Logger } from 'pino';
import { type ReplayFindings, SessionContinuity } from '../persistence/journal/continuity.ts';
import type { JournalFile } from '../persistence/journal/journal-files.ts';
import type { OpenBody, RecordBody } from '../persistence/journal/records.ts';
import { replayJournal } from '../persistence/journal/replay.ts';
import type { StoredEntry } from './session-store.ts';

/** Records of a session that no checkpoint covers, without an object for each, because there may be millions. */
interface Tail {
  /** Number of the first record. */
  readonly first: number;
  readonly kinds: StoredEntry['kind'][];
  readonly bodies: string[];
  /** First record of the session that has the same beginning, as its own first record says. */
  readonly like: OpenBody | undefined;
}

/** Records that earlier servers left in the journal, by session. Their text is kept until they are taken. */
export class LeftRecords {
  readonly #tails = new Map<string, Tail>();
  /** Sessions that may have lost records. */
  #behind: ReadonlySet<string> = new Set();

  /**
   * Reads the journal, with pauses for other work.
   * @param covered sessions in the database, each with the number of its records there
   * @param onReply gets the replies to clients' requests that concern no session yet
   */
  async read(
    folder: string,
    files: readonly JournalFile[],
    covered: Iterable<readonly [id: string, records: number]>,
    onReply: (body: RecordBody<'clientReply'>) => void,
    { log, signal }: { readonly log: Logger; readonly signal: AbortSignal },
  ): Promise<void> {
    const begun = performance.now();
    const findings: ReplayFindings = { faults: [], incomplete: undefined };
    const continuity = new SessionContinuity();
    for (const [id, records] of covered) continuity.covers(id, records);
    /** The last completely recorded session; later ones may have the same beginning. */
    let example: { readonly id: string; readonly body: OpenBody } | undefined;
    let records = 0;
    for await (const { record, position } of replayJournal(folder, files, findings, signal)) {
      if (record.kind === 'clientReply') {
        onReply(record.body);
        continue;
      }
      const { sessionId: id, letter, n, text } = record;
      const body = record.kind === 'open' ? record.body : undefined;
      if (body?.episode) example = { id, body };
      if (continuity.verdict(record, position) !== 'apply') continue;
      records++;
      const like = body && body.like === example?.id ? example?.body : undefined;
      const tail = this.#tails.get(id) ?? { first: n, kinds: [], bodies: [], like };
      if (tail.first === n) this.#tails.set(id, tail);
      tail.kinds.push(letter);
      tail.bodies.push(text);
    }
    if (signal.aborted) return;
    this.#behind = continuity.behind(findings);
    const counts = { records, behind: this.#behind.size, ms: Math.round(performance.now() - begun) };
    for (const fault of findings.faults) {
      const { kind, file, offset } = fault;
      const where = kind === 'missing' ? file : `${file} from ${offset} on`;
      log[kind === 'torn' ? 'warn' : 'error'](fault, `the journal is ${kind}: ${where}`);
    }
    if (findings.incomplete !== undefined)
      log.error(counts, `the last records of the journal may be missing: ${findings.incomplete}`);
    log.info(counts, `read ${records} records of the journal`);
  }

  ids(): Iterable<string> {
    return this.#tails.keys();
  }

  isBehind(id: string): boolean {
    return this.#behind.has(id);
  }

  /** Returns the records of a session once. */
  take(id: string): { readonly entries: StoredEntry[]; readonly like: OpenBody | undefined } {
    const { first = 0, kinds = [], bodies = [], like } = this.#tails.get(id) ?? {};
    this.#tails.delete(id);
    return { entries: bodies.map((body, i) => ({ epoch: 1, n: first + i, kind: kinds[i], body })), like };
  }
}
