import { readFileSync } from 'node:fs';
import type { Server } from 'node:http';
import type { Socket } from 'node:net';
import type { Logger } from 'pino';

/** Open files that are left for everything but connections: the database, the journal, sandboxes, remote environments. */
const RESERVED_FILES = 256;
const NOTE_EVERY_MS = 60_000;

/** Use of a connection: no request was made on it yet, none is in progress, or it is in use. */
export type ConnectionUse = 'unused' | 'idle' | 'busy';

export interface ConnectionLimitParts {
  /** Most connections of all clients. */
  readonly most: number;
  /** Part of a socket's address that names its client. */
  readonly networkOf: (address: string | undefined) => string;
  readonly useOf: (socket: Socket) => ConnectionUse;
  readonly log: Logger;
}

/**
 * Bounds the connections of a server, so that clients who open them without end leave others, and files, their room. A
 * connection beyond the limit takes the place of one that is not in use, of the address that has most of them; where all
 * of those are in use, the place of the oldest, unless that address is its own: then it is refused.
 */
export class ConnectionLimit {
  readonly #parts: ConnectionLimitParts;
  /** Sockets by the network of their address, in the order in which they came. */
  readonly #open = new Map<string, Set<Socket>>();
  #count = 0;
  #notedAt = Number.NEGATIVE_INFINITY;

  constructor(parts: ConnectionLimitParts) {
    this.#parts = parts;
  }

  watch(server: Server): void {
    // Before any listener that would begin to read it.
    server.prependListener('connection', (socket: Socket) => this.#add(socket));
  }

  #add(socket: Socket): void {
    const network = this.#parts.networkOf(socket.remoteAddress);
    if (this.#count >= this.#parts.most) {
      this.#note();
      const victim = this.#victim(network);
      (victim ?? socket).destroy();
      if (!victim) return;
      this.#remove(victim);
    }
    const sockets = this.#open.get(network) ?? new Set();
    this.#open.set(network, sockets.add(socket));
    this.#count++;
    socket.once('close', () => this.#remove(socket, network));
  }

  #remove(socket: Socket, network = this.#networkWith(socket)): void {
    const sockets = this.#open.get(network);
    if (!sockets?.delete(socket)) return;
    this.#count--;
    if (sockets.size === 0) this.#open.delete(network);
  }

  #networkWith(socket: Socket): string {
    for (const [network, sockets] of this.#open) if (sockets.has(socket)) return network;
    return '';
  }

  /** Which connection to end for a newcomer; undefined where it is to be refused. */
  #victim(newcomer: string): Socket | undefined {
    let largest = newcomer;
    let most = (this.#open.get(newcomer)?.size ?? 0) + 1;
    for (const [network, { size }] of this.#open) {
      if (size > most) [largest, most] = [network, size];
    }
    const sockets = this.#open.get(largest) ?? [];
    let idle: Socket | undefined;
    let oldest: Socket | undefined;
    for (const socket of sockets) {
      const use = this.#parts.useOf(socket);
      if (use === 'unused') return socket;
      if (use === 'idle') idle ??= socket;
      oldest ??= socket;
    }
    return idle ?? (largest === newcomer ? undefined : oldest);
  }

  #note(): void {
    const now = performance.now();
    if (now - this.#notedAt < NOTE_EVERY_MS) return;
    this.#notedAt = now;
    const { most, log } = this.#parts;
    log.warn(
      { connections: most },
      `${most} connections are open, the most there may be: idle ones are ended`,
    );
  }
}

/** Most connections that leave files for everything else, by the limit of this process (Linux). */
export function connectionsByFiles(limits = (): string => readFileSync('/proc/self/limits', 'utf8')): number {
  let text: string;
  try {
    text = limits();
  } catch {
    return Number.POSITIVE_INFINITY;
  }
  const files = /^Max open files +(\d+)/m.exec(text)?.[1];
  if (files === undefined) return Number.POSITIVE_INFINITY;
  return Math.max(Math.floor(Number(files) / 2), Number(files) - RESERVED_FILES);
}
