import type { Socket } from 'node:net';
import type { FastifyInstance } from 'fastify';
import { WebSocket } from 'ws';
import { Queue } from '../../../shared/scheduling/queues.ts';
import type { Lane } from '../../scheduling/fair-scheduler.ts';

const MS_PER_S = 1000;
/** A timer this many intervals late means that this process was blocked, not its peers. */
const LATE = 1.5;

interface Heartbeat {
  /** True if it has sent nothing since the last check. */
  silent: boolean;
  /** Bytes sent to it at the last check, where others were pending; undefined where none were. */
  sent: number | undefined;
}

/**
 * Pings sockets, and cuts those that have sent nothing since the last ping or have read nothing of their pending bytes: a
 * peer behind a lost cable never closes. A socket that is not read, because too many of its frames wait, need not have sent
 * anything.
 * @returns adds a socket, until it closes
 */
export function heartbeat(app: FastifyInstance, seconds: number): (socket: PacedWebSocket) => void {
  const heartbeats = new Map<PacedWebSocket, Heartbeat>();
  let last = performance.now();
  const timer = setInterval(() => {
    const now = performance.now();
    const late = now - last > LATE * seconds * MS_PER_S;
    last = now;
    for (const [socket, heartbeatOf] of heartbeats) {
      const sent = socket.bytesUnsent > 0 ? socket.bytesSent : undefined;
      const stuck = sent !== undefined && sent === heartbeatOf.sent;
      if (!late && (stuck || (heartbeatOf.silent && socket.isRead))) {
        socket.terminate();
        continue;
      }
      heartbeatOf.silent = true;
      heartbeatOf.sent = sent;
      socket.ping();
    }
  }, seconds * MS_PER_S).unref();
  app.addHook('onClose', async () => clearInterval(timer));
  return socket => {
    const heartbeatOf: Heartbeat = { silent: false, sent: undefined };
    const heard = () => {
      heartbeatOf.silent = false;
    };
    heartbeats.set(socket, heartbeatOf);
    socket.on('message', heard);
    socket.on('ping', heard);
    socket.on('pong', heard);
    socket.on('close', () => heartbeats.delete(socket));
  };
}

/** Unsent bytes above which none of a socket's frames are answered. */
const MAX_UNSENT_BYTES = 4 * 1024 * 1024;
/** Bytes of waiting frames, of one socket and in total, above which a socket is not read. */
const MAX_WAITING_BYTES = 1024 * 1024;
const MAX_WAITING_BYTES_TOTAL = 64 * 1024 * 1024;
/** Bytes held by frames in progress, of one socket and in total, above which no further ones of a socket are handled. */
const MAX_HELD_BYTES = 16 * 1024 * 1024;
const MAX_HELD_BYTES_TOTAL = 128 * 1024 * 1024;
/** Bytes counted for a frame besides its payload. */
const FRAME_BYTES = 200;

/** A waiting event. */
interface Frame {
  readonly event: 'message' | 'ping' | 'close';
  readonly values: readonly unknown[];
  readonly bytes: number;
}

let waitingInAll = 0;
let heldInAll = 0;
/** Sockets with frames that wait until the total falls. */
const waitingForOthers = new Set<PacedWebSocket>();

/**
 * A server socket that handles its frames in its connection's turns. It is not read while too many frames wait, and handles
 * none while its replies are not read or its frames in progress hold too much. Handlers see `message`, `ping` and `close` in
 * order of arrival.
 */
export class PacedWebSocket extends WebSocket {
  #lane!: Lane;
  #stream!: Socket;
  #mostFrames = 0;
  readonly #frames = new Queue<Frame>();
  /** The message being handled at once. */
  #message: unknown;
  #isBinary: unknown;
  #bytes = 0;
  #heldBytes = 0;
  #isScheduled = false;
  #isSuspended = false;
  #isStopped = false;

  /** Sets the connection and lane of its turns, and how many frames may wait. Call it before any frame can come. */
  pace(stream: Socket, lane: Lane, mostFrames: number): void {
    this.#stream = stream;
    this.#lane = lane;
    this.#mostFrames = mostFrames;
    stream.on('drain', () => this.#proceed());
    stream.on('close', () => this.#proceed());
  }

  /** True unless too many of its frames wait. */
  get isRead(): boolean {
    return !this.#isStopped;
  }

  /** Bytes that wait for the peer to read. */
  get bytesUnsent(): number {
    return this.#stream.writableLength;
  }

  /** Bytes sent to the peer. */
  get bytesSent(): number {
    return this.#stream.bytesWritten - this.#stream.writableLength;
  }

  /** Counts the memory of a frame until it is answered. */
  hold(bytes: number): void {
    this.#heldBytes += bytes;
    heldInAll += bytes;
  }

  /** The frame was answered. */
  release(bytes: number): void {
    this.#heldBytes -= bytes;
    heldInAll -= bytes;
    this.#proceed();
    if (heldInAll >= MAX_HELD_BYTES_TOTAL || waitingForOthers.size === 0) return;
    const waiting = [...waitingForOthers];
    waitingForOthers.clear();
    for (const socket of waiting) socket.#proceed();
  }

  override emit(event: string | symbol, ...values: unknown[]): boolean {
    if (event === 'message' && this.#takeAtOnce(values[0], values[1])) return true;
    if (event === 'message' || event === 'ping' || (event === 'close' && this.#isBusy)) {
      this.#receive({ event, values, bytes: FRAME_BYTES + bytesOf(values[0]) });
      return true;
    }
    return super.emit(event, ...values);
  }

  /**
   * Delays messages until {@link resumeMessages}. The socket is still read while few wait, so that pings are answered and a
   * close is noticed; on a close the messages are handled after all, before it.
   */
  suspendMessages(): void {
    this.#isSuspended = true;
  }

  resumeMessages(): void {
    this.#isSuspended = false;
    this.#proceed();
  }

  /** True if a frame is being handled, or waits. */
  get #isBusy(): boolean {
    return this.#isScheduled || this.#frames.length > 0;
  }

  /**
   * True if its replies are not read, or its frames in progress hold too much. Every socket may have some frame in progress.
   */
  get #isLaden(): boolean {
    if (this.#stream.writableLength > MAX_UNSENT_BYTES) return true;
    return this.#heldBytes > 0 && (this.#heldBytes >= MAX_HELD_BYTES || heldInAll >= MAX_HELD_BYTES_TOTAL);
  }

  /** Handles a message at once if nothing prevents it: the usual case. */
  #takeAtOnce(data: unknown, isBinary: unknown): boolean {
    if (this.#isScheduled || this.#isSuspended || this.#isStopped || this.#frames.length > 0) return false;
    if (this.readyState !== WebSocket.OPEN || this.#isLaden || !this.#lane.isFree) return false;
    this.#isScheduled = true;
    this.#message = data;
    this.#isBinary = isBinary;
    this.#lane.run(this.#handleMessage);
    return true;
  }

  readonly #handleMessage = (): void => {
    const data = this.#message;
    this.#message = undefined;
    try {
      super.emit('message', data, this.#isBinary);
    } finally {
      this.#isScheduled = false;
      if (this.#frames.length > 0) this.#proceed();
    }
  };

  #receive(frame: Frame): void {
    if (this.#isSuspended && frame.event === 'ping') this.#frames.unshift(frame);
    else this.#frames.push(frame);
    this.#count(frame.bytes);
    this.#proceed();
    if (!this.#isStopped && this.#isFull()) {
      this.#isStopped = true;
      this.pause();
    }
  }

  #count(bytes: number): void {
    this.#bytes += bytes;
    waitingInAll += bytes;
  }

  #isFull(): boolean {
    if (this.#frames.length === 0) return false;
    return (
      this.#frames.length >= this.#mostFrames ||
      this.#bytes >= MAX_WAITING_BYTES ||
      waitingInAll >= MAX_WAITING_BYTES_TOTAL
    );
  }

  /** Schedules the next frame, if there is one and nothing prevents it. */
  #proceed(): void {
    if (this.#isScheduled || this.#frames.length === 0) return;
    const isOpen = this.readyState === WebSocket.OPEN;
    const isWaiting = this.#isSuspended && this.#frames.first!.event !== 'ping';
    if (isOpen && (isWaiting || this.#isLaden)) {
      if (heldInAll >= MAX_HELD_BYTES_TOTAL) waitingForOthers.add(this);
      return;
    }
    this.#isScheduled = true;
    this.#lane.run(this.#handle);
  }

  readonly #handle = (): void => {
    const { event, values, bytes } = this.#frames.shift()!;
    this.#count(-bytes);
    try {
      if (event === 'ping') this.#pong(values[0] as Buffer);
      super.emit(event, ...values);
    } finally {
      this.#isScheduled = false;
      this.#proceed();
      if (this.#isStopped && !this.#isFull()) {
        this.#isStopped = false;
        this.resume();
      }
    }
  };

  #pong(data: Buffer): void {
    if (this.readyState === WebSocket.OPEN) this.pong(data, false, () => undefined);
  }
}

export function bytesOf(value: unknown): number {
  return value instanceof Uint8Array ? value.byteLength : 0;
}
