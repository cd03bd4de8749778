import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Json } from '../../../shared/json.ts';
import type { Durability } from '../../persistence/durability.ts';
import { recordText } from '../../persistence/journal/journal.ts';
import {
  NO_SESSION,
  RECORD_KINDS,
  type RecordBody,
  type RecordKind,
} from '../../persistence/journal/records.ts';
import {
  type PersistenceHealth,
  RetryTimer,
  STORAGE_RETRY_SECONDS,
  storageFaultOf,
} from '../../persistence/persistence-health.ts';
import type { CheckpointChange, RowWrite } from '../../persistence/session-rows.ts';
import { Problem } from '../../problems.ts';
import { type NewSession, NotStorable } from '../../store/session-store.ts';
import {
  SqliteSessionStore,
  type SqliteStoreParts,
  type SqliteStoreSettings,
} from '../../store/sqlite-session-store.ts';
import type { EpisodeState } from '../episodes/episode.ts';
import type { EndedSession } from '../finished-sessions.ts';
import type { Session } from '../session.ts';
import {
  type ChangedReplies,
  changedReplies,
  changeOf,
  lostReason,
  newSession,
  repliesOf,
  replyRows,
  type SessionJournal,
} from './new-session.ts';
import { upgradeFirstForm } from './session-image.ts';
import { takeAll } from './taken-sessions.ts';
import type { StorageParts } from './written-sessions.ts';

const MS_PER_S = 1000;
/** Longest time that reopening sessions may block the event loop, in milliseconds. */
const SLICE_MS = 4;
/** Sessions that a message names when they cannot be saved. */
const MAX_NAMED = 100;
/** This server is the only writer. */
const EPOCH = 1;
/** A single server checks its limits itself. */
const NO_LIMITS = [Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY] as const;

export interface PersistenceSettings extends SqliteStoreSettings {
  readonly durability: Durability;
  /** Time between checkpoints; 0 makes only those that the journal needs. */
  readonly checkpointSeconds: number;
}

export interface EmbeddedSessionsParts extends StorageParts, Pick<SqliteStoreParts, 'disk'> {
  readonly health: PersistenceHealth;
}

/**
 * The sessions of a server that is alone with its folder. All of them are in memory: it takes those of earlier servers at the
 * start, records operations, and makes checkpoints of changed sessions, from time to time and at the end.
 */
export class EmbeddedSessions implements SessionJournal {
  readonly isShared = false;
  readonly #parts: EmbeddedSessionsParts;
  readonly #store: SqliteSessionStore;
  readonly #checkpointMs: number;
  /** Sessions with a checkpoint in progress. */
  readonly #writing = new Set<Session>();
  readonly #retry = new RetryTimer(() => void this.checkpoint());
  readonly #stop = new AbortController();
  #timer: NodeJS.Timeout | undefined;
  #resuming: Promise<void> | undefined;
  #underWay: Promise<void> | undefined;
  /** Called when the next checkpoint that begins, or a later one, has succeeded. */
  #awaiting: (() => void)[] = [];
  /** True once the sessions of earlier servers are open. */
  #begun = false;
  #finished = false;

  constructor(settings: PersistenceSettings, parts: EmbeddedSessionsParts) {
    const { sessions, health, log, disk } = parts;
    this.#parts = parts;
    const onPressure = () => this.#due();
    this.#store = new SqliteSessionStore(settings, { health, log, disk, now: sessions.now, onPressure });
    this.#checkpointMs = settings.durability === 'none' ? 0 : settings.checkpointSeconds * MS_PER_S;
  }

  /**
   * Reopens the sessions of earlier servers. Resolves at once if they have left records, which are replayed meanwhile; see
   * `SessionManager.resumption`. Call it once, when the environments are registered.
   */
  async start(): Promise<void> {
    const { sessions } = this.#parts;
    const { clock, ended, replies, droppedKeys } = this.#store.history();
    if (clock) sessions.goOnFrom(clock);
    const now = sessions.now();
    for (const row of ended) if (row.forgetAt > now) sessions.recallEnded(row as EndedSession);
    for (const known of repliesOf(replies, droppedKeys))
      sessions.replies(known.owner).recall(known.replies, known.dropped);
    upgradeFirstForm(this.#store);
    const { hasRecords } = this.#store;
    this.#resuming = this.#resume(hasRecords);
    if (!hasRecords) return this.#resuming;
    this.#resuming.catch(() => undefined);
    sessions.resumption = this.#resuming;
  }

  /** @throws Problem where the folder cannot be read or written: the server is then not ready, and loses nothing */
  async #resume(hasRecords: boolean): Promise<void> {
    const { sessions, log } = this.#parts;
    const { signal } = this.#stop;
    const remember = ({ owner, ...reply }: RecordBody<'clientReply'>) =>
      sessions.replies(owner).remember(reply);
    try {
      if (hasRecords) await this.#store.readRecords(remember, signal);
      const taking = { ...this.#parts, store: this.#store, signal };
      const resumed = await takeAll(taking, hasRecords ? SLICE_MS : undefined);
      if (this.#finished) return;
      this.#begin(resumed);
    } catch (error) {
      const reason = storageFaultOf(error)?.reason ?? (error as Error).message;
      const what = `the sessions of the server before this one cannot be opened: ${reason}`;
      log.error({ err: error }, what);
      throw new Problem('storage_failed', `${what}; restart the server`, {
        retryAfterSeconds: STORAGE_RETRY_SECONDS,
        cause: error,
      });
    }
    if (hasRecords) void this.checkpoint();
  }

  #begin(resumed: readonly string[]): void {
    const { sessions } = this.#parts;
    this.#store.begin(resumed, [...this.#housekeeping()]);
    sessions.resumption = undefined;
    this.#begun = true;
    if (this.#checkpointMs > 0) this.#timer = setInterval(() => this.#due(), this.#checkpointMs).unref();
  }

  get #active(): boolean {
    return this.#begun && !this.#finished;
  }

  requireRoom(): void {
    if (this.#active) this.#store.journal?.requireRoom();
  }

  deliver(reply: () => void, reads = false): void {
    const { journal } = this.#store;
    if (journal && this.#active) journal.deliver(reply, reads);
    else reply();
  }

  get isSlow(): boolean {
    return this.#store.journal?.isSlow ?? false;
  }

  get oldestReply(): object | undefined {
    return this.#store.journal?.oldestReply;
  }

  /**
   * Records an operation on a session. A checkpoint stores a record that is too large; until then the session is `storing`.
   */
  append<K extends RecordKind>(session: Session, kind: K, body: RecordBody<K>): void {
    if (!this.#active || !this.#store.journal) return;
    const n = session.recorded + 1;
    const text = recordText(body as Json);
    session.recorded = n;
    if (text === undefined) this.#storeLater(session);
    else this.#store.append(session.id, EPOCH, n, RECORD_KINDS[kind], text);
  }

  /** Sessions of one call share the text of their beginning: their records follow one another in one file. */
  opened(sessions: readonly Session[]): void {
    if (!this.#active || !this.#store.journal) return;
    let first: { readonly id: string; readonly episode: EpisodeState } | undefined;
    const fresh: NewSession[] = [];
    for (const session of sessions) {
      const episode = session.episode.capture();
      const same = first?.episode.state === episode.state ? first.id : undefined;
      first ??= { id: session.id, episode };
      const { body, ...stored } = newSession(session, this.#parts, { episode, like: same });
      const record = recordText(body as unknown as Json);
      session.recorded = 1;
      if (record === undefined) this.#storeLater(session);
      else fresh.push({ ...stored, record, ttlMs: session.ttlMs });
    }
    const [{ owner, variant }] = sessions;
    this.#store.open(owner, variant.environment.spec.id, NO_LIMITS, fresh);
  }

  ended(session: Session, { owner, ending, reason, forgetAt }: EndedSession): void {
    if (this.#finished) return;
    const n = this.#begun ? ++session.recorded : session.recorded;
    const at = { epoch: EPOCH, n, hasCheckpoint: session.image !== undefined };
    this.#store.end(session.id, this.#begun ? at : undefined, { owner, ending, reason, forgetAt }, 0);
  }

  clientReply(body: RecordBody<'clientReply'>): Promise<void> | undefined {
    if (!this.#active || !this.#store.journal) return undefined;
    const text = recordText(body as unknown as Json);
    if (text === undefined) return this.#covering();
    this.#store.append(NO_SESSION, EPOCH, 0, RECORD_KINDS.clientReply, text);
    return undefined;
  }

  #storeLater(session: Session): void {
    const storing = this.#covering().then(() => {
      if (session.storing === storing) session.storing = undefined;
    });
    session.storing = storing;
  }

  /**
   * Makes a checkpoint that includes this turn; one in progress may have passed some of it.
   * @returns a promise that resolves when it has succeeded, after any number of attempts; never after the end
   */
  async #covering(): Promise<void> {
    await nextTurn();
    const covered = new Promise<void>(resolve => this.#awaiting.push(resolve));
    await this.#underWay;
    this.#due();
    await covered;
  }

  /** Makes a due checkpoint, unless a failed one is scheduled to be repeated. */
  #due(): void {
    if (this.#active && !this.#retry.pending) void this.checkpoint();
  }

  /** Writes the changes since the last checkpoint in small steps. A failure is logged, and the next checkpoint repeats it. */
  checkpoint(): Promise<void> {
    this.#underWay ??= this.#attempt().finally(() => {
      this.#underWay = undefined;
    });
    return this.#underWay;
  }

  async #attempt(): Promise<void> {
    const { health } = this.#parts;
    try {
      await this.#writeChanged();
      if (this.#finished) return;
      this.#retry.succeeded();
      health.succeeded('checkpoint');
    } catch (error) {
      // At the end everything is written at once.
      if (this.#finished) return;
      health.failed('checkpoint', error);
      this.#retry.failed();
    }
  }

  async #writeChanged(): Promise<void> {
    const { sessions } = this.#parts;
    const awaiting = this.#awaiting.slice();
    const mark = this.#store.mark();
    const replies = changedReplies(sessions.clientReplies());
    try {
      for await (const _ of this.#store.write(this.#changes(sessions.open(), replies)))
        if (this.#finished) return;
    } catch (error) {
      if (!this.#finished) this.#giveUp();
      throw error;
    }
    await this.#store.conclude(mark, [...this.#housekeeping()]);
    if (this.#finished) return;
    for (const { memory, changes } of replies) memory.stored(changes);
    this.#awaiting.splice(0, awaiting.length);
    for (const resolve of awaiting) resolve();
  }

  /** Sessions that were not completely written count as changed again. */
  #giveUp(): void {
    for (const session of this.#writing) session.changed = true;
    this.#writing.clear();
  }

  /** Changes of sessions and of replies to clients. */
  *#changes(sessions: Iterable<Session>, replies: readonly ChangedReplies[]): Generator<CheckpointChange> {
    for (const session of sessions) if (session.changed) yield* this.#changesOf(session);
    // A reply that names a session must not be stored without it.
    yield* replyRows(replies, this.#parts.sessions.now());
  }

  *#changesOf(session: Session): Generator<CheckpointChange> {
    const { id, owner } = session;
    session.changed = false;
    this.#writing.add(session);
    const written = () => void this.#writing.delete(session);
    let lost = lostReason(session, this.#parts.catalog);
    if (lost === undefined) {
      try {
        const { change, stored } = changeOf(session, this.#parts);
        yield* this.#store.changesOf(id, change);
        yield stored;
      } catch (error) {
        if (!(error instanceof NotStorable)) throw error;
        this.#noteUnsaved(session, error);
        if (!session.image?.isThere) lost = `it could not be stored: ${error.message}`;
      }
    }
    if (lost !== undefined) yield this.#store.lost(id, owner, lost);
    yield written;
  }

  #noteUnsaved(session: Session, error: NotStorable): void {
    const { log, sessions } = this.#parts;
    if (session.unsaved === undefined) {
      sessions.unsaved++;
      const what = `session ${session.id} cannot be stored: ${error.message}`;
      log.error({ session_id: session.id, err: error }, what);
    }
    session.cannotBeStored(error.message);
  }

  /**
   * Writes everything and closes the files, for a server that ends. Sessions that cannot be stored end here; the log names
   * what cannot be written. Does nothing the second time.
   */
  finish(): void {
    if (this.#finished) return;
    const { sessions, catalog } = this.#parts;
    clearInterval(this.#timer);
    this.#retry.stop();
    this.#stop.abort();
    if (!this.#begun) {
      // The next start begins where this one did.
      this.#finished = true;
      this.#store.seal();
      this.#store.close(false);
      return;
    }
    for (const session of sessions.open()) {
      const reason = lostReason(session, catalog);
      if (reason !== undefined) sessions.end(session, 'session_lost', reason);
    }
    this.#finished = true;
    this.#store.seal();
    const error = this.#writeLast();
    const waiting = this.#store.close(error === undefined);
    if (error !== undefined) this.#logUnsaved(error, waiting);
  }

  /** The same; resolves when nothing of the folder is being read any more. */
  async close(): Promise<void> {
    this.finish();
    await this.#resuming?.catch(() => undefined);
  }

  /**
   * Writes everything that the database lacks; `#writing` has what it could not write.
   * @returns the reason
   */
  #writeLast(): unknown {
    const { sessions } = this.#parts;
    this.#giveUp();
    const changed = [...sessions.open()].filter(session => session.changed);
    try {
      this.#store.writeNow(this.#changes(changed, changedReplies(sessions.clientReplies())));
      const saved = [...sessions.open()].filter(session => session.unsaved === undefined);
      const atRest = saved.map(({ id }) => ['mark', { id, standing: 'atRest' }] as const);
      this.#store.concludeNow([...atRest, ...this.#housekeeping()]);
      return undefined;
    } catch (error) {
      for (const session of changed) if (session.changed) this.#writing.add(session);
      return error;
    }
  }

  /** Changes that every complete write includes: sessions with outdated rows, forgotten ones, the time. */
  *#housekeeping(): Generator<RowWrite> {
    const { sessions } = this.#parts;
    const now = sessions.now();
    for (const { id, unsaved } of sessions.open())
      if (unsaved !== undefined) yield ['mark', { id, standing: 'open' }];
    yield ['forget', { now, droppedBefore: now - 2 * sessions.keepKeysMs }];
    yield ['putClock', sessions.clock.moment];
  }

  /**
   * Logs what the next start will lack.
   * @param waiting unwritten bytes of the journal
   */
  #logUnsaved(error: unknown, waiting: number): void {
    const { log, sessions } = this.#parts;
    const ids = [...this.#writing].filter(({ closed }) => !closed).map(({ id }) => id);
    const shown = ids.slice(0, MAX_NAMED);
    const details = { err: error, sessions: shown, count: ids.length, journal_bytes_lost: waiting };
    const what = `${ids.length} of ${sessions.size} sessions could not be written to the database`;
    const reason = storageFaultOf(error)?.reason ?? (error as Error).message;
    const more = ids.length > MAX_NAMED ? ` and ${ids.length - MAX_NAMED} more` : '';
    const named = `${shown.join(', ')}${more}`;
    const effect = !this.#store.journal
      ? `they stand where they were last stored, or are lost: ${named}`
      : waiting === 0
        ? 'the journal has them, and the next start resumes them from it'
        : `the journal misses the last ${waiting} bytes, so they may stand before what their clients saw last: ${named}`;
    log.error(details, `${what}: ${reason}; ${effect}`);
  }
}
