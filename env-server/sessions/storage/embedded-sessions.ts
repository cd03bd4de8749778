import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Json } from '../../../shared/json.ts';
import type { Durability } from '../../persistence/durability.ts';
import { RecordTooLarge, recordText } from '../../persistence/journal/journal.ts';
import {
  NO_SESSION,
  RECORD_KINDS,
  type RecordBody,
  type RecordKind,
} from '../../persistence/journal/records.ts';
import type { PersistenceHealth } from '../../persistence/persistence-health.ts';
import { RetryTimer } from '../../persistence/retry-timer.ts';
import type { ReplyRow } from '../../persistence/session-rows.ts';
import { storageFaultOf } from '../../persistence/storage-problem.ts';
import { type NewSession, NotStorable } from '../../store/session-store.ts';
import {
  type LostSession,
  SqliteSessionStore,
  type SqliteStoreParts,
  type SqliteStoreSettings,
} from '../../store/sqlite-session-store.ts';
import type { EndedSession } from '../ended.ts';
import type { EpisodeState } from '../episodes/episode.ts';
import { type ReplyCache, type ReplyChanges, storedReply } from '../replies/reply-cache.ts';
import type { Session } from '../session.ts';
import { upgradeFirstForm } from './first-form.ts';
import { lostReason } from './lost-reason.ts';
import { changeOf, type NewSessionParts, newSession } from './new-session.ts';
import { hashesOf, textOfHashes } from './session-image.ts';
import type { SessionJournal } from './session-journal.ts';
import type { StoredReply } from './stored-session.ts';
import { type ReopenParts, reopen } from './taken-sessions.ts';

const MS_PER_S = 1000;
/** Milliseconds for which checkpoints, or opening sessions again, may hold up everything else at once. */
const SLICE_MS = 4;
/** Sessions that are named when they cannot be saved. */
const MAX_NAMED = 100;
/** This server is the only writer. */
const EPOCH = 1;
/** A server that is alone checks its limits itself. */
const NO_LIMITS = [Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY] as const;

export interface PersistenceSettings extends SqliteStoreSettings {
  readonly durability: Durability;
  /** Time between checkpoints; 0 makes none but those that the journal needs. */
  readonly checkpointSeconds: number;
}

export interface EmbeddedSessionsParts
  extends Omit<ReopenParts, 'store' | 'refreshEnvironments'>,
    NewSessionParts,
    Pick<SqliteStoreParts, 'disk'> {
  readonly health: PersistenceHealth;
}

interface ResumedCounts {
  resumed: number;
  rolled_back: number;
  lost: number;
}

/** Changes of a client's replies. */
interface ClientReplies {
  readonly owner: string;
  readonly memory: ReplyCache;
  readonly changes: ReplyChanges;
}

/**
 * The sessions of a server that is alone with its folder. All of them are in memory: it takes those of earlier servers at
 * the start, records what is done, and makes checkpoints of those that changed, now and then and at the end.
 */
export class EmbeddedSessions implements SessionJournal {
  readonly isShared = false;
  readonly #parts: EmbeddedSessionsParts;
  readonly #store: SqliteSessionStore;
  readonly #checkpointMs: number;
  /** Sessions with a checkpoint under way. */
  readonly #writing = new Set<Session>();
  readonly #retry = new RetryTimer(() => void this.checkpoint());
  readonly #stop = new AbortController();
  #timer: NodeJS.Timeout | undefined;
  #underWay: Promise<void> | undefined;
  /** Called when the next checkpoint that begins, or one after it, has succeeded. */
  #awaiting: (() => void)[] = [];
  /** The sessions of earlier servers are there. */
  #begun = false;
  #finished = false;

  constructor(settings: PersistenceSettings, parts: EmbeddedSessionsParts) {
    const { sessions, health, log, disk } = parts;
    this.#parts = parts;
    this.#store = new SqliteSessionStore(settings, {
      health,
      log,
      disk,
      now: sessions.now,
      onPressure: () => this.#due(),
    });
    this.#checkpointMs = settings.durability === 'none' ? 0 : settings.checkpointSeconds * MS_PER_S;
  }

  /**
   * Opens the sessions of earlier servers again. Resolves at once where they have left records: what these say is done
   * again meanwhile, see `SessionManager.resumption`. Call it once, when the environments are there.
   */
  async start(): Promise<void> {
    const { sessions } = this.#parts;
    const { clock, ended, replies, droppedKeys } = this.#store.history();
    if (clock) sessions.goOnFrom(clock);
    const now = sessions.now();
    for (const row of ended) if (row.forgetAt > now) sessions.recallEnded(row as EndedSession);
    for (const [owner, known] of repliesByOwner(replies, droppedKeys))
      sessions.recallReplies(owner, known.replies, known.dropped);
    upgradeFirstForm(this.#store);
    if (this.#store.hasRecords) sessions.resumption = this.#resume();
    else this.#begin(await this.#takeAll());
  }

  async #resume(): Promise<void> {
    const { sessions, health } = this.#parts;
    await this.#store.readRecords(
      ({ owner, ...reply }) => sessions.replies(owner).remember(reply),
      this.#stop.signal,
    );
    const resumed = await this.#takeAll(SLICE_MS);
    if (this.#finished) return;
    try {
      this.#begin(resumed);
    } catch (error) {
      // The next checkpoint makes it good.
      health.failed('checkpoint', error);
    }
    void this.checkpoint();
  }

  /**
   * Takes the sessions that are in the store.
   * @param sliceMs lets others have their turn after so long
   * @returns ids of those that are as the database has them
   */
  async #takeAll(sliceMs = Number.POSITIVE_INFINITY): Promise<string[]> {
    const { sessions, log } = this.#parts;
    const resumed: string[] = [];
    const counts: ResumedCounts = { resumed: 0, rolled_back: 0, lost: 0 };
    let sliceEnd = performance.now() + sliceMs;
    for (const id of this.#store.ids()) {
      if (performance.now() >= sliceEnd) {
        await nextTurn();
        sliceEnd = performance.now() + sliceMs;
      }
      if (this.#finished) return resumed;
      await this.#take(id, counts);
      if (sessions.get(id)?.changed === false) resumed.push(id);
    }
    if (counts.resumed + counts.lost > 0) log.info(counts, `resumed ${counts.resumed} sessions`);
    return resumed;
  }

  /** Opens a session that is in the store again, or notes how it ended. */
  async #take(id: string, counts: ResumedCounts): Promise<void> {
    const { sessions } = this.#parts;
    const forgetMs = sessions.forgetAt - sessions.now();
    const taken = this.#store.take(id, undefined, undefined, forgetMs);
    let ended = taken.state === 'ended' ? taken.tombstone : undefined;
    if (taken.state === 'load') {
      const found = await reopen({ ...this.#parts, store: this.#store }, id, taken.content);
      if (!('ending' in found)) {
        counts.resumed++;
        if (!taken.content.isBehind) return;
        found.rollBack();
        counts.rolled_back++;
        return;
      }
      ended = found;
      this.#store.end(id, undefined, ended, forgetMs);
    }
    if (!ended) return;
    if (ended.ending === 'session_lost') counts.lost++;
    const { forgetAt = sessions.forgetAt } = ended;
    if (forgetAt > sessions.now()) sessions.recallEnded({ id, reason: null, ...ended, forgetAt });
  }

  #begin(resumed: readonly string[]): void {
    const { sessions } = this.#parts;
    sessions.resumption = undefined;
    this.#begun = true;
    if (this.#checkpointMs > 0) this.#timer = setInterval(() => this.#due(), this.#checkpointMs).unref();
    this.#store.begin(resumed, sessions.clock.moment);
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

  /** Records what was done with a session. A record that is too large is kept by a checkpoint: until then the session is `storing`. */
  append<K extends RecordKind>(session: Session, kind: K, body: RecordBody<K>): void {
    if (!this.#active || !this.#store.journal) return;
    const n = session.recorded + 1;
    const text = textOf(body as Json, session.id);
    session.recorded = n;
    if (text === undefined) this.#storeLater(session);
    else this.#store.append(session.id, EPOCH, n, RECORD_KINDS[kind], text);
  }

  opened(sessions: readonly Session[], like?: Session): void {
    if (!this.#active || !this.#store.journal) return;
    let first: { readonly id: string; readonly episode: EpisodeState } | undefined;
    if (like && like !== sessions[0]) first = { id: like.id, episode: like.episode.capture() };
    const fresh: NewSession[] = [];
    for (const session of sessions) {
      const episode = session.episode.capture();
      const same = first?.episode.state === episode.state ? first.id : undefined;
      first ??= { id: session.id, episode };
      const { body, ...stored } = newSession(session, this.#parts, { episode, like: same });
      const record = textOf(body as unknown as Json, session.id);
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
    const text = textOf(body as unknown as Json, NO_SESSION);
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
   * Makes a checkpoint of all that is done in this turn: one that is under way may have passed some of it.
   * @returns a promise that resolves when it has succeeded, however often it must be tried; never after the end
   */
  async #covering(): Promise<void> {
    await nextTurn();
    const covered = new Promise<void>(resolve => this.#awaiting.push(resolve));
    await this.#underWay;
    this.#due();
    await covered;
  }

  /** A checkpoint is due, unless one that failed is to be repeated later. */
  #due(): void {
    if (this.#active && !this.#retry.pending) void this.checkpoint();
  }

  /** Writes what changed since the last one, a little at a time. A failure is logged, and made good by the next. */
  checkpoint(): Promise<void> {
    const { health } = this.#parts;
    this.#underWay ??= this.#writeChanged()
      .then(
        () => {
          if (this.#finished) return;
          this.#retry.succeeded();
          health.succeeded('checkpoint');
        },
        error => {
          // At the end everything is written at once.
          if (this.#finished) return;
          health.failed('checkpoint', error);
          this.#retry.failed();
        },
      )
      .finally(() => {
        this.#underWay = undefined;
      });
    return this.#underWay;
  }

  async #writeChanged(): Promise<void> {
    const { sessions } = this.#parts;
    const awaiting = this.#awaiting.slice();
    const mark = this.#store.mark();
    const replies = clientReplies(sessions.clientReplies());
    let written: Promise<void>[] = [];
    let sliceEnd = performance.now() + SLICE_MS;
    for (const session of sessions.open()) {
      if (this.#finished) return;
      if (!session.changed) continue;
      const one = this.#checkpointOf(session);
      one.catch(() => undefined);
      written.push(one);
      if (performance.now() < sliceEnd) continue;
      await allOf(written);
      written = [];
      sliceEnd = performance.now() + SLICE_MS;
    }
    await allOf(written);
    // A reply that names a session must not be there without it.
    for (const [table, row, length] of replyRows(replies, sessions.now()))
      if (this.#store.gather(table, row, length)) await this.#store.flush();
    if (this.#finished) return;
    await this.#store.conclude(mark, { ...this.#housekeeping(), marks: [this.#unsavedMark()] });
    if (this.#finished) return;
    for (const { memory, changes } of replies) memory.stored(changes);
    this.#awaiting.splice(0, awaiting.length);
    for (const resolve of awaiting) resolve();
  }

  async #checkpointOf(session: Session): Promise<void> {
    const { id } = session;
    const at = { epoch: EPOCH, n: session.recorded };
    session.changed = false;
    this.#writing.add(session);
    try {
      const { change, stored } = this.#changeOf(session);
      await this.#store.checkpoint(id, at, change);
      stored();
    } catch (error) {
      if (!(error instanceof NotStorable)) {
        session.changed = true;
        if (!this.#finished) this.#writing.delete(session);
        throw error;
      }
      const lost = this.#cannotStore(session, error);
      if (lost) await this.#store.checkpoint(id, at, lost);
    }
    this.#writing.delete(session);
  }

  /** @throws NotStorable */
  #changeOf(session: Session) {
    const lost = lostReason(session, this.#parts.catalog);
    if (lost !== undefined) return { change: { owner: session.owner, lost }, stored: () => undefined };
    return changeOf(session, this.#parts);
  }

  /** Notes that a session cannot be made text. @returns what the store gets where it has nothing of the session */
  #cannotStore(session: Session, error: NotStorable): LostSession | undefined {
    const { id, owner, image } = session;
    const { message: reason } = error;
    if (session.unsaved === undefined) {
      this.#parts.sessions.unsaved++;
      this.#parts.log.error({ session_id: id, err: error }, `session ${id} cannot be stored: ${reason}`);
    }
    session.cannotBeStored(reason);
    return image?.isThere ? undefined : { owner, lost: `it could not be stored: ${reason}` };
  }

  /**
   * Writes everything and closes the files, for a server that ends. Sessions that cannot be kept end here; the log names
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
      if (reason !== undefined) sessions.lose(session, reason);
    }
    this.#finished = true;
    this.#store.seal();
    const error = this.#writeLast();
    const waiting = this.#store.close(error === undefined);
    if (error !== undefined) this.#logUnsaved(error, waiting);
  }

  /** Writes all that the database does not have; `#writing` has those that it could not. @returns why */
  #writeLast(): unknown {
    const { sessions } = this.#parts;
    const changed = [...sessions.open()].filter(session => session.changed || this.#writing.has(session));
    for (const session of changed) this.#writing.add(session);
    try {
      for (const session of changed) this.#checkpointNow(session);
      for (const [table, row, length] of replyRows(clientReplies(sessions.clientReplies()), sessions.now()))
        if (this.#store.gather(table, row, length)) this.#store.flushNow();
      this.#store.flushNow();
      const saved = [...sessions.open()].filter(session => session.unsaved === undefined);
      const marks = [{ ids: saved.map(({ id }) => id), standing: 'atRest' as const }, this.#unsavedMark()];
      this.#store.concludeNow({ ...this.#housekeeping(), marks });
      return undefined;
    } catch (error) {
      return error;
    }
  }

  #checkpointNow(session: Session): void {
    const { id } = session;
    const written = () => void this.#writing.delete(session);
    try {
      this.#store.checkpointNow(id, this.#changeOf(session).change, written);
    } catch (error) {
      if (!(error instanceof NotStorable)) throw error;
      const lost = this.#cannotStore(session, error);
      if (lost) this.#store.checkpointNow(id, lost, written);
      else written();
    }
  }

  /** Sessions with a row that is older than they are. */
  #unsavedMark() {
    const unsaved = [...this.#parts.sessions.open()].filter(session => session.unsaved !== undefined);
    return { ids: unsaved.map(({ id }) => id), standing: 'open' as const };
  }

  /** Forgotten sessions, and the time, which every complete write includes. */
  #housekeeping() {
    const { sessions } = this.#parts;
    const now = sessions.now();
    return {
      forget: { now, droppedBefore: now - 2 * sessions.keepKeysMs },
      clock: sessions.clock.moment,
    };
  }

  /**
   * Logs what the next start will miss.
   * @param waiting bytes of the journal that were not written
   */
  #logUnsaved(error: unknown, waiting: number): void {
    const { log, sessions } = this.#parts;
    const ids = [...this.#writing].filter(({ closed }) => !closed).map(({ id }) => id);
    const details = {
      err: error,
      sessions: ids.slice(0, MAX_NAMED),
      count: ids.length,
      journal_bytes_lost: waiting,
    };
    const what = `${ids.length} of ${sessions.size} sessions could not be written to the database`;
    const reason = storageFaultOf(error)?.reason ?? (error as Error).message;
    const more = ids.length > MAX_NAMED ? ` and ${ids.length - MAX_NAMED} more` : '';
    const named = `${ids.slice(0, MAX_NAMED).join(', ')}${more}`;
    const effect = !this.#store.journal
      ? `they stand where they were last stored, or are lost: ${named}`
      : waiting === 0
        ? 'the journal has them, and the next start resumes them from it'
        : `the journal misses the last ${waiting} bytes, so they may stand before what their clients saw last: ${named}`;
    log.error(details, `${what}: ${reason}; ${effect}`);
  }
}

/** Text of a record; undefined where it is too large for the journal. */
function textOf(body: Json | undefined, id: string): string | undefined {
  try {
    return recordText(body, id);
  } catch (error) {
    if (error instanceof RecordTooLarge) return undefined;
    throw error;
  }
}

/** Waits for all, and then rejects if one was rejected. */
async function allOf(written: readonly Promise<void>[]): Promise<void> {
  const outcomes = await Promise.allSettled(written);
  for (const outcome of outcomes) if (outcome.status === 'rejected') throw outcome.reason;
}

function repliesByOwner(
  rows: readonly ReplyRow[],
  droppedKeys: readonly { readonly owner: string; readonly hashes: string }[],
) {
  const byOwner = new Map<string, { replies: StoredReply[]; dropped: Uint32Array[] }>();
  const of = (owner: string) => {
    const known = byOwner.get(owner) ?? { replies: [], dropped: [] };
    byOwner.set(owner, known);
    return known;
  };
  for (const { owner, reply, ...entry } of rows) {
    const { replies } = of(owner);
    replies.push({ ...entry, number: replies.length, reply: JSON.parse(reply) as Json });
  }
  for (const { owner, hashes } of droppedKeys) of(owner).dropped.push(hashesOf(hashes));
  return byOwner;
}

/** Changes of the replies of each client, where there are any. */
function clientReplies(clients: Iterable<readonly [owner: string, memory: ReplyCache]>): ClientReplies[] {
  const all: ClientReplies[] = [];
  for (const [owner, memory] of clients) {
    const { changes } = memory;
    if (changes.added.length + changes.removed.length + changes.dropped.length === 0) continue;
    all.push({ owner, memory, changes });
  }
  return all;
}

/** @param at the time, in milliseconds since the epoch */
function* replyRows(replies: readonly ClientReplies[], at: number) {
  for (const { owner, changes } of replies) {
    for (const added of changes.added) {
      const { number: _number, reply, ...entry } = storedReply(added);
      const text = JSON.stringify(reply);
      yield ['replies', { ...entry, owner, reply: text }, text.length] as const;
    }
    for (const { key } of changes.removed) yield ['removeReplies', { owner, key }, key.length] as const;
    if (changes.dropped.length === 0) continue;
    const hashes = textOfHashes(changes.dropped);
    yield ['droppedKeys', { owner, hashes, at }, hashes.length] as const;
  }
}
