import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { Redis } from 'iovalkey';
import t, { type Test } from 'tap';
import type { TestApp } from '../../test/app.test-data.ts';
import { until } from '../../test/until.test-data.ts';
import { listening } from '../../test/wire.test-data.ts';

/** A primary with two replicas and three Sentinels: one replica is left to wait for after a fail-over. */

const lacksSentinel =
  ['valkey-server', 'valkey-sentinel'].some(name => spawnSync(name, ['--version']).status !== 0) &&
  'needs valkey-server and valkey-sentinel: apt-get install valkey-server valkey-sentinel';
const DOWN_AFTER_MS = 1000;
const FAILOVER_MS = 10_000;

async function freePort(): Promise<number> {
  const probe = createServer().listen(0, '127.0.0.1');
  await once(probe, 'listening');
  const { port } = probe.address() as AddressInfo;
  probe.close();
  await once(probe, 'close');
  return port;
}

interface Group {
  readonly address: string;
  /** Process of the primary that the Sentinels name, and its port. */
  primary(): Promise<{ readonly process: ChildProcess; readonly port: number }>;
  /** Starts the server of a port on its files. */
  start(port: number): void;
}

async function sentinelGroup(t: Test): Promise<Group> {
  const folder = mkdtempSync(join(tmpdir(), 'ragen-sentinel-'));
  const running = new Map<number, ChildProcess>();
  t.teardown(async () => {
    for (const child of running.values()) child.kill('SIGKILL');
    await delay(100);
    rmSync(folder, { recursive: true, force: true });
  });
  const [first, second, third, ...sentinels] = await Promise.all(Array.from({ length: 6 }, freePort));
  const start = (port: number, ...more: readonly string[]) => {
    const dir = join(folder, String(port));
    mkdirSync(dir, { recursive: true });
    const own = [
      '--port',
      String(port),
      '--bind',
      '127.0.0.1',
      '--dir',
      dir,
      '--repl-diskless-sync-delay',
      '0',
    ];
    const args = [...own, '--appendonly', 'yes', '--save', '', ...more];
    running.set(port, spawn('valkey-server', args, { stdio: 'ignore' }));
  };
  start(first);
  for (const port of [second, third]) start(port, '--replicaof', `127.0.0.1 ${first}`);
  for (const port of sentinels) {
    const file = join(folder, `${port}.conf`);
    const lines = [
      `port ${port}`,
      'bind 127.0.0.1',
      `dir ${folder}`,
      `sentinel monitor main 127.0.0.1 ${first} 2`,
      `sentinel down-after-milliseconds main ${DOWN_AFTER_MS}`,
      'sentinel failover-timeout main 3000',
    ];
    writeFileSync(file, `${lines.join('\n')}\n`);
    running.set(port, spawn('valkey-sentinel', [file], { stdio: 'ignore' }));
  }
  const asked = new Redis({ host: '127.0.0.1', port: sentinels[0] });
  asked.on('error', () => undefined);
  t.teardown(() => asked.disconnect());
  const count = async (of: string) => ((await asked.call('SENTINEL', of, 'main')) as unknown[]).length;
  await until(async () => (await count('replicas')) === 2 && (await count('sentinels')) === 2);
  return {
    address: `valkey+sentinel://${sentinels.map(port => `127.0.0.1:${port}`).join(',')}/main`,
    async primary() {
      const [, port] = (await asked.call('SENTINEL', 'get-master-addr-by-name', 'main')) as string[];
      return { process: running.get(Number(port))!, port: Number(port) };
    },
    start,
  };
}

/** Takes steps under keys, each again until it is answered, and says how long the longest one took. */
async function play(
  { ask }: TestApp,
  id: string,
  from: number,
  steps: number,
): Promise<[numbers: number[], ms: number]> {
  const numbers: number[] = [];
  let longest = 0;
  for (let n = from; n < from + steps; n++) {
    const begun = performance.now();
    for (;;) {
      const reply = await ask(
        'POST',
        `/v1/sessions/${id}/step`,
        { action: 'add' },
        { 'idempotency-key': `k${n}` },
      );
      if (reply.status === 200) numbers.push(Number(reply.body.step));
      else if (reply.status !== 503) throw new Error(reply.text);
      if (reply.status === 200) break;
      await delay(50);
    }
    longest = Math.max(longest, performance.now() - begun);
  }
  return [numbers, longest];
}

const numbersFrom = (first: number, count: number) => Array.from({ length: count }, (_, i) => first + i);

t.test(
  'sessions continue on the primary that Sentinel promotes, and lose nothing that was acknowledged',
  { skip: lacksSentinel, timeout: 120_000 },
  async t => {
    const group = await sentinelGroup(t);
    const app = await listening(t, { store: group.address, durability: 'replicated' });
    const request = { env_id: 'test/Counter-v0', config: { goal: 5000, max_steps: 9000 } };
    const id = (await app.ask('POST', '/v1/sessions', request)).body.session_id as unknown as string;
    t.same((await play(app, id, 1, 50))[0], numbersFrom(1, 50));

    const killed = await group.primary();
    killed.process.kill('SIGKILL');
    const [afterKill, killedMs] = await play(app, id, 51, 50);
    t.same(afterKill, numbersFrom(51, 50), 'after a kill');
    t.ok(killedMs < FAILOVER_MS, `${Math.round(killedMs)} ms without answer after a kill`);
    t.not((await group.primary()).port, killed.port, 'another one was promoted');

    group.start(killed.port);
    await delay(3 * DOWN_AFTER_MS);
    t.same((await play(app, id, 101, 20))[0], numbersFrom(101, 20), 'while the old primary returns');

    const paused = await group.primary();
    paused.process.kill('SIGSTOP');
    const [afterPause, pausedMs] = await play(app, id, 121, 20);
    t.same(afterPause, numbersFrom(121, 20), 'after a pause');
    t.ok(pausedMs < FAILOVER_MS, `${Math.round(pausedMs)} ms without answer after a pause`);
    paused.process.kill('SIGCONT');
    t.same((await play(app, id, 141, 20))[0], numbersFrom(141, 20), 'when the paused one goes on');
    t.comment(`kill ${Math.round(killedMs)} ms, pause ${Math.round(pausedMs)} ms`);
  },
);
