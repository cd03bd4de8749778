import { setTimeout as delay } from 'node:timers/promises';
import type { ServerProcess } from '../server-process.ts';

/** Something that happens to the server. */
export interface Fault {
  readonly name: string;
  /** When, in shares of the stage. */
  readonly at: number;
  /** Connections break, and nothing that was acknowledged may be gone. */
  readonly kills: boolean;
  run(server: ServerProcess, workers: number): Promise<void>;
}

/** The time without restarts, in which memory is looked at; in shares of the stage. */
export const MEMORY_FROM = 0.15;
const MEMORY_TO = 0.55;

/** The floods begin, and how long they take; memory is looked at before and after them. In shares of the stage. */
export const FLOODS_FROM = 0.28;
export const FLOODS_SHARE = 0.14;

/** Until the others have noticed that a worker is missing. */
const NOTICED_MS = 1000;

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

const WORKER: Fault = {
  name: 'kill -9 of one worker',
  at: 0.85,
  kills: true,
  async run(server, workers) {
    server.killWorker(0);
    await delay(NOTICED_MS);
    await server.whole(workers);
  },
};

/** What happens to a server of so many workers, in the order of time. */
export function faultsOf(workers: number): Fault[] {
  return workers === 1 ? [SIGTERM, SIGKILL] : [SIGTERM, SIGKILL, WORKER];
}
