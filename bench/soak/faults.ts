import { setTimeout as delay } from 'node:timers/promises';
import type { ServerProcess } from '../server-process.ts';

/** Something that happens to the server. */
export interface Fault {
  readonly name: string;
  /** When, in shares of the stage. */
  readonly at: number;
  /** Connections break, and nothing that was acknowledged may be gone. */
  readonly kills: boolean;
  run(server: ServerProcess): Promise<void>;
}

/** The time without restarts, in which memory is looked at; in shares of the stage. */
export const MEMORY_FROM = 0.15;
const MEMORY_TO = 0.55;

/** The floods begin, and how long they take; memory is looked at before and after them. In shares of the stage. */
export const FLOODS_FROM = 0.28;
export const FLOODS_SHARE = 0.14;

/** Length of a replica's pause. */
const PAUSE_MS = 1500;

const SIGTERM: Fault = {
  name: 'SIGTERM, and started again',
  at: MEMORY_TO,
  kills: false,
  async run(server) {
    await server.end('SIGTERM');
    await server.start();
  },
};

const SIGKILL: Fault = {
  name: 'kill -9, and started again',
  at: 0.7,
  kills: true,
  async run(server) {
    await server.end('SIGKILL');
    await server.start();
  },
};

const KILL_REPLICA: Fault = {
  name: 'kill -9 of one replica',
  at: 0.8,
  kills: true,
  async run(server) {
    server.signalReplica(0, 'SIGKILL');
  },
};

const PAUSE_REPLICA: Fault = {
  name: 'one replica stands still, and continues',
  at: 0.88,
  kills: true,
  async run(server) {
    server.signalReplica(1, 'SIGSTOP');
    await delay(PAUSE_MS);
    server.signalReplica(1, 'SIGCONT');
  },
};

/** Faults of a server with `replicas` replicas, in the order of time. */
export function faultsOf(replicas: number): Fault[] {
  return replicas === 1 ? [SIGTERM, SIGKILL] : [SIGTERM, SIGKILL, KILL_REPLICA, PAUSE_REPLICA];
}
