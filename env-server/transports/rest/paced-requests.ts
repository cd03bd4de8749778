import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { networkOf } from '../../../shared/http/addresses.ts';
import { remembered } from '../../../shared/remembered.ts';
import { Queue } from '../../../shared/scheduling/queues.ts';
import { clientKey, type FairScheduler, type Lane, type Task } from '../../scheduling/fair-scheduler.ts';
import type { ConnectionUse } from '../access/auth.ts';

/** Waiting requests of one connection above which it is not read. */
const MAX_WAITING = 64;
/**
 * Most waiting requests of all connections. The connection that exceeds it is cut, because requests already read cannot be
 * put back.
 */
const MAX_WAITING_TOTAL = 20_000;
/** Milliseconds that a client may read nothing of a pending reply. */
const STALLED_MS = 60_000;
const PACED = Symbol('paced connection');

type PacedSocket = Duplex & { [PACED]?: Connection; readonly remoteAddress?: string };

interface WaitingRequest {
  readonly response: ServerResponse;
  readonly lane: Lane;
  readonly task: Task;
}

/** Names the client of a request with a valid token. */
export type IdentifyClient = (request: IncomingMessage) => string | undefined;

/**
 * Schedules requests. Requests that a connection pipelines are handled one after another, each when the reply to the previous
 * one has left, so no replies are made for a client that does not read them.
 */
export class PacedRequests {
  readonly #scheduler: FairScheduler;
  readonly #identify: IdentifyClient;

  constructor(scheduler: FairScheduler, identify: IdentifyClient) {
    this.#scheduler = scheduler;
    this.#identify = identify;
  }

  /** Installs itself before all other listeners for a server's requests. Call it after they have been added. */
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
      // The server has released the socket, and the upgrade's owner has not taken it yet.
      const onError = () => socket.destroy();
      socket.on('error', onError);
      this.laneOf(request).run(() => {
        for (const listener of upgraders) listener.call(server, request, socket, head);
        socket.off('error', onError);
      });
    });
  }

  /** Current use of a connection. An upgraded one is in use. */
  useOf(socket: PacedSocket): ConnectionUse {
    const connection = socket[PACED];
    if (!connection) return 'unused';
    return connection.isIdle ? 'idle' : 'busy';
  }

  /** The scheduler lane for the work of a request. */
  laneOf(request: IncomingMessage): Lane {
    return this.#connectionOf(request).lane;
  }

  #connectionOf(request: IncomingMessage): Connection {
    const socket: PacedSocket = request.socket;
    const { authorization = request.headers['x-api-key'] as string | undefined } = request.headers;
    let connection = socket[PACED];
    if (!connection || connection.authorization !== authorization) {
      const client = this.#identify(request);
      const key = client === undefined ? `address ${networkOf(socket.remoteAddress)}` : clientKey(client);
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

/** An HTTP/1.1 connection with its waiting requests. */
class Connection {
  lane: Lane;
  /** Header by which the client was identified. */
  authorization: string | undefined;
  readonly #socket: Duplex;
  readonly #waiting = new Queue<WaitingRequest>();
  /** True if too many requests wait for more to be read. */
  #isStopped = false;
  isUpgraded = false;
  /** The reply to the last handled request. */
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

  /** True if no request is in progress or waiting. */
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

  /** Node's server resumes reading a socket whenever it has handled a request. */
  #stopReading(): void {
    if (this.#isStopped) return;
    this.#isStopped = true;
    this.#socket.resume = () => this.#socket;
    this.#socket.pause();
  }

  /** Call it once for each time that the socket was paused. */
  resumeReading(): void {
    Reflect.deleteProperty(this.#socket, 'resume');
    if (!this.#socket.destroyed) this.#socket.resume();
  }

  #awaitReply(): void {
    const response = this.#response!;
    // 'close' always comes last; 'finish' when the connection is kept.
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

/** Connections to be read again, by client; the first client is next. */
const toRead = new Map<string, Queue<Connection>>();
let isReading = false;

/**
 * Resumes reading a paused connection, one in each turn of the event loop: a read of 64 KiB is parsed as a whole, which takes
 * as long as 1,500 requests. Clients take turns, no matter how many connections each has.
 */
function readAgain(connection: Connection): void {
  const { client } = connection.lane;
  const connections = remembered(toRead, client, () => new Queue());
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

/** Cuts connections of clients that read nothing of their pending replies. */
function cutStalled(server: Server): void {
  /** Bytes sent at the last check, where others were pending. */
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
