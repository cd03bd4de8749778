import { loadavg } from 'node:os';
import { setTimeout as delay } from 'node:timers/promises';
import { ATTACKS } from '../floods/attacks.ts';
import { beginAttack } from '../floods/flood.ts';
import { type Latencies, Probe } from '../floods/probe.ts';
import type { ServerProcess } from '../server-process.ts';

/** Effects of a flood on another client. */
export interface ObservedFlood {
  readonly name: string;
  readonly livez: Latencies;
  readonly step: Latencies;
  /** Load average of the machine at the end, over one minute. */
  readonly load: number;
}

/** `busy`: above the limit, but the client waited longer than that for a processor, so that it says nothing of the server. */
export function judged(flood: ObservedFlood, limitMs: number): 'holds' | 'slow' | 'busy' {
  if (worstNetP99(flood) <= limitMs) return 'holds';
  return Math.max(flood.livez.ownP99, flood.step.ownP99) > limitMs ? 'busy' : 'slow';
}

/** The larger net 99th percentile of the two kinds of requests, in milliseconds. */
export function worstNetP99({ livez, step }: ObservedFlood): number {
  return Math.max(livez.netP99, step.netP99);
}

/** Attacks that leave the limits of the players alone: those that open sessions without end would refuse them theirs. */
const NAMES = [
  'pictures: one WebSocket, frames "render" of a PNG',
  'pings: five WebSockets',
  'frames of 1 MB: two WebSockets',
  'batches of 4,096 steps: one WebSocket',
  'snapshots of long episodes, by batches',
  'pipelining: five connections, GET /v1/envs',
  'readers that never read: ten WebSockets asking for lists',
  'slow bodies: 300 connections',
];
const FLOODS = NAMES.map(name => {
  const number = ATTACKS.findIndex(attack => attack.name === name);
  if (number < 0) throw new Error(`there is no attack ${JSON.stringify(name)}`);
  return number;
});

/** Carries out one attack after the other, each for so long, until it is stopped; measures another client's latencies. */
export async function floods(
  { origin, pids }: Pick<ServerProcess, 'origin' | 'pids'>,
  seconds: number,
  stopped: AbortSignal,
  note: (name: string) => unknown,
): Promise<ObservedFlood[]> {
  const seen: ObservedFlood[] = [];
  for (const number of FLOODS) {
    if (stopped.aborted) break;
    const { name } = ATTACKS[number];
    note(name);
    const probe = new Probe(origin, pids);
    await probe.start();
    const end = await beginAttack(number, origin);
    probe.forget();
    await delay((seconds * 1000) / FLOODS.length, undefined, { signal: stopped }).catch(() => undefined);
    const latencies = await probe.stop();
    await end();
    seen.push({ name, ...latencies, load: loadavg()[0] });
  }
  return seen;
}
