/**
 * OpenEnv's scaling test, with OpenEnv's own server and ours in one run: `npm run bench:openenv-scaling`. All sessions
 * connect at the same time over OpenEnv's WebSocket protocol, reset, take one step, and close. Each server plays a bandit
 * of two arms. The servers take turns, each in a process to itself; OpenEnv is installed at the version of `peers.json`.
 *
 * - `--sessions 256,2048`: sessions at the same time, one row each
 * - `--repeats 3`: runs of each row; the table has the medians
 */

import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { WebSocket } from 'ws';
import { freePort } from '../test/free-port.test-data.ts';
import { readPeers, virtualEnvironment } from '../test/virtual-environment.ts';
import { positiveInteger, scriptFlags } from './flags.ts';
import { median, processorSeconds } from './measuring.ts';

const ROOT = join(import.meta.dirname, '..');
const START_MS = 60_000;
const SESSION_MS = 120_000;
const PULL = { type: 'step', data: { action: 'Phoenix' } };

const { values: options } = scriptFlags(import.meta.filename, {
  options: {
    sessions: { type: 'string', default: '256,2048' },
    repeats: { type: 'string', default: '3' },
  },
});
const sizes = options.sessions.split(',').map(text => positiveInteger('sessions', text));
const repeats = positiveInteger('repeats', options.repeats);
const most = Math.max(...sizes);

interface Target {
  readonly name: string;
  readonly command: (port: number) => readonly [string, ...string[]];
  /** Path of the environment. */
  readonly path: string;
}

interface Outcome {
  readonly succeeded: number;
  readonly seconds: number;
  /** Processor time of the server. */
  readonly cpuSeconds: number;
  /** Milliseconds from a session's connection to its end. */
  readonly p95: number;
}

const python = virtualEnvironment('peers/openenv', ...readPeers().groups.openenv.packages);
const targets: readonly Target[] = [
  {
    name: 'openenv',
    command: port => [
      python,
      join(import.meta.dirname, 'openenv-scaling/bandit.py'),
      String(port),
      String(most),
    ],
    path: '',
  },
  {
    name: 'ragen',
    command: port => [
      process.execPath,
      join(ROOT, 'env-server/main.ts'),
      ...['--port', String(port), '--max-sessions', String(2 * most), '--log-level', 'warn'],
    ],
    path: '/compat/openenv/Bandit-v0',
  },
];

/** Starts a server and waits until it answers. @throws Error where it ends or does not answer in time */
async function started(target: Target, port: number): Promise<ChildProcess> {
  const [program, ...args] = target.command(port);
  const child = spawn(program, args, { stdio: ['ignore', 'ignore', 'inherit'] });
  for (const deadline = Date.now() + START_MS; ; await sleep(100)) {
    if (child.exitCode !== null || Date.now() > deadline) throw new Error(`${target.name} did not start`);
    try {
      if ((await fetch(`http://127.0.0.1:${port}${target.path}/health`)).ok) return child;
    } catch {
      // It does not listen yet.
    }
  }
}

/** Plays one session. @returns its milliseconds; undefined where it failed */
async function session(url: string): Promise<number | undefined> {
  const begun = performance.now();
  const socket = new WebSocket(url, { perMessageDeflate: false });
  const signal = AbortSignal.timeout(SESSION_MS);
  try {
    await once(socket, 'open', { signal });
    for (const frame of [{ type: 'reset', data: { seed: 1 } }, PULL]) {
      socket.send(JSON.stringify(frame));
      const [reply] = (await once(socket, 'message', { signal })) as [Buffer];
      if ((JSON.parse(reply.toString()) as { type: string }).type !== 'observation') return undefined;
    }
    socket.close();
    await once(socket, 'close', { signal });
    return performance.now() - begun;
  } catch {
    socket.terminate();
    return undefined;
  }
}

async function measured(target: Target, sessions: number): Promise<Outcome> {
  const port = await freePort();
  const server = await started(target, port);
  try {
    const url = `ws://127.0.0.1:${port}${target.path}/ws`;
    await session(url);
    const [cpu, begun] = [processorSeconds(server.pid!), performance.now()];
    const times = await Promise.all(Array.from({ length: sessions }, () => session(url)));
    const seconds = (performance.now() - begun) / 1000;
    const good = times.filter(time => time !== undefined).sort((a, b) => a - b);
    return {
      succeeded: good.length,
      seconds,
      cpuSeconds: processorSeconds(server.pid!) - cpu,
      p95: good[Math.floor(0.95 * (good.length - 1))] ?? Number.NaN,
    };
  } finally {
    server.kill('SIGKILL');
    if (server.exitCode === null && server.signalCode === null) await once(server, 'exit');
  }
}

console.log(`${readPeers().groups.openenv.packages[0]}, Node ${process.version}`);
for (const sessions of sizes) {
  const outcomes = targets.map((): Outcome[] => []);
  for (let repeat = 0; repeat < repeats; repeat++) {
    for (const [index, target] of targets.entries()) outcomes[index].push(await measured(target, sessions));
  }
  const cpu = outcomes.map(all => median(all.map(({ cpuSeconds }) => cpuSeconds)));
  for (const [index, { name }] of targets.entries()) {
    const of = (field: keyof Outcome) => median(outcomes[index].map(outcome => outcome[field]));
    console.log(
      `${sessions} sessions, ${name}: ${Math.min(...outcomes[index].map(({ succeeded }) => succeeded))} succeeded, ` +
        `${of('seconds').toFixed(2)} s, ${cpu[index].toFixed(2)} s of processor time, p95 of a session ${of('p95').toFixed(0)} ms`,
    );
  }
  console.log(`${sessions} sessions: openenv's processor time / ours ${(cpu[0] / cpu[1]).toFixed(2)}`);
}
