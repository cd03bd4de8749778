import { AsyncLocalStorage } from 'node:async_hooks';
import type { Logger } from 'pino';
import type { Json } from '../../../shared/json.ts';
import {
  type JournalRecord,
  RECORD_KINDS,
  type RecordBody,
  type RecordKind,
  recordOf,
} from '../../persistence/journal/records.ts';
import { Problem } from '../../problems.ts';
import {
  countedEntries,
  type NewSession,
  type Outcome,
  type RequestClaim,
  type SessionStore,
  type StoredContent,
  type StoredReplyRecord,
  type Tombstone,
} from '../../store/session-store.ts';
import type { EndedSession } from '../ended.ts';
import type { SessionLimits } from '../limits/admission.ts';
import { refusalAt, TooManySessions } from '../limits/admission.ts';
import type { ListRequest, SessionManager } from '../manager.ts';
import type { Principal } from '../principal.ts';
import type { Session } from '../session.ts';
import type { VariantCatalog } from '../variant-catalog.ts';
import { lostReason, replacedReason } from './lost-reason.ts';
import { episodeOfRecord, recordedEpisode } from './recorded-episode.ts';
import type { SessionJournal } from './recorder.ts';
import { openedSession, redo } from './redo.ts';
import { SessionImage } from './session-image.ts';
import type { PartKind, StoredHead, StoredSession, StoredSettings } from './stored-session.ts';

/** Records and characters after which a checkpoint makes those before it unneeded. */
const CHECKPOINT_RECORDS = 64;
const CHECKPOINT_LENGTH = 64 * 1024;
/** Largest record, in characters: a step of this size cannot be kept. */
const MAX_RECORD_LENGTH = 16 * 1024 * 1024;
/** Number of times that an operation is begun again because another server took its session meanwhile. */
const MAX_TAKES = 8;
/** Between looks for sessions that are due, and for idle ones that need not be in memory. */
const ROUND_MS = 1000;
const EXPIRED_AT_A_TIME = 64;
const MAX_EXPIRED_IN_A_ROUND = 4096;
const IDLE_IN_MEMORY_MS = 30_000;
/** Part of `--max-bytes` above which sessions leave memory as soon as nothing runs in them. */
const CROWDED = 0.5;
/** The store hears of at most this many uses of a session in its idle time. */
const TOUCHES = 8;
/** A session that is used is not due even where the store hears of it several rounds late. */
const MIN_SLACK_MS = 5 * ROUND_MS;
const MAX_PEEKED = 500;
const MAX_GIVEN_UP = 10_000;

export interface SharedSessionsParts {
  readonly sessions: SessionManager;
  readonly limits: SessionLimits;
  readonly catalog: VariantCatalog;
  readonly log: Logger;
  readonly editionOf: (envId: string) => string;
  /** The reply to a request that began an episode. */
  readonly viewOf: (session: Session) => Json;
  /** The reply to a request that opened these sessions. */
  readonly openedReplyOf: (sessions: readonly Session[]) => unknown;
  /** Learns what other servers have registered. */
  readonly refreshEnvironments: () => Promise<void>;
}

/** Effect of an operation on its session: `writes` leaves a record, `copies` makes other sessions of its state. */
export type SessionEffect = 'reads' | 'writes' | 'copies';

/** Another server writes the session now: nothing of what was done here since was kept. */
class Fenced extends Error {}

/** A request under the same key came before: nothing was opened. */
class ClaimedBefore extends Error {}

/** The newest id in a session's stream that this server knows of: `<epoch>-<n>`. */
interface Position {
  readonly epoch: number;
  readonly top: number;
}

/** A session that this server writes. */
interface HeldSession extends Position {
  readonly session: Session;
  epoch: number;
  top: number;
  /** Number of the newest record that the store has acknowledged. */
  acknowledged: number;
  /** Settles with the newest record that is under way. */
  pending: Promise<void> | undefined;
  /** Why nothing more is done with the copy; undefined while all is well. What the store has kept before still counts. */
  failed: unknown;
  /** Number of the first record that was not kept: those after it follow a hole, and readers skip them. */
  holeAt: number;
  /** The store must be asked before it is played on. */
  stale: boolean;
  ending: Promise<Outcome> | undefined;
  records: number;
  length: number;
  touchedAt: number;
}

/**
 * Sessions that live in a store which several servers share; those in memory are copies. A server becomes the writer of a
 * session by taking it, which gives it a higher epoch, and the store refuses records of lower ones. A reply leaves when the
 * store has the operation's record or, for one that left none, has confirmed that nobody took the session meanwhile.
 */
export class SharedSessions implements SessionJournal {
  readonly store: SessionStore;
  readonly #parts: SharedSessionsParts;
  readonly #held = new Map<string, HeldSession>();
  readonly #loading = new Map<string, Promise<void>>();
  /** Newest acknowledged records of sessions with a copy that was given up because the store did not answer. */
  readonly #givenUp = new Map<string, Position>();
  /** Sessions that were looked at without being taken, by what the store had of them. */
  readonly #peeked = new Map<string, { readonly content: StoredContent; readonly session: Session }>();
  /** Sessions that ended here while the store did not answer. */
  readonly #unended = new Map<string, { readonly epoch: number; readonly tombstone: Tombstone }>();
  /** The request under a key that opens sessions. */
  readonly #claim = new AsyncLocalStorage<RequestClaim>();
  /** Number of times that this server became the writer of a session that it did not write. */
  taken = 0;
  #round: NodeJS.Timeout | undefined;
  #active = false;
  readonly isSlow = false;
  readonly isShared = true;

  constructor(store: SessionStore, parts: SharedSessionsParts) {
    this.store = store;
    this.#parts = parts;
    store.connection.onReconnect = () => {
      for (const held of this.#held.values()) held.stale = true;
    };
  }

  begin(): void {
    this.#active = true;
    const round = async () => {
      await this.#keepHouse().catch(error =>
        this.#parts.log.debug({ err: error }, 'the store was not asked'),
      );
      if (this.#active) this.#round = setTimeout(round, ROUND_MS).unref();
    };
    void round();
  }

  /** Writes what is new of every session, so that another server has less to replay. */
  async settle(): Promise<void> {
    const idle = [...this.#held.values()].filter(({ session, records }) => !session.busy && records > 0);
    await Promise.allSettled(idle.map(held => this.#checkpoint(held)));
  }

  /** Sessions go on elsewhere: nothing that happens to them here counts any more. */
  end(): void {
    this.#active = false;
    clearTimeout(this.#round);
  }

  /** @throws Problem `storage_failed` while the store does not answer */
  requireRoom(): void {
    const { failure } = this.store.connection;
    if (failure !== undefined)
      throw new Problem('storage_failed', `nothing was done: the session store does not answer: ${failure}`, {
        retryAfterSeconds: 1,
      });
  }

  /** Operations wait for the store themselves. */
  deliver(reply: () => void): void {
    reply();
  }

  /**
   * Runs an operation on a session of the principal, which this server then writes; again where another server took it.
   * @throws Problem of the operation; `unknown_session` and how it ended; `session_elsewhere`, `storage_failed`, `storage_full`
   */
  async perform<T>(
    principal: Principal,
    id: string,
    effect: SessionEffect,
    work: () => T | Promise<T>,
  ): Promise<T> {
    for (let take = 1; ; take++) {
      const held = await this.#hold(principal, id);
      const before = held?.session.recorded;
      let result: { readonly value: T } | { readonly error: unknown };
      try {
        if (held && effect === 'copies') await this.#requireWriter(held);
        result = { value: await work() };
      } catch (error) {
        if (error instanceof Fenced && take < MAX_TAKES) continue;
        result = { error };
      }
      try {
        if (held) await this.#settled(held, 'error' in result ? 'reads' : effect, before!);
      } catch (error) {
        if (!(error instanceof Fenced)) throw error;
        if (effect === 'copies' && 'value' in result) this.#discardCopies(result.value);
        if (take < MAX_TAKES) continue;
        throw new Problem(
          'storage_failed',
          `other servers took session ${id} ${MAX_TAKES} times while it was to be played here`,
          { retryAfterSeconds: 1, cause: error },
        );
      }
      if ('error' in result) throw result.error;
      if (held) this.#afterOperation(held);
      return result.value;
    }
  }

  /** Makes this server the writer of a session. Undefined where it has ended: the manager knows how. */
  async #hold(principal: Principal, id: string): Promise<HeldSession | undefined> {
    for (;;) {
      const loading = this.#loading.get(id);
      if (loading) await loading;
      else {
        const held = this.#held.get(id);
        if (held && this.#isUsable(held) && held.session.expiresAt > this.#parts.sessions.now()) return held;
        const taking = this.#take(principal, id, held);
        this.#loading.set(id, taking);
        try {
          await taking;
        } finally {
          this.#loading.delete(id);
        }
        return this.#held.get(id);
      }
    }
  }

  /** It is as the store knew it last, or further. */
  #isUsable({ failed, stale, session }: HeldSession): boolean {
    return !failed && !stale && !session.closed;
  }

  async #take(principal: Principal, id: string, held: HeldSession | undefined): Promise<void> {
    const owner = principal.scopes.has('admin') ? undefined : principal.name;
    const known = held && !held.failed && !held.session.closed ? `${held.epoch}-${held.top}` : undefined;
    const taken = await this.store.take(id, known, owner, this.#forgetMs);
    if (taken.state === 'same' || taken.state === 'load') this.taken++;
    switch (taken.state) {
      case 'same':
        held!.epoch = taken.epoch;
        held!.top = 0;
        held!.stale = false;
        held!.session.usedAt = this.#parts.sessions.now();
        return;
      case 'elsewhere':
        throw new Problem(
          'session_elsewhere',
          `session ${id} can only be played by the server that opened it, since its environment holds more than its state`,
          { retryAfterSeconds: 1 },
        );
      case 'ended':
        // Without a tombstone the session may be that of another client.
        if (held && (taken.tombstone || held.session.owner === principal.name)) this.#drop(held);
        this.#recallEnd(id, taken.tombstone);
        return;
      case 'load':
        await this.#load(id, taken.content, held);
    }
  }

  async #load(id: string, content: StoredContent, copy: HeldSession | undefined): Promise<void> {
    if (copy) this.#drop(copy);
    const before: Position | undefined = copy ?? this.#givenUp.get(id);
    this.#givenUp.delete(id);
    const { sessions, editionOf, refreshEnvironments, log } = this.#parts;
    const settings = JSON.parse(content.fields.get('settings')!) as StoredSettings;
    if (editionOf(settings.envId) !== content.fields.get('edition')) await refreshEnvironments();
    let session: Session;
    try {
      if (editionOf(settings.envId) !== content.fields.get('edition'))
        throw new Error(replacedReason(settings.envId));
      session = await this.#restore(id, settings, content, stored =>
        sessions.recall(stored.session, stored.variant, stored.image),
      );
    } catch (error) {
      const there = sessions.get(id);
      if (there) sessions.drop(there);
      if (error instanceof Problem) throw error;
      const reason = (error as Error).message;
      log.error({ session_id: id, err: error }, `session ${id} is lost`);
      const tombstone: Tombstone = { owner: settings.owner, ending: 'session_lost', reason };
      await this.store.end(id, content.epoch, tombstone, this.#forgetMs);
      this.#recallEnd(id, tombstone);
      return;
    }
    const counted = countedEntries(content.entries);
    const own = heldSession(session, { epoch: content.epoch, top: 0 }, session.recorded, counted.length);
    this.#held.set(id, own);
    // The entry before this server's own take: behind what was acknowledged here, the store has lost something.
    const newest = content.entries.at(-2);
    const lost =
      before !== undefined &&
      (!newest || newest.epoch < before.epoch || (newest.epoch === before.epoch && newest.n < before.top));
    const otherEra =
      content.fields.get('era') !== content.era &&
      !['fsync', 'replicated'].includes(this.store.connection.durability);
    if (lost || (otherEra && before === undefined)) session.rollBack();
    if (!lost && !otherEra) return;
    try {
      await this.#checkpoint(own);
    } catch (error) {
      // Its client has not heard yet that something was lost: the server that loads it next must see that again.
      if (before) this.#giveUp(id, before);
      throw error;
    }
  }

  /** The session as the store has it: from its last checkpoint, and what was done since done again. */
  async #restore(
    id: string,
    settings: StoredSettings,
    content: StoredContent,
    make: (stored: {
      session: StoredSession;
      variant: ReturnType<VariantCatalog['variant']>;
      image: SessionImage | undefined;
    }) => Session,
  ): Promise<Session> {
    const { catalog, viewOf, sessions } = this.#parts;
    const [first, ...rest] = countedEntries(content.entries);
    if (!first) throw new Error('nothing of it is in the store');
    const variant = catalog.variant(settings.envId, settings.config, settings.wrappers);
    // Times of the server's clock differ between servers: the store has the wall clock's.
    const own = { ...settings, deadline: sessions.now() + settings.deadline - sessions.wall(sessions.now()) };
    let session: Session;
    if (first.kind === 'C') {
      const image = new SessionImage();
      const parts = [...content.fields].flatMap(([field, data]) => {
        const [kind, number] = field.split(':');
        return number === undefined ? [] : [{ kind: kind as PartKind, number: Number(number), data }];
      });
      parts.sort((a, b) => a.number - b.number);
      const read = image.read(JSON.parse(first.body) as StoredHead, parts);
      session = make({ session: { ...own, ...read }, variant, image });
    } else {
      const body = JSON.parse(first.body) as RecordBody<'open'>;
      if (body.lost !== undefined || !body.episode) throw new Error(body.lost ?? 'its beginning is missing');
      const opened = openedSession(id, body, episodeOfRecord(body.seed, body.options, body.episode));
      session = make({ session: { ...opened, ...own }, variant, image: undefined });
    }
    session.recorded = first.n;
    for (const { kind, n, body } of rest) {
      const record = recordOf({
        kind,
        sessionId: id,
        n,
        body: body === '' ? undefined : JSON.parse(body),
      } as never);
      if (!record)
        throw new Problem(
          'storage_failed',
          `session ${id} is played by a newer version of the server: this one does not know its record ${n}`,
          { retryAfterSeconds: 1 },
        );
      session.recorded = n;
      const redone = redo(session, record as JournalRecord, viewOf);
      if (redone) await redone;
    }
    return session;
  }

  /**
   * Resolves when the store has what an operation did; one that left no record waits until it is sure to have seen the
   * newest state.
   * @param before number of the session's newest record when the operation began
   * @throws Fenced where nothing of it was kept
   */
  async #settled(held: HeldSession, effect: SessionEffect, before: number): Promise<void> {
    const { session } = held;
    if (held.ending) {
      if ((await held.ending) === 'fenced') throw new Fenced();
      return;
    }
    const written = session.recorded;
    if (effect !== 'reads' && written > before) {
      await held.pending?.catch(() => undefined);
      // Another operation may have failed since. It does not change whether the store kept what this one wrote.
      if (held.acknowledged < written) throw held.failed ?? new Fenced();
      return;
    }
    if (held.pending || held.failed) await held.pending;
    if (held.failed) throw held.failed;
    if (effect !== 'copies' && !session.closed) await this.#requireWriter(held);
  }

  /** Copies of a session that go to no client, because the reply under its key was not kept. */
  #discardCopies(reply: unknown): void {
    const { sessions } = this.#parts;
    for (const { session_id: id } of (reply as { sessions: readonly { session_id: string }[] }).sessions) {
      const copy = sessions.get(id);
      if (copy) sessions.discard(copy);
    }
  }

  /** @throws Fenced where another server has taken the session */
  async #requireWriter(held: HeldSession): Promise<void> {
    if (this.#isUsable(held) && (await this.store.isWriter(held.session.id, held.epoch)) && !held.stale)
      return;
    this.#fail(held, new Fenced());
    throw held.failed;
  }

  #afterOperation(held: HeldSession): void {
    const { session } = held;
    if (held.failed || session.closed) return;
    if (
      (held.records >= CHECKPOINT_RECORDS || held.length >= CHECKPOINT_LENGTH) &&
      !session.busy &&
      !held.pending
    ) {
      this.#checkpoint(held).catch(error =>
        this.#parts.log.debug({ err: error }, `session ${session.id} has no checkpoint`),
      );
    }
  }

  append<K extends RecordKind>(session: Session, kind: K, body: RecordBody<K>): void {
    const held = this.#held.get(session.id);
    if (!held || held.session !== session || held.failed) return;
    const n = ++session.recorded;
    if (held.stale) {
      // The store may have lost what this follows.
      this.#fail(held, new Fenced());
      return;
    }
    const text = body === undefined ? '' : JSON.stringify(body);
    if (text.length > MAX_RECORD_LENGTH) {
      this.#fail(
        held,
        new Problem(
          'storage_failed',
          `the step cannot be kept: its record has ${text.length} characters, and at most ${MAX_RECORD_LENGTH} fit`,
        ),
      );
      return;
    }
    held.records++;
    held.length += text.length;
    this.#follow(held, n, this.store.append(session.id, held.epoch, n, RECORD_KINDS[kind], text));
  }

  /** Notes that a write is under way. When one fails, all later ones fail too, even if the store accepts them. */
  #follow(held: HeldSession, n: number, written: Promise<Outcome>): void {
    const pending = written
      .then(
        outcome => {
          if (n > held.holeAt) throw held.failed;
          if (outcome !== 'kept') throw new Fenced(outcome);
          held.acknowledged = n;
          held.top = n;
        },
        error => {
          throw held.failed ?? error;
        },
      )
      .catch(error => {
        held.holeAt = Math.min(held.holeAt, n);
        this.#fail(held, error);
        throw error;
      })
      .finally(() => {
        if (held.pending === pending) held.pending = undefined;
      });
    pending.catch(() => undefined);
    held.pending = pending;
  }

  #fail(held: HeldSession, error: unknown): void {
    if (held.failed) return;
    held.failed = error;
    if (!(error instanceof Fenced) || held.stale) this.#giveUp(held.session.id, held);
    this.#drop(held);
  }

  #giveUp(id: string, { epoch, top }: Position): void {
    this.#givenUp.set(id, { epoch, top });
    if (this.#givenUp.size <= MAX_GIVEN_UP) return;
    const [oldest] = this.#givenUp.keys();
    this.#givenUp.delete(oldest);
  }

  /** Forgets the copy of a session; the store keeps the session. */
  #drop(held: HeldSession): void {
    const { session } = held;
    held.failed ??= new Fenced();
    if (this.#held.get(session.id) === held) this.#held.delete(session.id);
    this.#parts.sessions.drop(session);
  }

  #checkpoint(held: HeldSession): Promise<void> {
    const { session } = held;
    if (!session.variant.copyable) return Promise.resolve();
    const n = ++session.recorded;
    session.image ??= new SessionImage();
    const content = session.content();
    const { parts, head, remove } = session.image.change(content);
    const fields = [...parts].map(({ kind, number, data }) => [`${kind}:${number}`, data] as const);
    const gone = remove.map(({ kind, number }) => `${kind}:${number}`);
    const written = this.store.checkpoint(
      session.id,
      { epoch: held.epoch, n },
      head as unknown as Json,
      fields,
      gone,
    );
    held.records = 0;
    held.length = 0;
    this.#follow(held, n, written);
    return held.pending!.then(() => session.stored(content));
  }

  /** Opens sessions in the store; each is `storing` until it has them. */
  opened(sessions: readonly Session[]): void {
    const [{ owner, variant }] = sessions;
    const { limits, catalog, editionOf } = this.#parts;
    const fresh = sessions.map((session): NewSession => {
      const { settings, serial, groupId, id } = session;
      const episode = session.episode.capture();
      const lost = lostReason(session, catalog);
      const stored = { ...settings, deadline: Math.round(session.wall(settings.deadline)) };
      const beginning = lost === undefined ? { episode: recordedEpisode(episode) } : { lost };
      const { seed, options } = episode;
      const record = { ...recordOfOpening(stored, editionOf(settings.envId)), seed, options, ...beginning };
      session.recorded = 1;
      return {
        id,
        serial,
        settings: stored as unknown as Json,
        edition: editionOf(settings.envId),
        groupId,
        pinned: lost !== undefined,
        ttlMs: this.#dueIn(session),
        record: record as unknown as Json,
      };
    });
    const counts = [
      limits.maxSessions,
      limits.maxSessionsPerClient,
      limits.maxSessionsPerEnvironment,
    ] as const;
    const envId = variant.environment.spec.id;
    const opening = this.store.open(owner, envId, counts, fresh, this.#claim.getStore()).then(refused => {
      if (refused && 'claimed' in refused) throw new ClaimedBefore();
      if (refused) throw new TooManySessions(refusalAt(limits, refused, envId), sessions.length);
      return 'kept' as const;
    });
    for (const session of sessions) {
      const held = heldSession(session, { epoch: 1, top: 1 }, 0, 1);
      held.touchedAt = this.#parts.sessions.now();
      this.#held.set(session.id, held);
      this.#follow(held, 1, opening);
      session.storing = held.pending!.finally(() => {
        session.storing = undefined;
      });
      session.storing.catch(() => undefined);
    }
  }

  /** A session ended here. One that expired ends in the store by the store's clock. */
  ended(session: Session, { owner, ending, reason }: EndedSession): void {
    const held = this.#held.get(session.id);
    if (!held || held.session !== session || !this.#active) return;
    this.#held.delete(session.id);
    if (ending === 'session_expired') return;
    const tombstone = { owner, ending, reason };
    held.ending = (held.pending ?? Promise.resolve()).then(
      () => this.store.end(session.id, held.epoch, tombstone, this.#forgetMs),
      // The last write may still be there.
      error =>
        error instanceof TooManySessions || error instanceof ClaimedBefore
          ? ('gone' as const)
          : this.store.end(session.id, held.epoch, tombstone, this.#forgetMs),
    );
    held.ending.catch(error => {
      this.#parts.log.warn({ session_id: session.id, err: error }, `session ${session.id} is ended later`);
      if (this.#unended.size < MAX_GIVEN_UP) this.#unended.set(session.id, { epoch: held.epoch, tombstone });
    });
  }

  /** Replies under keys of clients go through {@link once}. */
  clientReply(): undefined {
    return undefined;
  }

  /**
   * The reply that a client's request under a key got from any server, or what `work` returns, kept for later.
   * @param asked what the request asked, as a text
   * @throws Problem `key_reused`
   */
  async once(
    owner: string,
    key: string,
    operation: string,
    asked: string,
    work: () => unknown,
  ): Promise<unknown> {
    const known = await this.store.reply(owner, key);
    if (known) return this.#earlierReply(key, operation, asked, known);
    const ms = 1000 * this.#parts.limits.lifetimeSeconds;
    let reply: unknown;
    try {
      reply = await this.#claim.run({ key, operation, asked, ms }, work);
    } catch (error) {
      if (error instanceof ClaimedBefore) return this.once(owner, key, operation, asked, work);
      throw error;
    }
    const text = JSON.stringify(reply) ?? 'null';
    if (text.length <= MAX_RECORD_LENGTH)
      await this.store.keepReply(owner, key, { operation, asked, reply: JSON.parse(text) as Json }, ms);
    return reply;
  }

  /** @throws Problem `key_reused`, `request_key_expired` */
  async #earlierReply(
    key: string,
    operation: string,
    asked: string,
    known: StoredReplyRecord,
  ): Promise<unknown> {
    if (known.operation !== operation || known.asked !== asked)
      throw new Problem('key_reused', `request key "${key}" was used for another ${known.operation}`);
    if (!known.opened) return known.reply;
    // No client has heard of these sessions yet, so they are at their beginning.
    const sessions = await this.look(known.opened);
    if (sessions.length === known.opened.length) return this.#parts.openedReplyOf(sessions);
    throw new Problem('request_key_expired', `the sessions that request key "${key}" opened have ended`);
  }

  /**
   * Sessions as they stand, in the order of their ids, without taking them; those that ended are left out.
   * Sessions of other servers are read once for each of their states.
   */
  async look(ids: readonly string[]): Promise<readonly Session[]> {
    const seen = await Promise.all(ids.map(id => this.#lookAt(id)));
    return seen.filter(session => session !== undefined);
  }

  async #lookAt(id: string): Promise<Session | undefined> {
    const held = this.#held.get(id);
    if (held && this.#isUsable(held)) {
      await held.pending?.catch(() => undefined);
      if (this.#isUsable(held) && (await this.store.isWriter(id, held.epoch))) return held.session;
    }
    return this.#peek(id);
  }

  /** Sessions of the principal, oldest first; an administrator's list holds everybody's. */
  async list(
    principal: Principal,
    { envId, groupId, after, limit }: ListRequest,
  ): Promise<readonly Session[]> {
    const owner = principal.scopes.has('admin') ? undefined : principal.name;
    const found: string[] = [];
    for (let from = after; found.length < limit; ) {
      const page = await this.store.list(owner, from);
      const facts =
        envId === undefined && groupId === undefined ? undefined : await this.store.facts(page.ids);
      found.push(
        ...page.ids.filter(
          (_, i) =>
            !facts ||
            ((envId === undefined || facts[i][0] === envId) &&
              (groupId === undefined || facts[i][1] === groupId)),
        ),
      );
      if (page.last === undefined) break;
      from = page.last;
    }
    return this.look(found.slice(0, limit));
  }

  /** Open sessions of the principal, newest first; an administrator's are everybody's. */
  async newest(principal: Principal, limit: number): Promise<readonly Session[]> {
    const owner = principal.scopes.has('admin') ? undefined : principal.name;
    return this.look(await this.store.newest(owner, limit));
  }

  refreshEnvironments(): Promise<void> {
    return this.#parts.refreshEnvironments();
  }

  async #peek(id: string): Promise<Session | undefined> {
    const found = await this.store.peek(id);
    const known = this.#peeked.get(id);
    if (known) {
      this.#peeked.delete(id);
      const [a, b] = [
        known.content.entries.at(-1),
        found.state === 'load' ? found.content.entries.at(-1) : undefined,
      ];
      if (found.state === 'load' && a && b && a.epoch === b.epoch && a.n === b.n) {
        this.#peeked.set(id, known);
        return known.session;
      }
      known.session.releaseAll();
    }
    if (found.state !== 'load') return undefined;
    const { content } = found;
    const settings = JSON.parse(content.fields.get('settings')!) as StoredSettings;
    let made: Session | undefined;
    try {
      if (this.#parts.editionOf(settings.envId) !== content.fields.get('edition')) return undefined;
      const { sessions } = this.#parts;
      const session = await this.#restore(id, settings, content, stored => {
        made = sessions.restore(stored.session, stored.variant, stored.image);
        return made;
      });
      this.#peeked.get(id)?.session.releaseAll();
      this.#peeked.set(id, { content, session });
      if (this.#peeked.size > MAX_PEEKED) {
        const [[oldest, { session: old }]] = this.#peeked;
        old.releaseAll();
        this.#peeked.delete(oldest);
      }
      return session;
    } catch (error) {
      made?.releaseAll();
      this.#parts.log.debug({ session_id: id, err: error }, `session ${id} could not be looked at`);
      return undefined;
    }
  }

  #recallEnd(id: string, tombstone: Tombstone | undefined): void {
    if (!tombstone) return;
    const { owner, ending, reason = null } = tombstone;
    this.#parts.sessions.recallEnded({ id, owner, ending, reason, forgetAt: this.#parts.sessions.forgetAt });
  }

  get #forgetMs(): number {
    return Math.ceil(1000 * this.#parts.limits.goneSeconds);
  }

  /** Milliseconds until a session is due in the store, which hears of a use only when some of that time has passed. */
  #dueIn({ ttlMs, deadline }: Session): number {
    const left = deadline - this.#parts.sessions.now();
    return Math.max(1, Math.min(ttlMs + Math.max(ttlMs / TOUCHES, MIN_SLACK_MS), left));
  }

  async #keepHouse(): Promise<void> {
    const { sessions, refreshEnvironments } = this.#parts;
    const now = sessions.now();
    if (this.store.connection.failure !== undefined) return;
    await this.store.live();
    for (const [id, { epoch, tombstone }] of this.#unended) {
      await this.store.end(id, epoch, tombstone, this.#forgetMs);
      this.#unended.delete(id);
    }
    const { used, limits } = sessions.bytes;
    const idleMs = used > CROWDED * limits.maxBytes ? 0 : IDLE_IN_MEMORY_MS;
    const touched: (readonly [string, number])[] = [];
    for (const [id, held] of this.#held) {
      const { session } = held;
      const unused = session.busy ? 0 : now - session.usedAt;
      if (session.usedAt > held.touchedAt && now - held.touchedAt > session.ttlMs / TOUCHES) {
        held.touchedAt = now;
        touched.push([id, this.#dueIn(session) - unused]);
      } else if (unused > idleMs && !held.pending && session.variant.copyable) this.#drop(held);
    }
    await this.store.touch(touched);
    for (let ended = 0; ended < MAX_EXPIRED_IN_A_ROUND; ended += EXPIRED_AT_A_TIME) {
      const ids = await this.store.expire(EXPIRED_AT_A_TIME, this.#forgetMs);
      for (const id of ids) {
        const session = sessions.get(id);
        if (session) sessions.expire(session);
        else sessions.endings.session_expired++;
      }
      if (ids.length < EXPIRED_AT_A_TIME) break;
    }
    // Last, so that a definition which this server cannot read costs no session its time.
    await refreshEnvironments();
  }
}

/** A session that this server has begun to write, with the number of its records in the store. */
function heldSession(
  session: Session,
  { epoch, top }: Position,
  acknowledged: number,
  records: number,
): HeldSession {
  return {
    session,
    epoch,
    top,
    acknowledged,
    pending: undefined,
    failed: undefined,
    holeAt: Number.POSITIVE_INFINITY,
    stale: false,
    ending: undefined,
    records,
    length: 0,
    touchedAt: 0,
  };
}

/** Settings that an `open` record holds of a session besides its first state. */
function recordOfOpening(settings: StoredSettings, edition: string) {
  return {
    serial: settings.serial,
    owner: settings.owner,
    group_id: settings.groupId,
    env_id: settings.envId,
    edition,
    config: settings.config,
    wrappers: settings.wrappers as unknown as readonly Json[],
    format: settings.format,
    created_at: settings.createdAt,
    ttl_ms: settings.ttlMs,
    deadline: settings.deadline,
  };
}
