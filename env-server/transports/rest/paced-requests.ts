import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { networkOf } from '../../../shared/http/addresses.ts';
import { Queue } from '../../../shared/scheduling/queue.ts';
import type { FairScheduler, Lane, Task } from '../../scheduling/fair-scheduler.ts';
import type { ConnectionUse } from '../access/connection-limit.ts';

/** Requests of one connection that wait, above which it is not read. */
const MAX_WAITING = 64;
/** Requests of all connections that wait. The connection that goes beyond is cut: what was read already cannot be left unread. */
const MAX_WAITING_TOTAL = 20_000;
/** Milliseconds that a client may take no part of a reply that waits for it. */
const STALLED_MS = 60_000;
const PACED = Symbol('paced connection');

type PacedSocket = Duplex & { [PACED]?: Connection; readonly remoteAddress?: string };

interface WaitingRequest {
  readonly response: ServerResponse;
  readonly lane: Lane;
  readonly task: Task;
}

/** Names the client of a request that carries a valid token. */
export type IdentifyClient = (request: IncomingMessage) => string | undefined;

/**
 * Gives requests their turns. Requests that a connection sends without waiting for replies are handled one after the
 * other, each when the reply to the one before has left. So a client that reads no replies gets none made.
 */
export class PacedRequests {
  readonly #scheduler: FairScheduler;
  readonly #identify: IdentifyClient;

  constructor(scheduler: FairScheduler, identify: IdentifyClient) {
    this.#scheduler = scheduler;
    this.#identify = identify;
  }

  /** Puts itself before everything that listens to a server's requests. To be called when all of it listens. */
  pace(server: Server): void {
    for (const event of ['request', 'checkExpectation'] as const) {
      const listeners = server.listeners(event) as ((
        request: IncomingMessage,
        response: ServerResponse,
      ) => void)[];
      server.removeAllListeners(event);
      server.on(event, (request: IncomingMessage, response: ServerResponse) => {
        const connection = this.#connectionOf(request);
        const listened = () => {
          for (const listener of listeners) listener.call(server, request, response);
        };
        connection.take(response, listened);
      });
    }
    cutStalled(server);
    const upgraders = server.listeners('upgrade') as ((
      request: IncomingMessage,
      socket: Duplex,
      head: Buffer,
    ) => void)[];
    server.removeAllListeners('upgrade');
    server.on('upgrade', (request: IncomingMessage, socket: Duplex, head: Buffer) => {
      this.#connectionOf(request).isUpgraded = true;
      // The server has given up the socket, and who upgrades it has not taken it yet.
      const onError = () => socket.destroy();
      socket.on('error', onError);
      this.laneOf(request).run(() => {
        for (const listener of upgraders) listener.call(server, request, socket, head);
        socket.off('error', onError);
      });
    });
  }

  /** Current use of a connection. One that was upgraded is in use. */
  useOf(socket: PacedSocket): ConnectionUse {
    const connection = socket[PACED];
    if (!connection) return 'unused';
    return connection.isIdle ? 'idle' : 'busy';
  }

  /** The turns that the work for a request takes. */
  laneOf(request: IncomingMessage): Lane {
    return this.#connectionOf(request).lane;
  }

  #connectionOf(request: IncomingMessage): Connection {
    const socket: PacedSocket = request.socket;
    const { authorization = request.headers['x-api-key'] as string | undefined } = request.headers;
    let connection = socket[PACED];
    if (!connection || connection.authorization !== authorization) {
      const client = this.#identify(request);
      const key = client === undefined ? `address ${networkOf(socket.remoteAddress)}` : `client ${client}`;
      const lane = this.#scheduler.lane(key);
      if (connection) connection.changeClient(lane, authorization);
      else {
        connection = new Connection(socket, lane, authorization);
        socket[PACED] = connection;
      }
    }
    return connection;
  }
}

let waitingInAll = 0;

/** A connection of HTTP/1.1 with the requests that wait on it. */
class Connection {
  lane: Lane;
  /** Header that the client was known by. */
  authorization: string | undefined;
  readonly #socket: Duplex;
  readonly #waiting = new Queue<WaitingRequest>();
  /** Too many requests wait for more to be read. */
  #isStopped = false;
  isUpgraded = false;
  /** The reply to the request that was handled last. */
  #response: ServerResponse | undefined;

  constructor(socket: Duplex, lane: Lane, authorization: string | undefined) {
    this.#socket = socket;
    this.lane = lane;
    this.authorization = authorization;
  }

  changeClient(lane: Lane, authorization: string | undefined): void {
    this.lane = lane;
    this.authorization = authorization;
  }

  /** No request is in progress or waits. */
  get isIdle(): boolean {
    return !this.isUpgraded && this.#waiting.length === 0 && isDone(this.#response);
  }

  take(response: ServerResponse, task: Task): void {
    if (this.#socket.destroyed) return;
    if (this.#waiting.length === 0 && isDone(this.#response)) {
      this.#response = response;
      this.lane.run(task);
      return;
    }
    if (this.#waiting.length === 0) this.#awaitReply();
    this.#waiting.push({ response, lane: this.lane, task });
    waitingInAll++;
    if (this.#waiting.length >= MAX_WAITING) {
      if (waitingInAll > MAX_WAITING_TOTAL) this.#socket.destroy();
      else this.#stopReading();
    }
  }

  /** Node's server lets a socket be read again whenever it is done with a request. */
  #stopReading(): void {
    if (this.#isStopped) return;
    this.#isStopped = true;
    this.#socket.resume = () => this.#socket;
    this.#socket.pause();
  }

  /** To be called once for each time that it was stopped. */
  resumeReading(): void {
    Reflect.deleteProperty(this.#socket, 'resume');
    if (!this.#socket.destroyed) this.#socket.resume();
  }

  #awaitReply(): void {
    const response = this.#response!;
    // 'close' comes last in any case; 'finish' when the connection is kept.
    const next = () => {
      response.off('finish', next);
      response.off('close', next);
      this.#next();
    };
    response.on('finish', next);
    response.on('close', next);
  }

  #next(): void {
    const waiting = this.#waiting.shift();
    if (!waiting) return;
    waitingInAll--;
    if (this.#socket.destroyed) {
      while (this.#waiting.shift()) waitingInAll--;
      return;
    }
    this.#response = waiting.response;
    if (this.#waiting.length > 0) this.#awaitReply();
    waiting.lane.run(waiting.task);
    if (this.#isStopped && this.#waiting.length < MAX_WAITING / 2) {
      this.#isStopped = false;
      readAgain(this);
    }
  }
}

/** Connections to be read again, of each client that has some; the first client is next. */
const toRead = new Map<string, Queue<Connection>>();
let isReading = false;

/**
 * Reads a connection that was stopped. One of them has its turn in a round of the event loop: a read of 64 KiB is parsed as
 * a whole, which takes as long as 1,500 requests. So clients take turns, however many connections each has.
 */
function readAgain(connection: Connection): void {
  const { client } = connection.lane;
  let connections = toRead.get(client);
  if (!connections) {
    connections = new Queue();
    toRead.set(client, connections);
  }
  connections.push(connection);
  if (isReading) return;
  isReading = true;
  setImmediate(readNext);
}

function readNext(): void {
  for (const [client, connections] of toRead) {
    connections.shift()!.resumeReading();
    // It comes last in the next turn.
    toRead.delete(client);
    if (connections.length > 0) toRead.set(client, connections);
    break;
  }
  isReading = toRead.size > 0;
  if (isReading) setImmediate(readNext);
}

function isDone(response: ServerResponse | undefined): boolean {
  return response === undefined || response.writableFinished || response.destroyed;
}

/** Cuts connections of clients that take nothing of what waits for them. */
function cutStalled(server: Server): void {
  /** Bytes that had left at the last look, where others waited. */
  const sent = new Map<Socket, number | undefined>();
  const timer = setInterval(() => {
    for (const [socket, before] of sent) {
      const now = socket.writableLength > 0 ? socket.bytesWritten - socket.writableLength : undefined;
      if (now !== undefined && now === before) socket.destroy();
      else sent.set(socket, now);
    }
  }, STALLED_MS).unref();
  server.on('connection', (socket: Socket) => {
    sent.set(socket, undefined);
    socket.on('close', () => sent.delete(socket));
  });
  server.on('close', () => clearInterval(timer));
}
