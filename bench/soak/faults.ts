import { setTimeout as delay } from 'node:timers/promises';
import { attackNamed } from '../floods/attacks.ts';
import { type FloodReport, flood } from '../floods/flood.ts';
import type { ServerProcess } from '../server-process.ts';

/** Something that happens to the server. */
export interface Fault {
  readonly name: string;
  /** When, in shares of the stage. */
  readonly at: number;
  /** What was not stored may be gone. */
  readonly kills: boolean;
  run(server: ServerProcess, workers: number): Promise<void>;
}

/** One client floods the server, and the others go on. */
export interface Flood {
  readonly name: string;
  /** When, in shares of the stage. */
  readonly at: number;
  run(server: ServerProcess): Promise<FloodReport>;
}

/** The undisturbed time, in which memory is looked at; in shares of the stage. */
export const MEMORY_FROM = 0.15;
export const MEMORY_TO = 0.55;

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

/** Floods begin when memory is no longer looked at, and end before the first kill where a stage is long enough. */
const FLOODS_FROM = MEMORY_TO;
const FLOOD_SECONDS = 3;
/** What of the attacks is kept up in a soak; the first is none, for comparison. */
const FLOODS = [
  'none',
  'pictures:',
  'pings:',
  'batches of 4,096 pictures',
  'pipelining: five connections, pictures',
];

export function floods(): Flood[] {
  return FLOODS.map(name => ({
    name,
    at: FLOODS_FROM,
    run: server => flood(attackNamed(name), server.origin, server.pid, FLOOD_SECONDS),
  }));
}
