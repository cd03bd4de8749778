import type { Socket } from 'node:net';
import type { FastifyRequest } from 'fastify';
import type { RawData, WebSocket } from 'ws';
import type { MaybePromise } from '../../environments/core/maybe-promise.ts';
import { problemOf } from '../../operations/dispatch/problem-of.ts';
import { TooManySessions } from '../../sessions/limits/admission.ts';
import type { Principal } from '../../sessions/principal.ts';
import type { ProblemHandler } from '../replies/problem-handler.ts';
import type { McpServer } from './mcp-server.ts';
import type { OpenEnvPlay, PlayedSession } from './play.ts';

/** Frames that may wait for their turn; beyond, the socket is not read. */
const MAX_WAITING = 64;
/** Unsent bytes above which the socket is not read. */
const HIGH_WATER_BYTES = 4 * 1024 * 1024;

/** Close codes (RFC 6455, section 7.4.1, and its registry). */
export const NORMAL = 1000;
const SERVER_FAULT = 1011;
const TRY_AGAIN_LATER = 1013;

/** What the sockets of this protocol share. */
export interface SocketServices {
  readonly play: OpenEnvPlay;
  readonly mcp: McpServer;
  readonly problemHandler: ProblemHandler;
  /** Lets a reply leave when what was done before it is kept as the settings say. */
  readonly deliver: (reply: () => void) => void;
}

/**
 * A WebSocket with its own session for its whole life. Messages are answered in order. What is
 * said on it is its subclass's business.
 */
export abstract class SessionSocket {
  protected readonly socket: WebSocket;
  protected readonly services: SocketServices;
  protected readonly principal: Principal;
  protected readonly envId: string;
  readonly #stream: Socket;
  readonly #waiting: string[] = [];
  #busy = true;
  #seat: PlayedSession | undefined;
  /** The session was opened for this socket and goes with it. */
  #owner = true;

  /** @param sessionId a session to take up instead of opening one */
  constructor(
    socket: WebSocket,
    request: FastifyRequest,
    services: SocketServices,
    envId: string,
    sessionId?: string,
  ) {
    this.socket = socket;
    this.#stream = request.raw.socket;
    this.services = services;
    this.principal = request.principal;
    this.envId = envId;
    socket.on('message', (data, isBinary) => this.#receive(data, isBinary));
    socket.on('error', () => socket.terminate());
    socket.on('close', () => this.leave());
    this.#begin(sessionId);
  }

  /** The reply to a frame, or nothing where there is none. It never throws. */
  protected abstract answer(text: string, played: PlayedSession): MaybePromise<string | undefined>;

  /** What is said where no session can be opened or taken up, before the socket closes. */
  protected abstract refusal(error: unknown): string;

  /** What is said where the session is lost, before the socket closes. */
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
    else await this.#work();
  }

  /** Tells why there is no session, and hangs up. */
  #refuse(error: unknown): void {
    this.#send(this.refusal(error));
    if (problemOf(error) instanceof TooManySessions) this.socket.close(TRY_AGAIN_LATER, 'no session is free');
    else this.socket.close(SERVER_FAULT, 'there is no session');
  }

  /** Gives up the session. */
  protected leave(): void {
    const played = this.#seat;
    this.#seat = undefined;
    this.#waiting.length = 0;
    if (played && this.#owner) this.#release(played);
  }

  async #release(played: PlayedSession): Promise<void> {
    try {
      await this.services.play.close(this.principal, played);
    } catch (error) {
      // One that expired so long ago that nobody remembers it.
      if (problemOf(error).code !== 'unknown_session') this.services.problemHandler.document(error);
    }
  }

  #receive(data: RawData, isBinary: boolean): void {
    if (isBinary) {
      this.lose('frames must be text');
      return;
    }
    this.#waiting.push(data.toString());
    if (this.#waiting.length > MAX_WAITING) this.socket.pause();
    if (!this.#busy) this.#work();
  }

  async #work(): Promise<void> {
    this.#busy = true;
    for (;;) {
      const text = this.#waiting.shift();
      if (text === undefined) break;
      const reply = this.#seat && this.answer(text, this.#seat);
      const written = reply instanceof Promise ? await reply : reply;
      if (written !== undefined) this.services.deliver(() => this.#send(written));
      if (this.socket.isPaused && this.#waiting.length === 0) await this.#resume();
    }
    this.#busy = false;
  }

  /** Reads on when what was written has left. */
  async #resume(): Promise<void> {
    if (this.#stream.writableLength > HIGH_WATER_BYTES && this.socket.readyState === this.socket.OPEN) {
      await new Promise<void>(resolve => {
        const done = () => {
          this.#stream.off('drain', done);
          this.socket.off('close', done);
          resolve();
        };
        this.#stream.on('drain', done);
        this.socket.on('close', done);
      });
    }
    this.socket.resume();
  }

  /** Says that the session is lost, and hangs up. */
  protected lose(message: string): void {
    this.#send(this.farewell(message));
    this.leave();
    this.socket.close(SERVER_FAULT, 'the session is lost');
  }

  #send(text: string): void {
    if (this.socket.readyState !== this.socket.OPEN) return;
    this.socket.send(text);
    if (this.#stream.writableLength > HIGH_WATER_BYTES) this.socket.pause();
  }
}
