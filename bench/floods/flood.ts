import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { residentBytes } from '../../test/process-memory.test-data.ts';
import type { ServerProcess } from '../server-process.ts';
import { ATTACKS } from './attacks.ts';
import type { LoopHeld } from './loop-watch.ts';
import { type Latencies, Probe } from './probe.ts';

const FLOODER = fileURLToPath(new URL('./flooder.ts', import.meta.url));
const LOOK_MS = 50;
/** A server that was just started compiles its code while the attack begins; that is not measured. */
const WARM_UP_MS = 2000;
/** Until what the attack left behind is cleared away. */
const AFTER_MS = 1500;

export interface FloodReport {
  readonly name: string;
  readonly livez: Latencies;
  readonly step: Latencies;
  /** Blocking times of the server's event loop. */
  readonly loop: LoopHeld;
  /** Memory of the processes that handle requests before, the most it was during, and after the attack. */
  readonly rssBytes: readonly [before: number, peak: number, after: number];
}

/** Begins an attack in a separate process and returns the function that ends it. */
export async function beginAttack(number: number, origin: string): Promise<() => Promise<void>> {
  const child = spawn(process.execPath, [FLOODER, String(number), origin], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  await Promise.race([once(child.stdout!, 'data'), once(child, 'exit')]);
  return async () => {
    if (child.exitCode !== null) throw new Error(`${ATTACKS[number].name}: the attack ended by itself`);
    const ended = once(child, 'exit');
    child.kill('SIGKILL');
    await ended;
  };
}

/** Attacks a server for so long, and measures what another client notices of it. */
export async function flood(number: number, server: ServerProcess, seconds: number): Promise<FloodReport> {
  const { origin, pids } = server;
  const probe = new Probe(origin, pids);
  await probe.start();
  const before = rssOf(pids);
  const end = await beginAttack(number, origin);
  await delay(WARM_UP_MS);
  probe.forget();
  await server.loopHeld();
  let peak = before;
  for (const until = performance.now() + seconds * 1000; performance.now() < until; await delay(LOOK_MS)) {
    peak = Math.max(peak, rssOf(pids));
  }
  const latencies = await probe.stop();
  const loop = await server.loopHeld();
  await end();
  await delay(AFTER_MS);
  return { name: ATTACKS[number].name, ...latencies, loop, rssBytes: [before, peak, rssOf(pids)] };
}

/** Resident memory of processes, in bytes. */
function rssOf(pids: readonly number[]): number {
  return pids.reduce((sum, pid) => sum + (residentBytes(pid, 'VmRSS') || 0), 0);
}
