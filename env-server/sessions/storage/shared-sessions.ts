import { AsyncLocalStorage } from 'node:async_hooks';
import type { Json } from '../../../shared/json.ts';
import type { MaybePromise } from '../../environments/core/maybe-promise.ts';
import type { RecordBody, RecordKind } from '../../persistence/journal/records.ts';
import { Problem } from '../../problems.ts';
import type { RequestClaim, StoredReplyRecord } from '../../store/session-store.ts';
import type { ValkeySessionStore } from '../../store/valkey-session-store.ts';
import type { EndedSession } from '../finished-sessions.ts';
import type { Principal } from '../principal.ts';
import type { Session } from '../session.ts';
import type { SessionJournal } from './new-session.ts';
import { SeenSessions } from './seen-sessions.ts';
import { TakenSessions } from './taken-sessions.ts';
import {
  ClaimedBefore,
  Fenced,
  type HeldSession,
  MAX_RECORD_LENGTH,
  type SessionEffect,
  type SharedParts,
  TOUCHES,
  WrittenSessions,
} from './written-sessions.ts';

/** Number of times that an operation is begun again because another server took its session meanwhile. */
const MAX_TAKES = 8;
/** Between looks for sessions that are due, and for idle ones that need not be in memory. */
const ROUND_MS = 1000;
const EXPIRED_AT_A_TIME = 64;
const MAX_EXPIRED_IN_A_ROUND = 4096;
const IDLE_IN_MEMORY_MS = 30_000;
/** Operation that makes copies of a session. */
const COPYING = 'clone';
/** Part of `--max-bytes` above which sessions leave memory as soon as nothing runs in them. */
const CROWDED = 0.5;

export type { SessionEffect };

/** An operation that is in progress on a session. */
interface Attempt<T> {
  readonly held: HeldSession;
  /** Number of the session's newest record when the operation began. */
  readonly before: number;
  readonly result: MaybePromise<T>;
}

/** An operation on a session, for a principal. */
interface SessionWork<T> {
  readonly principal: Principal;
  readonly id: string;
  readonly effect: SessionEffect;
  readonly work: () => MaybePromise<T>;
}

/** Sessions are being cloned. */
interface Copying {
  readonly source: Session;
  /** Clones that the store keeps under no key of their request. */
  unclaimed?: readonly Session[];
}

/**
 * Sessions that live in a store which several servers share; those in memory are copies. A server becomes the writer of a
 * session by taking it, which gives it a higher epoch, and the store refuses records of lower ones. A reply leaves when the
 * store has the operation's record or, for one that left none, has confirmed that nobody took the session meanwhile.
 */
export class SharedSessions implements SessionJournal {
  readonly store: ValkeySessionStore;
  /** Sessions as they stand, without taking them. */
  readonly seen: SeenSessions;
  readonly #parts: SharedParts;
  readonly #written: WrittenSessions;
  readonly #taken: TakenSessions;
  /** The request under a key that opens sessions. */
  readonly #turns = new Turns();
  readonly #claim = new AsyncLocalStorage<RequestClaim>();
  readonly #copying = new AsyncLocalStorage<Copying>();
  #round: NodeJS.Timeout | undefined;
  #active = false;
  #settling = false;
  readonly isSlow = false;
  readonly oldestReply = undefined;
  readonly isShared = true;

  constructor(parts: SharedParts) {
    this.store = parts.store;
    this.#parts = parts;
    this.#written = new WrittenSessions(parts);
    this.#taken = new TakenSessions(parts, this.#written);
    this.seen = new SeenSessions(parts, this.#written);
    this.store.connection.onReconnect = () => this.#written.suspect();
  }

  /** Number of times that this server became the writer of a session that it did not write. */
  get taken(): number {
    return this.#taken.taken;
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

  /** Nothing new is begun here: the time in which clients can use no session begins. */
  suspend(): void {
    this.#settling = true;
  }

  /** Writes what is new of every session, so that another server has less to replay. */
  async settle(): Promise<void> {
    const idle = [...this.#written.all()].filter(({ session, records }) => !session.busy && records > 0);
    await Promise.allSettled(idle.map(held => this.#written.checkpoint(held)));
  }

  /** Sessions continue elsewhere: nothing that happens to them here counts any more. */
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
  perform<T>(
    principal: Principal,
    id: string,
    effect: SessionEffect,
    work: () => MaybePromise<T>,
  ): Promise<T> {
    const held = effect === 'copies' || this.#turns.has(id) ? undefined : this.#taken.held(id);
    if (!held) return this.#attempts({ principal, id, effect, work });
    const before = held.session.recorded;
    let value: MaybePromise<T>;
    try {
      value = work();
    } catch (error) {
      value = Promise.reject(error);
    }
    const written = held.session.recorded;
    const begun = { held, before, result: value };
    if (value instanceof Promise || written === before || !held.pending || held.ending)
      return this.#attempts({ principal, id, effect, work }, begun);
    // Most operations are done at once, and wait for their record only.
    return held.pending.then(() => {
      if (held.acknowledged < written) return this.#attempts({ principal, id, effect, work }, begun);
      this.#written.afterOperation(held);
      return value;
    });
  }

  /** @param begun the first attempt, where it is in progress */
  async #attempts<T>(work: SessionWork<T>, begun?: Attempt<T>): Promise<T> {
    const hasBegun = begun ? () => undefined : await this.#turns.wait(work.id);
    try {
      return await this.#untilKept(work, hasBegun, begun);
    } finally {
      hasBegun();
    }
  }

  async #untilKept<T>(
    { principal, id, effect, work }: SessionWork<T>,
    hasBegun: () => void,
    begun: Attempt<T> | undefined,
  ): Promise<T> {
    for (let take = 1; ; take++) {
      const first = take === 1 ? begun : undefined;
      const held = first ? first.held : await this.#taken.hold(principal, id);
      const before = first ? first.before : held?.session.recorded;
      const copying: Copying | undefined = held && effect === 'copies' ? { source: held.session } : undefined;
      let result: { readonly value: T } | { readonly error: unknown };
      try {
        if (held && effect === 'copies') await this.#written.requireWriter(held);
        const running = first ? first.result : copying ? this.#copying.run(copying, work) : work();
        hasBegun();
        result = { value: await running };
      } catch (error) {
        if (error instanceof Fenced && take < MAX_TAKES) continue;
        result =
          error instanceof ClaimedBefore
            ? await this.#earlierCopies<T>(error.claim, error.claimed)
            : { error };
      }
      try {
        if (held) await this.#written.settled(held, 'error' in result ? 'reads' : effect, before!);
      } catch (error) {
        if (!(error instanceof Fenced)) throw error;
        // Under a key the next attempt finds them.
        for (const copy of copying?.unclaimed ?? []) this.#parts.sessions.end(copy);
        if (take < MAX_TAKES) continue;
        throw new Problem(
          'storage_failed',
          `other servers took session ${id} ${MAX_TAKES} times while it was to be played here`,
          { retryAfterSeconds: 1, cause: error },
        );
      }
      if ('error' in result) throw result.error;
      if (held) this.#written.afterOperation(held);
      return result.value;
    }
  }

  /** The reply to an earlier attempt to clone under the same key, after which its server ended. */
  async #earlierCopies<T>(
    claim: RequestClaim,
    known: StoredReplyRecord,
  ): Promise<{ readonly value: T } | { readonly error: unknown }> {
    try {
      return { value: (await this.#earlierReply(claim, known)) as T };
    } catch (error) {
      return { error };
    }
  }

  append<K extends RecordKind>(session: Session, kind: K, body: RecordBody<K>): void {
    this.#written.append(session, kind, body);
  }

  /** Opens sessions in the store; each is `storing` until it has them. */
  opened(sessions: readonly Session[]): void {
    const copying = this.#copying.getStore();
    const claim = copying ? this.#claimOfCopies(copying) : this.#claim.getStore();
    if (copying && !claim) copying.unclaimed = sessions;
    this.#written.opened(sessions, claim);
  }

  /** Keeps clones under the key of their request and the session that they come from. */
  #claimOfCopies({ source }: Copying): RequestClaim | undefined {
    const fields = source.keyUnderWay;
    if (!fields) return undefined;
    const ms = 1000 * this.#parts.limits.lifetimeSeconds;
    return { key: `${source.id} ${fields.key}`, operation: COPYING, asked: fields.asked, ms };
  }

  ended(session: Session, ended: EndedSession): void {
    if (this.#active) this.#written.ended(session, ended);
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
    const claim = { key, operation, asked, ms: 1000 * this.#parts.limits.lifetimeSeconds };
    const known = await this.store.reply(owner, key);
    if (known) return this.#earlierReply(claim, known);
    let reply: unknown;
    try {
      reply = await this.#claim.run(claim, work);
    } catch (error) {
      if (error instanceof ClaimedBefore) return this.once(owner, key, operation, asked, work);
      throw error;
    }
    const text = JSON.stringify(reply) ?? 'null';
    if (text.length <= MAX_RECORD_LENGTH)
      await this.store.keepReply(owner, key, { operation, asked, reply: JSON.parse(text) as Json }, claim.ms);
    return reply;
  }

  /** @throws Problem `key_reused`, `request_key_expired` */
  async #earlierReply({ key, operation, asked }: RequestClaim, known: StoredReplyRecord): Promise<unknown> {
    if (known.operation !== operation || known.asked !== asked)
      throw new Problem('key_reused', `request key "${key}" was used for another ${known.operation}`);
    await this.store.confirm();
    if (!known.opened) return known.reply;
    // No client has heard of these sessions yet, so they are at their beginning.
    const sessions = await this.seen.look(known.opened);
    if (sessions.length === known.opened.length)
      return this.#parts.openedReplyOf(sessions, operation === COPYING);
    throw new Problem('request_key_expired', `the sessions that request key "${key}" opened have ended`);
  }

  refreshEnvironments(): Promise<void> {
    return this.#parts.refreshEnvironments();
  }

  async #keepHouse(): Promise<void> {
    const { sessions, refreshEnvironments } = this.#parts;
    const now = sessions.now();
    if (this.store.connection.failure !== undefined || this.#settling) return;
    await this.store.live();
    await this.#written.endLate();
    const { used, limits } = sessions.bytes;
    const idleMs = used > CROWDED * limits.maxBytes ? 0 : IDLE_IN_MEMORY_MS;
    const touched: (readonly [string, number])[] = [];
    for (const held of this.#written.all()) {
      const { session } = held;
      const unused = session.busy || held.pending ? 0 : now - session.usedAt;
      if (session.usedAt > held.touchedAt && now - held.touchedAt > session.ttlMs / TOUCHES) {
        held.touchedAt = now;
        touched.push([session.id, this.#written.dueIn(session) - unused]);
      } else if (unused > idleMs && !held.pending && session.variant.copyable) this.#written.drop(held);
    }
    await this.store.touch(touched);
    for (let ended = 0; ended < MAX_EXPIRED_IN_A_ROUND; ended += EXPIRED_AT_A_TIME) {
      const { ids, more } = await this.store.expire(EXPIRED_AT_A_TIME, this.#written.forgetMs);
      for (const id of ids) {
        const session = sessions.get(id);
        if (session) sessions.end(session, 'session_expired');
        else sessions.endings.session_expired++;
      }
      if (!more) break;
    }
    // Last, so that a definition which this server cannot read costs no session its time.
    await refreshEnvironments();
  }
}

/** Begins the operations on a session in the order of their arrival, also those that wait for the store first. */
class Turns {
  /** Resolves when the operation that arrived last on a session has begun; absent where none waits to begin. */
  readonly #last = new Map<string, Promise<void>>();

  has(id: string): boolean {
    return this.#last.has(id);
  }

  /**
   * Resolves when the operations that arrived before have begun.
   * @returns to be called when this one has begun or failed
   */
  async wait(id: string): Promise<() => void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    const before = this.#last.get(id);
    this.#last.set(id, promise);
    await before;
    return () => {
      if (this.#last.get(id) === promise) this.#last.delete(id);
      resolve();
    };
  }
}
