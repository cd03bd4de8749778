import { readFileSync } from 'node:fs';
import type { Server } from 'node:http';
import type { Socket } from 'node:net';
import type { Logger } from 'pino';
import { counted } from '../../../shared/counted.ts';
import { networkOf } from '../../../shared/http/addresses.ts';

/**
 * File descriptors reserved for everything but connections: the database, the journal, sandboxes, remote environments.
 */
const RESERVED_FILES = 256;
const NOTE_EVERY_MS = 60_000;

/** Use of a connection: it has had no request yet, it is idle, or it is in use. */
export type ConnectionUse = 'unused' | 'idle' | 'busy';

export interface ConnectionLimitParts {
  /** Most connections of all clients. */
  readonly most: number;
  readonly useOf: (socket: Socket) => ConnectionUse;
  readonly log: Logger;
}

/**
 * Limits connections, so that a client who opens too many leaves room for others and for files. A connection beyond the
 * limit replaces an unused one of the address that has the most. Where all of those are in use, it replaces the oldest
 * of them, or is refused if that address is its own.
 */
export class ConnectionLimit {
  readonly #parts: ConnectionLimitParts;
  /** Sockets by network, in the order of their arrival. */
  readonly #open = new Map<string, Set<Socket>>();
  #count = 0;
  #notedAt = Number.NEGATIVE_INFINITY;

  constructor(parts: ConnectionLimitParts) {
    this.#parts = parts;
  }

  watch(server: Server): void {
    // Must come before any listener that begins to read the socket.
    server.prependListener('connection', (socket: Socket) => this.#add(socket));
  }

  #add(socket: Socket): void {
    const network = networkOf(socket.remoteAddress);
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

  /** The connection to end for a new one; undefined where the new one is refused. */
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
      `the limit of ${counted(most, 'connection')} is reached: idle ones are ended`,
    );
  }
}

/** Most connections that leave descriptors for everything else, by this process's limit (Linux). */
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
