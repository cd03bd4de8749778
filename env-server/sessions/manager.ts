import type { MaybePromise } from '../environments/core/maybe-promise.ts';
import type { ClockRow } from '../persistence/session-rows.ts';
import { clientKey, scheduler } from '../scheduling/fair-scheduler.ts';
import type { Variant } from './episodes/variant.ts';
import {
  type EndedSession,
  EndedSessions,
  type EndReason,
  type FinishedSession,
  FinishedSessions,
} from './finished-sessions.ts';
import { Admission, type SessionLimits } from './limits/admission.ts';
import { type ByteBudget, PendingInputs } from './limits/budgets.ts';
import { ExpiryWheel, NewestFirst, ServerClock, SLOT_MS } from './limits/server-clock.ts';
import { type CloneRequest, type CreateRequest, type SessionHost, SessionOpener } from './opener.ts';
import type { Principal } from './principal.ts';
import type { ReplyCache } from './replies/reply-cache.ts';
import { Session } from './session.ts';
import { Shutdown } from './shutdown.ts';
import type { SessionJournal } from './storage/new-session.ts';
import type { SessionImage } from './storage/session-image.ts';
import type { StoredSession } from './storage/stored-session.ts';

export interface ListRequest {
  readonly envId?: string;
  readonly groupId?: string;
  /** Serial after which the page begins. */
  readonly after: number;
  readonly limit: number;
}

/** Shortest pause of the process that does not count as idle time, in milliseconds. */
const MIN_PAUSE_MS = 1000;

/** All sessions of a server: opens, finds, counts, expires and closes them. */
export class SessionManager implements SessionHost {
  readonly #limits: SessionLimits;
  readonly clock: ServerClock;
  /** Milliseconds of the server's clock. */
  readonly now: () => number;
  /** Converts a server time to the wall clock. */
  readonly wall: (time: number) => number;
  readonly #sessions = new Map<string, Session>();
  readonly #ended = new EndedSessions();
  readonly #newest = new NewestFirst<Session>();
  readonly #finished = new FinishedSessions();
  readonly #admission: Admission;
  readonly pendingInputs = new PendingInputs();
  readonly #opener: SessionOpener;
  #wheel: ExpiryWheel<Session>;
  readonly shutdown = new Shutdown();
  #sweeper: NodeJS.Timeout | undefined;
  /** Number of ended sessions by reason. */
  readonly endings: { [ending in EndReason]: number } = {
    session_expired: 0,
    session_closed: 0,
    session_lost: 0,
  };
  /** Number of sessions that could not be stored. */
  unsaved = 0;
  /** Journal of the sessions. Set it before there are sessions. */
  recorder: SessionJournal | undefined;
  /** While sessions of an earlier process are being resumed; operations wait for it. */
  resumption: Promise<void> | undefined;
  /** Called with every session that ends. */
  readonly endListeners = new Set<(ended: EndedSession, session: Session) => void>();
  /** Called with the id of every copy that is dropped here while the shared store keeps the session. */
  readonly dropListeners = new Set<(id: string) => void>();

  /**
   * @param replica number of this server among those that share a store
   */
  constructor(limits: SessionLimits, clock = new ServerClock(), replica?: number) {
    this.#limits = limits;
    this.#admission = new Admission(limits);
    this.clock = clock;
    this.now = this.clock.now;
    this.wall = time => this.clock.toWall(time);
    this.#wheel = new ExpiryWheel(this.now());
    this.#opener = new SessionOpener(this, limits, this.#admission, this.shutdown, replica);
  }

  /** Continues from an earlier process's time. Call it before there are sessions. */
  goOnFrom(moment: ClockRow): void {
    this.clock.goOnFrom(moment);
    this.#wheel = new ExpiryWheel(this.now());
  }

  /** Memory of all sessions. */
  get bytes(): ByteBudget {
    return this.#admission.bytes;
  }

  /** Starts looking for expired sessions every second. */
  start(): void {
    let last = this.now();
    let held: object | undefined;
    const look = () => {
      const now = this.now();
      const passed = now - last;
      const overdue = scheduler.overdue();
      const oldest = this.recorder?.oldestReply;
      if (oldest !== undefined && oldest === held) this.#giveBack(passed, now);
      else {
        // Requests that came in a pause of the process are still unread.
        if (this.clock.isElapsed && passed - SLOT_MS >= MIN_PAUSE_MS) this.#giveBack(passed - SLOT_MS, now);
        if (overdue.size > 0) this.#giveBack(passed, now, overdue);
      }
      last = now;
      held = oldest;
      this.sweep();
    };
    this.#sweeper = setInterval(look, SLOT_MS).unref();
  }

  /**
   * Takes a time in which the server kept clients waiting out of the idle times.
   * @param clients the clients that waited; absent: all
   */
  #giveBack(ms: number, now: number, clients?: ReadonlySet<string>): void {
    const isEveryone = clients === undefined || this.#limits.tokens === '';
    for (const session of this.#sessions.values())
      if (isEveryone || clients.has(clientKey(session.owner)))
        session.usedAt = Math.min(now, session.usedAt + ms);
  }

  get size(): number {
    return this.#sessions.size;
  }

  /** Number of operations that wait for another one on the same session. */
  get waiting(): number {
    let waiting = 0;
    for (const session of this.#sessions.values()) waiting += session.waiting;
    return waiting;
  }

  /** Replies of a client's requests that concern no session yet. */
  replies(owner: string): ReplyCache {
    return this.#admission.client(owner).replies;
  }

  /**
   * Opens a session or a group, all or none.
   * @throws Problem `too_many_sessions`, `draining`, `invalid_request`; InvalidOptions
   */
  create(owner: string, variant: Variant, request: CreateRequest): MaybePromise<Session[]> {
    return this.#opener.create(owner, variant, request);
  }

  /** @throws Problem `too_many_sessions`, `draining`, `unsupported`, `session_budget_exceeded` and the like */
  clone(session: Session, request: CloneRequest): MaybePromise<Session[]> {
    return this.#opener.clone(session, request);
  }

  /**
   * Delivers a reply once everything before it is stored as the settings require.
   * @param reads the reply acknowledges nothing, so it does not wait for a slow disk
   */
  deliver(reply: () => void, reads = false): void {
    if (this.recorder) this.recorder.deliver(reply, reads);
    else reply();
  }

  /** The disk is slow: replies that acknowledge nothing leave before those that wait for it. */
  get readsGoFirst(): boolean {
    return this.recorder?.isSlow ?? false;
  }

  /** An open session. */
  get(id: string): Session | undefined {
    return this.#sessions.get(id);
  }

  /**
   * A live session of this principal, marked as used.
   * @param now the time, where the caller already has it
   * @throws Problem `unknown_session`, `session_expired`, `session_closed`, `session_lost`
   */
  find(principal: Principal, id: string, now = this.now()): Session {
    const session = this.#sessions.get(id);
    if (session && (session.owner === principal.name || principal.scopes.has('admin'))) {
      if (session.expiresAt > now) {
        // A request may have waited since its time, e.g. for the sessions of an earlier process.
        if (now > session.usedAt) session.usedAt = now;
        return session;
      }
      this.#timeIsUp(session);
    }
    throw this.#ended.problem(principal.name, id, this.now());
  }

  /**
   * Ends a session; one that ended recently is accepted.
   * @throws Problem `unknown_session`
   */
  close(principal: Principal, id: string): void {
    const session = this.#sessions.get(id);
    if (session && (session.owner === principal.name || principal.scopes.has('admin'))) {
      this.end(session, 'session_closed');
      return;
    }
    const problem = this.#ended.problem(principal.name, id, this.now());
    if (problem.code === 'unknown_session') throw problem;
  }

  /** Adds an opened session. */
  add(session: Session): void {
    this.#sessions.set(session.id, session);
    this.#newest.add(session);
    this.#wheel.schedule(session);
  }

  /** Marks sessions of a client as used that a repeated reply names: the client may have missed the first one. */
  use(owner: string, ids: Iterable<string>): void {
    const now = this.now();
    for (const id of ids) {
      const session = this.#sessions.get(id);
      if (session?.owner === owner && session.expiresAt > now) session.usedAt = now;
    }
  }

  /** Sessions of the principal, oldest first; all sessions for an administrator. */
  list(principal: Principal, request: ListRequest): Session[] {
    const all = principal.scopes.has('admin');
    const now = this.now();
    const sessions: Session[] = [];
    for (const session of this.#sessions.values()) {
      if (session.expiresAt <= now) continue;
      if (session.serial <= request.after) continue;
      if (!all && session.owner !== principal.name) continue;
      if (request.envId !== undefined && session.variant.environment.spec.id !== request.envId) continue;
      if (request.groupId !== undefined && session.groupId !== request.groupId) continue;
      sessions.push(session);
      if (sessions.length === request.limit) break;
    }
    return sessions;
  }

  /** Open sessions of the principal, newest first; all sessions for an administrator. Does not mark them as used. */
  *newestFirst(principal: Principal): Generator<Session> {
    const all = principal.scopes.has('admin');
    const now = this.now();
    for (const session of this.#newest) {
      if (session.expiresAt > now && (all || session.owner === principal.name)) yield session;
    }
  }

  /** Recently ended sessions of the principal, the last one first; all sessions for an administrator. */
  finished(principal: Principal): FinishedSession[] {
    return this.#finished.list(principal.scopes.has('admin') ? undefined : principal.name);
  }

  /**
   * A session of this principal to view, open or recently ended; not marked as used.
   * @throws Problem `unknown_session`, `session_expired`, `session_closed`, `session_lost`
   */
  look(principal: Principal, id: string): Session | FinishedSession {
    const all = principal.scopes.has('admin');
    const session = this.#sessions.get(id);
    if (session && (all || session.owner === principal.name)) return session;
    const finished = all ? this.#finished.find(id) : this.#finished.get(principal.name, id);
    if (finished) return finished;
    throw this.#ended.problem(principal.name, id, this.now());
  }

  /** Ends expired sessions and forgets those that ended long ago. */
  sweep(): void {
    const now = this.now();
    for (const session of this.#wheel.sweep(now)) this.#timeIsUp(session);
    this.#ended.forget(now);
    this.#finished.forget(now);
    for (const [, { replies }] of this.#admission.clients()) replies.turn(now, this.keepKeysMs);
  }

  /** Shortest time in milliseconds for which request keys are remembered after their replies were dropped. */
  get keepKeysMs(): number {
    return 1000 * this.#limits.lifetimeSeconds;
  }

  /**
   * Stops starting operations and waits for those in progress.
   * @returns the number still unfinished when the time is over; their results are ignored
   */
  suspend(graceMs: number): Promise<number> {
    return this.shutdown.suspend(graceMs, () =>
      Array.from(this.#sessions.values(), session => session.underWay).filter(each => each !== undefined),
    );
  }

  /** Ends every session and stops looking for expired ones. */
  stop(): void {
    this.shutdown.stop();
    clearInterval(this.#sweeper);
    for (const session of this.#sessions.values()) this.end(session, 'session_closed');
  }

  /** All open sessions. */
  open(): Iterable<Session> {
    return this.#sessions.values();
  }

  /** Replies of clients' requests that concern no session yet, by client. */
  *clientReplies(): Generator<readonly [owner: string, replies: ReplyCache]> {
    for (const [owner, { replies }] of this.#admission.clients()) yield [owner, replies];
  }

  /** Adds an earlier process's record of an ended session. */
  recallEnded(ended: EndedSession): void {
    this.#ended.remember(ended);
  }

  /** Reopens a session of an earlier process and restarts its idle time. Limits do not apply. */
  recall(stored: StoredSession, variant: Variant, image?: SessionImage): Session {
    const session = this.restore(stored, variant, image);
    variant.opened(this.#admission.client(stored.owner).account);
    this.#admission.count(stored.owner, variant.counters, 1);
    this.#opener.countFrom(stored.serial);
    this.add(session);
    return session;
  }

  /** A view of a stored session, which is not open here. */
  restore({ episode, past, ...settings }: StoredSession, variant: Variant, image?: SessionImage): Session {
    const { account } = this.#admission.client(settings.owner);
    const session = new Session(
      { ...settings, variant, account, recorder: this.recorder, now: this.now, wall: this.wall },
      episode,
      past,
    );
    session.changed = false;
    session.image = image;
    return session;
  }

  /** Drops the copy of a session that continues in a shared store. */
  drop(session: Session): void {
    if (session.closed) return;
    this.#remove(session);
    for (const listener of this.dropListeners) listener(session.id);
  }

  /** Time at which a session that ends now is forgotten. */
  get forgetAt(): number {
    return Math.ceil(this.now() + 1000 * this.#limits.goneSeconds);
  }

  /** @param reason why it cannot be stored, where that ends it */
  end(session: Session, ending: EndReason = 'session_closed', reason: string | null = null): void {
    if (session.closed) return;
    this.#finished.keep(session, ending, this.now());
    this.#remove(session);
    this.endings[ending]++;
    const { id, owner } = session;
    const ended = { id, owner, ending, reason, forgetAt: this.forgetAt };
    this.#ended.remember(ended);
    this.recorder?.ended(session, ended);
    for (const listener of this.endListeners) listener(ended, session);
  }

  #remove(session: Session): void {
    session.closed = true;
    if (this.#sessions.get(session.id) === session) this.#sessions.delete(session.id);
    this.#newest.remove(session);
    this.#wheel.cancel(session);
    this.#admission.count(session.owner, session.variant.counters, -1);
    session.releaseAll();
    session.variant.ended();
    session.episode.dispose();
  }

  /** Ends a session that has been idle too long here; in a shared store another server may have used it since. */
  #timeIsUp(session: Session): void {
    if (this.recorder?.isShared) this.drop(session);
    else this.end(session, 'session_expired');
  }
}
