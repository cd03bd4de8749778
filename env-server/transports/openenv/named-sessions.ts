import type { FastifyRequest } from 'fastify';
import type { RawData } from 'ws';
import { RecentMap } from '../../../shared/remembered.ts';
import type { MaybePromise } from '../../environments/core/maybe-promise.ts';
import { problemOf } from '../../operations/problems.ts';
import { Problem } from '../../problems.ts';
import { TooManySessions } from '../../sessions/limits/admission.ts';
import type { SessionManager } from '../../sessions/manager.ts';
import type { Principal } from '../../sessions/principal.ts';
import type { ProblemHandler } from '../replies/problem-handler.ts';
import { bytesOf, type PacedWebSocket } from '../websocket/paced-websocket.ts';
import type { McpServer } from './mcp-server.ts';
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

/** Close codes (RFC 6455, section 7.4.1, and its registry). */
export const NORMAL = 1000;
const SERVER_FAULT = 1011;
const TRY_AGAIN_LATER = 1013;

/** Services shared by the protocol's sockets. */
export interface SocketServices {
  readonly play: OpenEnvPlay;
  readonly mcp: McpServer;
  readonly problemHandler: ProblemHandler;
  /** Sends a reply once everything before it is stored as the settings require. */
  readonly deliver: (reply: () => void) => void;
}

/**
 * A WebSocket with its own session for its whole life. Messages are answered in order. Subclasses define the messages.
 */
export abstract class SessionSocket {
  protected readonly socket: PacedWebSocket;
  protected readonly services: SocketServices;
  protected readonly principal: Principal;
  protected readonly envId: string;
  /** True while a message is being answered. */
  #busy = false;
  #seat: PlayedSession | undefined;
  /** True if the session was opened for this socket and ends with it. */
  #owner = true;

  /** @param sessionId a session to continue instead of opening one */
  constructor(
    socket: PacedWebSocket,
    request: FastifyRequest,
    services: SocketServices,
    envId: string,
    sessionId?: string,
  ) {
    this.socket = socket;
    this.services = services;
    this.principal = request.principal;
    this.envId = envId;
    socket.on('message', (data, isBinary) => this.#receive(data, isBinary));
    socket.on('error', () => socket.terminate());
    socket.on('close', () => this.leave());
    socket.suspendMessages();
    this.#begin(sessionId);
  }

  /** The reply to a frame, or nothing. It never throws. */
  protected abstract answer(text: string, played: PlayedSession): MaybePromise<string | undefined>;

  /** Message sent before the socket closes because no session can be opened or continued. */
  protected abstract refusal(error: unknown): string;

  /** Message sent before the socket closes because the session is lost. */
  protected abstract farewell(message: string): string;

  async #begin(sessionId: string | undefined): Promise<void> {
    const { play } = this.services;
    try {
      if (sessionId === undefined) {
        this.#seat = (await play.open(this.principal, this.envId)).played;
      } else {
        this.#owner = false;
        this.#seat = await play.attach(this.principal, this.envId, sessionId);
      }
    } catch (error) {
      this.#refuse(error);
      return;
    }
    if (this.socket.readyState !== this.socket.OPEN) this.leave();
    else this.socket.resumeMessages();
  }

  /** Reports why there is no session, and closes the socket. */
  #refuse(error: unknown): void {
    this.#send(this.refusal(error));
    if (problemOf(error) instanceof TooManySessions) this.socket.close(TRY_AGAIN_LATER, 'no session is free');
    else this.socket.close(SERVER_FAULT, 'there is no session');
  }

  /** Releases the session. */
  protected leave(): void {
    const played = this.#seat;
    this.#seat = undefined;
    if (played && this.#owner) this.#release(played);
  }

  async #release(played: PlayedSession): Promise<void> {
    try {
      await this.services.play.close(this.principal, played);
    } catch (error) {
      // A session that expired so long ago that it is forgotten.
      if (problemOf(error).code !== 'unknown_session') this.services.problemHandler.document(error);
    }
  }

  #receive(data: RawData, isBinary: boolean): void {
    // The session is gone, or the socket closed before this message's turn.
    if (!this.#seat || this.#busy) return;
    if (isBinary) {
      this.lose('frames must be text');
      return;
    }
    const reply = this.answer(data.toString(), this.#seat);
    if (reply instanceof Promise) this.#replyLater(reply, bytesOf(data));
    else this.#reply(reply);
  }

  /** @param bytes memory of the message until it is answered */
  async #replyLater(reply: Promise<string | undefined>, bytes: number): Promise<void> {
    this.#busy = true;
    this.socket.suspendMessages();
    this.socket.hold(bytes);
    this.#reply(await reply);
    this.#busy = false;
    this.socket.release(bytes);
    this.socket.resumeMessages();
  }

  #reply(text: string | undefined): void {
    if (text !== undefined) this.services.deliver(() => this.#send(text));
  }

  /** Reports that the session is lost, and closes the socket. */
  protected lose(message: string): void {
    this.#send(this.farewell(message));
    this.leave();
    this.socket.close(SERVER_FAULT, 'the session is lost');
  }

  #send(text: string): void {
    if (this.socket.readyState === this.socket.OPEN) this.socket.send(text);
  }
}
