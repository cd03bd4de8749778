import { RecentMap } from '../../../shared/recent-map.ts';
import { problemOf } from '../../operations/problems.ts';
import { Problem } from '../../problems.ts';
import type { SessionManager } from '../../sessions/manager.ts';
import type { Principal } from '../../sessions/principal.ts';
import type { ResetRequest } from './messages.ts';
import type { OpenEnvPlay, OpenEnvStepReply, PlayedSession } from './play.ts';

/** Client, environment and session of an HTTP request. */
export interface HttpCaller {
  readonly principal: Principal;
  readonly envId: string;
  /** Value of `X-Session-Id`, or of the cookie; empty where the client sends neither. */
  readonly name: string;
  /** True if the client chose the name: the session of its next reset gets that name. */
  readonly chosen: boolean;
}

const ENDED = new Set(['session_closed', 'session_expired']);

interface NamedEntry {
  readonly played: Promise<PlayedSession>;
  /** True if the name is not the session's id, which alone records how the session ended. */
  readonly chosen: boolean;
}

/**
 * Sessions of HTTP clients, each under a name that the client chose or under its id. A name lasts as long as its
 * session, so the limits on sessions also bound the names, and no client can take another's name.
 */
export class NamedSessions {
  readonly #play: OpenEnvPlay;
  /** Entries of open sessions, and of those being opened. */
  readonly #entries = new Map<string, NamedEntry>();
  /** The same entries by session id. */
  readonly #bySession = new Map<string, Map<string, NamedEntry>>();
  /** Ids of ended sessions by chosen name, in the order of their ends. */
  readonly #ended: RecentMap<string, string>;

  /** @param mostEnded number of remembered names of ended sessions */
  constructor(play: OpenEnvPlay, mostEnded: number) {
    this.#play = play;
    this.#ended = new RecentMap(mostEnded);
    this.#sessions.endListeners.add(({ id }) => this.#endNames(id));
    // It may end at another server; until then the store finds the session by its name.
    this.#sessions.dropListeners.add(id => this.#endNames(id, false));
  }

  /** Number of the names that are kept. */
  get size(): number {
    return this.#entries.size;
  }

  get #sessions(): SessionManager {
    return this.#play.dispatcher.services.sessions;
  }

  /**
   * Begins an episode in the session of that name, or in a new session where there is none or it has ended. Without a
   * name the session is always new, so that nameless clients never share one.
   * @throws Problem
   */
  async reset(caller: HttpCaller, request: ResetRequest): Promise<OpenEnvStepReply> {
    if (caller.name === '') return this.#openUnnamed(caller, request);
    const key = keyOf(caller);
    // Looked up again after waiting, so that one of several simultaneous resets opens the session for all.
    const entry = this.#entries.get(key) ?? (await this.#revisit(caller)) ?? this.#entries.get(key);
    if (!entry) return caller.chosen ? this.#open(caller, request) : this.#openUnnamed(caller, request);
    try {
      return await this.#play.reset(caller.principal, await entry.played, request);
    } catch (error) {
      const { code } = problemOf(error);
      if (!ENDED.has(code) && code !== 'unknown_session') throw error;
      if (this.#entries.get(key) === entry) this.#entries.delete(key);
      return this.reset(caller, request);
    }
  }

  /**
   * The seat of that name.
   * @throws Problem `unknown_session` before the first reset; `session_expired`, `session_closed`
   */
  async get(caller: HttpCaller): Promise<PlayedSession> {
    if (caller.name === '') {
      throw new Problem(
        'unknown_session',
        'the request names no session: POST reset first, then send the X-Session-Id of its reply as header, or keep its cookie',
      );
    }
    const key = keyOf(caller);
    const entry =
      this.#entries.get(key) ?? (await this.#attach(caller)) ?? (await this.#attachShared(caller));
    if (entry) return entry.played;
    const ended = this.#ended.get(key);
    // It throws how the session ended.
    if (ended !== undefined) this.#sessions.find(caller.principal, ended);
    throw new Problem(
      'unknown_session',
      `no episode has begun under X-Session-Id ${caller.name}: POST reset first`,
    );
  }

  async #revisit(caller: HttpCaller): Promise<NamedEntry | undefined> {
    try {
      return (await this.#attach(caller)) ?? (await this.#attachShared(caller));
    } catch (error) {
      if (ENDED.has(problemOf(error).code)) return undefined;
      throw error;
    }
  }

  /** Treats the name as the id of a session opened over another transport. */
  async #attach(caller: HttpCaller, id = caller.name): Promise<NamedEntry | undefined> {
    try {
      const played = await this.#play.attach(caller.principal, caller.envId, id);
      return this.#remember(caller, played);
    } catch (error) {
      if (problemOf(error).code === 'unknown_session') return undefined;
      throw error;
    }
  }

  /** The session that a client named at another server. */
  async #attachShared(caller: HttpCaller): Promise<NamedEntry | undefined> {
    const { shared } = this.#play.dispatcher.services;
    if (!shared || !caller.chosen) return undefined;
    const known = await shared.store.reply(caller.principal.name, keyOf(caller));
    return known && this.#attach(caller, known.reply as string);
  }

  /** A new session, under its id. */
  async #openUnnamed(caller: HttpCaller, request: ResetRequest): Promise<OpenEnvStepReply> {
    const { played, stepReply } = await this.#play.open(caller.principal, caller.envId, request);
    this.#remember({ ...caller, name: played.sessionId }, played);
    return stepReply;
  }

  async #open(caller: HttpCaller, request: ResetRequest): Promise<OpenEnvStepReply> {
    const { principal, envId } = caller;
    const opening = (async () => this.#play.open(principal, envId, request))();
    const key = keyOf(caller);
    const entry = { played: opening.then(({ played }) => played), chosen: true };
    this.#entries.set(key, entry);
    try {
      const played = await entry.played;
      if (!(await this.#shareOrClose(caller, played))) {
        await this.#play.close(principal, played);
        return this.reset(caller, request);
      }
      this.#follow(key, entry, played);
    } catch (error) {
      if (this.#entries.get(key) === entry) this.#entries.delete(key);
      throw error;
    }
    return (await opening).stepReply;
  }

  /** Shares the name; where the store does not take it, nobody would find the session, so it ends. */
  async #shareOrClose(caller: HttpCaller, played: PlayedSession): Promise<boolean> {
    try {
      return await this.#share(caller, played);
    } catch (error) {
      try {
        await this.#play.close(caller.principal, played);
      } catch {
        // It expires.
      }
      throw error;
    }
  }

  /**
   * Lets other servers find the session by its name. Returns false where one of them has meanwhile opened another
   * session under the name.
   */
  async #share(caller: HttpCaller, { sessionId }: PlayedSession): Promise<boolean> {
    const { sessions, shared } = this.#play.dispatcher.services;
    if (!shared) return true;
    const record = { operation: 'openenv', asked: '', reply: sessionId };
    const kept = [caller.principal.name, keyOf(caller), record, sessions.keepKeysMs] as const;
    let known = await shared.store.replaceReply(...kept, undefined);
    while (known) {
      if (await this.#revisit(caller)) return false;
      // Its session has ended.
      known = await shared.store.replaceReply(...kept, known);
    }
    return true;
  }

  #remember(caller: HttpCaller, played: PlayedSession): NamedEntry {
    const key = keyOf(caller);
    const entry = { played: Promise.resolve(played), chosen: false };
    this.#entries.set(key, entry);
    this.#follow(key, entry, played);
    return entry;
  }

  /** Removes the name when the session ends, possibly before its client notices. */
  #follow(key: string, entry: NamedEntry, { sessionId }: PlayedSession): void {
    const names = this.#bySession.get(sessionId) ?? new Map<string, NamedEntry>();
    this.#bySession.set(sessionId, names.set(key, entry));
    if (!this.#sessions.get(sessionId)) this.#endNames(sessionId);
  }

  #endNames(sessionId: string, hasEnded = true): void {
    for (const [key, entry] of this.#bySession.get(sessionId) ?? []) {
      if (this.#entries.get(key) === entry) this.#entries.delete(key);
      if (entry.chosen && hasEnded) this.#ended.set(key, sessionId);
    }
    this.#bySession.delete(sessionId);
  }
}

const keyOf = ({ principal, envId, name }: HttpCaller): string =>
  JSON.stringify([principal.name, envId, name]);
