import { problemOf } from '../../operations/dispatch/problem-of.ts';
import { Problem } from '../../problems.ts';
import type { Principal } from '../../sessions/principal.ts';
import type { ResetRequest } from './messages.ts';
import type { OpenEnvPlay, OpenEnvStepReply, PlayedSession } from './play.ts';

/** Who asks over HTTP, for which environment, in which session. */
export interface HttpCaller {
  readonly principal: Principal;
  readonly envId: string;
  /** Of `X-Session-Id`, or else of the cookie; empty where the client sends neither. */
  readonly name: string;
  /** The client chose the name itself: what it resets has that name from then on. */
  readonly chosen: boolean;
}

const ENDED = new Set(['session_closed', 'session_expired']);

interface NamedEntry {
  readonly played: Promise<PlayedSession>;
}

/** The sessions that clients play over HTTP, each under a name of the client's own choice or under its id. */
export class NamedSessions {
  readonly #play: OpenEnvPlay;
  readonly #most: number;
  readonly #entries = new Map<string, NamedEntry>();

  /** @param most names that are remembered; beyond, those reset longest ago are forgotten */
  constructor(play: OpenEnvPlay, most: number) {
    this.#play = play;
    this.#most = most;
  }

  /**
   * Begins an episode: in the session of that name, or in a new one where there is none or it has ended. Without a name
   * the session is always a new one, so that clients that name none never meet in one.
   * @throws Problem
   */
  async reset(caller: HttpCaller, request: ResetRequest): Promise<OpenEnvStepReply> {
    if (caller.name === '') return this.#openUnnamed(caller, request);
    const key = keyOf(caller);
    // Looked up again after waiting, so that of resets which come at once one opens the session for all.
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
    const entry = this.#entries.get(keyOf(caller)) ?? (await this.#attach(caller));
    if (entry) return entry.played;
    throw new Problem(
      'unknown_session',
      `no episode has begun under X-Session-Id ${caller.name}: POST reset first`,
    );
  }

  async #revisit(caller: HttpCaller): Promise<NamedEntry | undefined> {
    try {
      return await this.#attach(caller);
    } catch (error) {
      if (ENDED.has(problemOf(error).code)) return undefined;
      throw error;
    }
  }

  /** The name as the id of a session that was opened in another way. */
  async #attach(caller: HttpCaller): Promise<NamedEntry | undefined> {
    try {
      const played = await this.#play.attach(caller.principal, caller.envId, caller.name);
      return this.#remember(caller, Promise.resolve(played));
    } catch (error) {
      if (problemOf(error).code === 'unknown_session') return undefined;
      throw error;
    }
  }

  /** A new session, under its id. */
  async #openUnnamed(caller: HttpCaller, request: ResetRequest): Promise<OpenEnvStepReply> {
    const { played, stepReply } = await this.#play.open(caller.principal, caller.envId, request);
    this.#remember({ ...caller, name: played.sessionId }, Promise.resolve(played));
    return stepReply;
  }

  async #open(caller: HttpCaller, request: ResetRequest): Promise<OpenEnvStepReply> {
    const { principal, envId } = caller;
    const opening = (async () => this.#play.open(principal, envId, request))();
    const entry = this.#remember(
      caller,
      opening.then(({ played }) => played),
    );
    try {
      await entry.played;
    } catch (error) {
      const key = keyOf(caller);
      if (this.#entries.get(key) === entry) this.#entries.delete(key);
      throw error;
    }
    return (await opening).stepReply;
  }

  #remember(caller: HttpCaller, played: Promise<PlayedSession>): NamedEntry {
    const key = keyOf(caller);
    const entry = { played };
    this.#entries.delete(key);
    this.#entries.set(key, entry);
    if (this.#entries.size > this.#most) {
      const [oldest] = this.#entries.keys();
      this.#entries.delete(oldest);
    }
    return entry;
  }
}

const keyOf = ({ principal, envId, name }: HttpCaller): string =>
  JSON.stringify([principal.name, envId, name]);
