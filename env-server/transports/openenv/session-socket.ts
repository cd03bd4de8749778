import type { FastifyRequest } from 'fastify';
import type { RawData } from 'ws';
import type { MaybePromise } from '../../environments/core/maybe-promise.ts';
import { problemOf } from '../../operations/problems.ts';
import { TooManySessions } from '../../sessions/limits/admission.ts';
import type { Principal } from '../../sessions/principal.ts';
import type { ProblemHandler } from '../replies/problem-handler.ts';
import { bytesOf, type PacedWebSocket } from '../websocket/paced-websocket.ts';
import type { McpServer } from './mcp-server.ts';
import type { OpenEnvPlay, PlayedSession } from './play.ts';

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
