import type { Logger } from 'pino';
import type { Json } from '../../../shared/json.ts';
import { RecentMap } from '../../../shared/remembered.ts';
import { RECORD_KINDS, type RecordBody, type RecordKind } from '../../persistence/journal/records.ts';
import { Problem } from '../../problems.ts';
import type {
  EndPosition,
  NewSession,
  Outcome,
  RequestClaim,
  StoredReplyRecord,
  Tombstone,
} from '../../store/session-store.ts';
import type { ValkeySessionStore } from '../../store/valkey-session-store.ts';
import type { EndedSession } from '../finished-sessions.ts';
import { mostOpen, refusalAt, type SessionLimits, TooManySessions } from '../limits/admission.ts';
import type { SessionManager } from '../manager.ts';
import type { Session } from '../session.ts';
import { changeOf, type NewSessionParts, newSession } from './new-session.ts';

/** Records and characters after which a checkpoint makes the earlier ones obsolete. */
const CHECKPOINT_RECORDS = 64;
const CHECKPOINT_LENGTH = 64 * 1024;
/** Largest record, in characters: a larger step cannot be stored. */
export const MAX_RECORD_LENGTH = 16 * 1024 * 1024;
/** Most updates of the store about a session's use in its idle time. */
export const TOUCHES = 8;
/** Grace period: a session in use does not expire even if the store learns of it several seconds late. */
const MIN_SLACK_MS = 5000;
const MAX_GIVEN_UP = 10_000;

/** Effect of an operation on its session: `writes` leaves a record, `copies` makes other sessions of its state. */
export type SessionEffect = 'reads' | 'writes' | 'copies';

/** Another server writes the session now: nothing done here since then was kept. */
export class Fenced extends Error {}

/** An earlier request had the same key: nothing was opened. */
export class ClaimedBefore extends Error {
  readonly claim: RequestClaim;
  readonly claimed: StoredReplyRecord;

  constructor(claim: RequestClaim, claimed: StoredReplyRecord) {
    super('a request under the same key came before');
    this.claim = claim;
    this.claimed = claimed;
  }
}

/** Parts of a server that its stored sessions use, in either store. */
export interface StorageParts extends NewSessionParts {
  readonly sessions: SessionManager;
  readonly log: Logger;
  /** The reply to a request that began an episode. */
  readonly viewOf: (session: Session) => Json;
}

/** The same for a store that several servers share. */
export interface SharedParts extends StorageParts {
  readonly store: ValkeySessionStore;
  readonly limits: SessionLimits;
  /** Reads the environments that other servers have registered. */
  readonly refreshEnvironments: () => Promise<void>;
  /** The reply to a request that opened these sessions, or with `isCopies` cloned them. */
  readonly openedReplyOf: (sessions: readonly Session[], isCopies: boolean) => unknown;
}

/** The newest id in a session's stream known to this server: `<epoch>-<n>`. */
export interface Position {
  readonly epoch: number;
  readonly top: number;
}

/** A session that this server writes. */
export interface HeldSession extends Position {
  readonly session: Session;
  epoch: number;
  top: number;
  /** Number of the newest record acknowledged by the store. */
  acknowledged: number;
  /** Number of the newest record with a result that a client may have seen. Takes and checkpoints have none. */
  seen: number;
  /** Resolves when the newest record in progress was kept or has `failed`. */
  pending: Promise<void> | undefined;
  /** The reason why the copy is no longer used; undefined while all is well. Records kept before still count. */
  failed: unknown;
  /** Number of the first record that was not kept: later ones follow a hole, and readers skip them. */
  holeAt: number;
  /** True if the store must be asked before the session is used. */
  stale: boolean;
  ending: Promise<Outcome> | undefined;
  records: number;
  length: number;
  touchedAt: number;
}

/** Sessions that this server writes: sends their records, tracks their outcome, opens, checkpoints and ends sessions. */
export class WrittenSessions {
  readonly #parts: SharedParts;
  readonly #held = new Map<string, HeldSession>();
  /** Newest record that a client may have `seen`, for copies given up because the store did not answer. */
  readonly #givenUp = new RecentMap<string, number>(MAX_GIVEN_UP);
  /** Sessions that ended here while the store did not answer. */
  readonly #unended = new Map<string, { readonly at: EndPosition; readonly tombstone: Tombstone }>();

  constructor(parts: SharedParts) {
    this.#parts = parts;
  }

  get(id: string): HeldSession | undefined {
    return this.#held.get(id);
  }

  all(): Iterable<HeldSession> {
    return this.#held.values();
  }

  /** Adds a taken session. */
  add(held: HeldSession): void {
    this.#held.set(held.session.id, held);
  }

  /** The store may have lost data: it is asked before any session is used. */
  suspect(): void {
    for (const held of this.#held.values()) held.stale = true;
  }

  /** True if the copy is up to date with the store. */
  isUsable({ failed, stale, session }: HeldSession): boolean {
    return !failed && !stale && !session.closed;
  }

  /**
   * Resolves when the store has an operation's records; after an operation without records it waits until it is sure to have
   * seen the newest state.
   * @param before number of the session's newest record when the operation began
   * @throws Fenced where none of it was kept
   */
  async settled(held: HeldSession, effect: SessionEffect, before: number): Promise<void> {
    const { session } = held;
    if (held.ending) {
      if ((await held.ending) === 'fenced') throw new Fenced();
      return;
    }
    const written = session.recorded;
    if (effect !== 'reads' && written > before) {
      await held.pending;
      // Another operation may have failed since. It does not change whether the store kept this one's records.
      if (held.acknowledged < written) throw held.failed ?? new Fenced();
      return;
    }
    await held.pending;
    if (held.failed) throw held.failed;
    if (effect !== 'copies' && !session.closed) await this.requireWriter(held);
  }

  /** @throws Fenced where another server has taken the session */
  async requireWriter(held: HeldSession): Promise<void> {
    if (this.isUsable(held) && (await this.#parts.store.isWriter(held.session.id, held.epoch)) && !held.stale)
      return;
    this.#fail(held, new Fenced());
    throw held.failed;
  }

  afterOperation(held: HeldSession): void {
    const { session } = held;
    if (held.failed || session.closed) return;
    if (
      (held.records >= CHECKPOINT_RECORDS || held.length >= CHECKPOINT_LENGTH) &&
      !session.busy &&
      !held.pending
    ) {
      this.checkpoint(held).catch(error =>
        this.#parts.log.debug({ err: error }, `session ${session.id} has no checkpoint`),
      );
    }
  }

  append<K extends RecordKind>(session: Session, kind: K, body: RecordBody<K>): void {
    const held = this.#held.get(session.id);
    if (!held || held.session !== session || held.failed) return;
    const n = ++session.recorded;
    if (held.stale) {
      // The store may have lost the records before this one.
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
    this.#follow(held, n, this.#parts.store.append(session.id, held.epoch, n, RECORD_KINDS[kind], text));
  }

  /** Tracks a write in progress. When one fails, all later ones fail too, even if the store accepts them. */
  #follow(held: HeldSession, n: number, written: Promise<Outcome>, isCheckpoint = false): Promise<void> {
    const pending = written.then(
      outcome => {
        if (held.pending === pending) held.pending = undefined;
        // The client of the store sends a script again that the store had lost, after later commands.
        if (n !== held.acknowledged + 1 || n > held.holeAt || outcome !== 'kept') {
          this.#miss(held, n, held.failed ?? new Fenced(outcome));
          return;
        }
        held.acknowledged = n;
        if (!isCheckpoint) held.seen = n;
        held.top = n;
      },
      error => {
        if (held.pending === pending) held.pending = undefined;
        this.#miss(held, n, error);
      },
    );
    held.pending = pending;
    return pending;
  }

  /** The store has not kept a record. */
  #miss(held: HeldSession, n: number, error: unknown): void {
    held.holeAt = Math.min(held.holeAt, n);
    this.#fail(held, error);
  }

  #fail(held: HeldSession, error: unknown): void {
    if (held.failed) return;
    held.failed = error;
    if (!(error instanceof Fenced) || held.stale) this.giveUp(held.session.id, held.seen);
    this.drop(held);
  }

  giveUp(id: string, seen: number): void {
    this.#givenUp.set(id, seen);
  }

  /** Drops the copy of a session; the store keeps the session. */
  drop(held: HeldSession): void {
    const { session } = held;
    held.failed ??= new Fenced();
    if (this.#held.get(session.id) === held) this.#held.delete(session.id);
    this.#parts.sessions.drop(session);
  }

  checkpoint(held: HeldSession): Promise<void> {
    const { session, epoch } = held;
    if (!session.variant.copyable) return Promise.resolve();
    const n = ++session.recorded;
    let changed: ReturnType<typeof changeOf>;
    try {
      changed = changeOf(session, this.#parts);
    } catch (error) {
      // Its number goes to the next record, so that there is no hole.
      session.recorded--;
      return Promise.reject(error);
    }
    const written = this.#parts.store.checkpoint(session.id, { epoch, n }, changed.change);
    held.records = 0;
    held.length = 0;
    return this.#follow(held, n, written, true).then(() => {
      if (held.acknowledged < n) throw held.failed;
      changed.stored();
    });
  }

  /** Opens sessions in the store; each is `storing` until it has them. */
  opened(sessions: readonly Session[], claim: RequestClaim | undefined): void {
    const [{ owner, variant }] = sessions;
    const { limits } = this.#parts;
    const fresh = sessions.map((session): NewSession => {
      const deadline = Math.round(session.wall(session.deadline));
      const { body, ...stored } = newSession(session, this.#parts, {
        episode: session.episode.capture(),
        deadline,
      });
      session.recorded = 1;
      return { ...stored, record: JSON.stringify(body), ttlMs: this.dueIn(session) };
    });
    const envId = variant.environment.spec.id;
    const opening = this.#parts.store.open(owner, envId, mostOpen(limits), fresh, claim).then(refused => {
      if (refused && 'claimed' in refused) throw new ClaimedBefore(claim!, refused.claimed);
      if (refused) throw new TooManySessions(refusalAt(limits, refused, envId), sessions.length);
      return 'kept' as const;
    });
    for (const session of sessions) {
      const held = heldSession(session, { epoch: 1, top: 1 }, { acknowledged: 0, seen: 0, records: 1 });
      held.touchedAt = this.#parts.sessions.now();
      this.#held.set(session.id, held);
      session.storing = this.#follow(held, 1, opening).then(() => {
        session.storing = undefined;
        if (held.acknowledged < 1) throw held.failed;
      });
      session.storing.catch(() => undefined);
    }
  }

  /** Ends a session in the store. One that expired ends there by the store's clock. */
  ended(session: Session, { owner, ending, reason }: EndedSession): void {
    const held = this.#held.get(session.id);
    if (!held || held.session !== session) return;
    this.#held.delete(session.id);
    if (ending === 'session_expired') return;
    const tombstone = { owner, ending, reason };
    const at = { epoch: held.epoch, n: session.recorded, hasCheckpoint: session.image !== undefined };
    held.ending = (held.pending ?? Promise.resolve()).then(() =>
      // Where the last write failed, the session may still be there.
      held.failed instanceof TooManySessions || held.failed instanceof ClaimedBefore
        ? ('gone' as const)
        : this.#parts.store.end(session.id, at, tombstone, this.forgetMs),
    );
    held.ending.catch(error => {
      this.#parts.log.warn({ session_id: session.id, err: error }, `session ${session.id} is ended later`);
      if (this.#unended.size < MAX_GIVEN_UP) this.#unended.set(session.id, { at, tombstone });
    });
  }

  get forgetMs(): number {
    return Math.ceil(1000 * this.#parts.limits.goneSeconds);
  }

  /** Milliseconds until a session is due in the store, which learns of a use only after some of that time. */
  dueIn({ ttlMs, deadline }: Session): number {
    const left = deadline - this.#parts.sessions.now();
    return Math.max(1, Math.min(ttlMs + Math.max(ttlMs / TOUCHES, MIN_SLACK_MS), left));
  }

  /** Newest record that a client may have `seen` of a session with a given-up copy; removes the entry. */
  takeGivenUp(id: string): number | undefined {
    const seen = this.#givenUp.get(id);
    this.#givenUp.delete(id);
    return seen;
  }

  /** Ends the sessions that ended here while the store did not answer. */
  async endLate(): Promise<void> {
    for (const [id, { at, tombstone }] of this.#unended) {
      await this.#parts.store.end(id, at, tombstone, this.forgetMs);
      this.#unended.delete(id);
    }
  }
}

/** A session that this server begins to write, with the number of its records in the store. */
export function heldSession(
  session: Session,
  { epoch, top }: Position,
  { acknowledged, seen, records }: Pick<HeldSession, 'acknowledged' | 'seen' | 'records'>,
): HeldSession {
  return {
    session,
    epoch,
    top,
    acknowledged,
    seen,
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
