import type { Socket } from 'node:net';
import type { FastifyRequest } from 'fastify';
import type { RawData, WebSocket } from 'ws';
import type { JsonObject } from '../../../shared/json.ts';
import { chain, type MaybePromise } from '../../../shared/maybe-promise.ts';
import { Problem, type ProblemCode } from '../../../shared/problems.ts';
import type { OpenEnvCode } from '../../custom/remote/openenv-protocol.ts';
import type { ProblemDesk } from '../../http/problems.ts';
import { problemOf } from '../../operations/problem-of.ts';
import { TooManySessions } from '../../sessions/admission.ts';
import type { Principal } from '../../sessions/principal.ts';
import { capacityOf } from './capacity.ts';
import { countable, InvalidMessage, within } from './faults.ts';
import type { McpDesk } from './mcp.ts';
import { type Message, readMessage, readReset, UnknownType } from './messages.ts';
import { type OpenEnvPlay, type Seat, type Shown, shownText } from './play.ts';

/** Frames that may wait for their turn; beyond, the socket is not read. */
const MOST_WAITING = 64;
/** Unsent bytes above which the socket is not read. */
const HIGH_WATER_BYTES = 4 * 1024 * 1024;

/** Close codes (RFC 6455, section 7.4.1, and its registry). */
const NORMAL = 1000;
const SERVER_FAULT = 1011;
const TRY_AGAIN_LATER = 1013;

/** Errors after which the session of a socket is gone. */
const SESSION_LOST = new Set<ProblemCode>([
  'unknown_session',
  'session_closed',
  'session_expired',
  'draining',
]);

/** What the sockets of this protocol share. */
export interface SocketServices {
  readonly play: OpenEnvPlay;
  readonly mcp: McpDesk;
  readonly desk: ProblemDesk;
}

interface ErrorData {
  readonly code: OpenEnvCode;
  readonly message: string;
  readonly more?: JsonObject;
}

/** One client of `/ws`: a session of its own from the first moment to the last, its messages answered in their order. */
export class OpenEnvSocket {
  readonly #socket: WebSocket;
  readonly #stream: Socket;
  readonly #services: SocketServices;
  readonly #principal: Principal;
  readonly #envId: string;
  readonly #waiting: string[] = [];
  #busy = true;
  #seat: Seat | undefined;
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
    this.#socket = socket;
    this.#stream = request.raw.socket;
    this.#services = services;
    this.#principal = request.principal;
    this.#envId = envId;
    socket.on('message', (data, isBinary) => this.#receive(data, isBinary));
    socket.on('error', () => socket.terminate());
    socket.on('close', () => this.#leave());
    this.#begin(sessionId);
  }

  async #begin(sessionId: string | undefined): Promise<void> {
    const { play } = this.#services;
    try {
      if (sessionId === undefined) {
        this.#seat = (await play.open(this.#principal, this.#envId)).seat;
      } else {
        this.#owner = false;
        this.#seat = await play.attach(this.#principal, this.#envId, sessionId);
      }
    } catch (error) {
      this.#refuse(error);
      return;
    }
    if (this.#socket.readyState !== this.#socket.OPEN) this.#leave();
    else await this.#work();
  }

  /** Tells why there is no session, and hangs up. */
  #refuse(error: unknown): void {
    this.#services.desk.document(error);
    const problem = problemOf(error);
    if (problem instanceof TooManySessions) {
      const more = capacityOf(problem);
      this.#fail({ code: 'CAPACITY_REACHED', message: problem.message, more });
      this.#socket.close(TRY_AGAIN_LATER, 'no session is free');
      return;
    }
    const faulty = problem.status >= 500 && !SESSION_LOST.has(problem.code);
    this.#fail(
      faulty
        ? { code: 'FACTORY_ERROR', message: problem.message, more: { factory_name: this.#envId } }
        : { code: 'SESSION_ERROR', message: problem.message },
    );
    this.#socket.close(SERVER_FAULT, 'there is no session');
  }

  #leave(): void {
    const seat = this.#seat;
    this.#seat = undefined;
    this.#waiting.length = 0;
    if (seat && this.#owner) this.#release(seat);
  }

  async #release(seat: Seat): Promise<void> {
    try {
      await this.#services.play.close(this.#principal, seat);
    } catch (error) {
      // One that expired so long ago that nobody remembers it.
      if (problemOf(error).code !== 'unknown_session') this.#services.desk.document(error);
    }
  }

  #receive(data: RawData, isBinary: boolean): void {
    if (isBinary) {
      this.#lose('frames must be text');
      return;
    }
    this.#waiting.push(data.toString());
    if (this.#waiting.length > MOST_WAITING) this.#socket.pause();
    if (!this.#busy) this.#work();
  }

  async #work(): Promise<void> {
    this.#busy = true;
    for (;;) {
      const text = this.#waiting.shift();
      if (text === undefined) break;
      const reply = this.#answer(text);
      const written = reply instanceof Promise ? await reply : reply;
      if (written !== undefined) this.#send(written);
      if (this.#socket.isPaused && this.#waiting.length === 0) await this.#resume();
    }
    this.#busy = false;
  }

  /** Reads on when what was written has left. */
  async #resume(): Promise<void> {
    if (this.#stream.writableLength > HIGH_WATER_BYTES && this.#socket.readyState === this.#socket.OPEN) {
      await new Promise<void>(resolve => {
        const done = () => {
          this.#stream.off('drain', done);
          this.#socket.off('close', done);
          resolve();
        };
        this.#stream.on('drain', done);
        this.#socket.on('close', done);
      });
    }
    this.#socket.resume();
  }

  /** The reply to a frame, or nothing where the socket is closed instead. */
  #answer(text: string): MaybePromise<string | undefined> {
    if (!this.#seat) return undefined;
    try {
      const reply = this.#run(readMessage(text), this.#seat);
      return reply instanceof Promise ? reply.catch(error => this.#mishap(error)) : reply;
    } catch (error) {
      return this.#mishap(error);
    }
  }

  #run(message: Message, seat: Seat): MaybePromise<string | undefined> {
    const { play, mcp } = this.#services;
    const principal = this.#principal;
    switch (message.type) {
      case 'reset':
        return chain(
          within(['data'], seat.form.wrapped, () => play.reset(principal, seat, readReset(message.data))),
          observationFrame,
        );
      case 'step':
        return chain(
          within(['data'], seat.form.wrapped, () => play.step(principal, seat, message.data)),
          observationFrame,
        );
      case 'state':
        return chain(play.state(principal, seat), data => frame('state', data));
      case 'mcp':
        return mcp
          .answer(message.data, { principal, envId: this.#envId, seat })
          .then(data => frame('mcp', data));
      case 'close':
        this.#leave();
        this.#socket.close(NORMAL);
        return undefined;
    }
  }

  #mishap(error: unknown): string | undefined {
    if (error instanceof UnknownType) {
      this.#services.desk.document(new Problem('invalid_request', error.message));
      return errorFrame({ code: 'UNKNOWN_TYPE', message: error.message });
    }
    this.#services.desk.document(countable(error));
    if (error instanceof InvalidMessage) {
      const message = `Invalid message: ${error.message}`;
      return errorFrame({ code: 'VALIDATION_ERROR', message, more: { errors: error.faults } });
    }
    const { code, message } = problemOf(error);
    if (code === 'bad_json') return errorFrame({ code: 'INVALID_JSON', message: `Invalid JSON: ${message}` });
    if (!SESSION_LOST.has(code)) return errorFrame({ code: 'EXECUTION_ERROR', message });
    this.#lose(message);
    return undefined;
  }

  #lose(message: string): void {
    this.#fail({ code: 'SESSION_ERROR', message });
    this.#leave();
    this.#socket.close(SERVER_FAULT, 'the session is lost');
  }

  #fail(error: ErrorData): void {
    this.#send(errorFrame(error));
  }

  #send(text: string): void {
    if (this.#socket.readyState !== this.#socket.OPEN) return;
    this.#socket.send(text);
    if (this.#stream.writableLength > HIGH_WATER_BYTES) this.#socket.pause();
  }
}

const frame = (type: string, data: JsonObject): string => JSON.stringify({ type, data });

const observationFrame = (shown: Shown): string => `{"type":"observation","data":${shownText(shown)}}`;

const errorFrame = ({ message, code, more }: ErrorData): string => frame('error', { message, code, ...more });
