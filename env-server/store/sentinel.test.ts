import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { Redis } from 'iovalkey';
import t, { type Test } from 'tap';
import type { TestApp } from '../../test/app.test-data.ts';
import { freePort } from '../../test/free-port.test-data.ts';
import { until } from '../../test/until.test-data.ts';
import { listening } from '../../test/wire.test-data.ts';

/** A primary with two replicas and three Sentinels: one replica is left to wait for after a fail-over. */

const lacksSentinel =
  ['valkey-server', 'valkey-sentinel'].some(name => spawnSync(name, ['--version']).status !== 0) &&
  'needs valkey-server and valkey-sentinel: apt-get install valkey-server valkey-sentinel';
const DOWN_AFTER_MS = 1000;
const FAILOVER_MS = 10_000;
const SERVERS = 3;

/** The primary, and the number of its fail-over. */
interface Reign {
  readonly port: number;
  readonly epoch: number;
}

interface Group {
  readonly address: string;
  /** The newest primary that a Sentinel names. */
  reign(): Promise<Reign>;
  /** Ends the connections of replicas to a primary: those that are paused get no more, even into their buffers. */
  cutReplicas(port: number): Promise<unknown>;
  /** Kills, pauses or wakes a server. */
  signal(port: number, signal: NodeJS.Signals): void;
  /** Starts the server of a port on its files. */
  start(port: number, ...more: readonly string[]): void;
  /** Number of the newest record of a session at each server that runs; checkpoints and takes change no state. */
  newest(id: string): Promise<ReadonlyMap<number, number>>;
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
  const readers = new Map<number, Redis>();
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
    readers.set(port, readerOf(t, port));
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
  const asked = sentinels.map(port => readerOf(t, port));
  const count = async (of: string) => ((await asked[0].call('SENTINEL', of, 'main')) as unknown[]).length;
  await until(async () => (await count('replicas').catch(() => 0)) === 2 && (await count('sentinels')) === 2);
  return {
    address: `valkey+sentinel://${sentinels.map(port => `127.0.0.1:${port}`).join(',')}/main`,
    async reign() {
      const named = asked.map(async sentinel => {
        const [facts, [, port]] = (await Promise.all([
          sentinel.call('SENTINEL', 'master', 'main'),
          sentinel.call('SENTINEL', 'get-master-addr-by-name', 'main'),
        ])) as [facts: string[], address: [host: string, port: string]];
        return { port: Number(port), epoch: Number(facts[facts.indexOf('config-epoch') + 1]) };
      });
      return (await Promise.all(named)).reduce((one, other) => (other.epoch > one.epoch ? other : one));
    },
    cutReplicas: port => readers.get(port)!.call('CLIENT', 'KILL', 'TYPE', 'replica'),
    signal(port, signal) {
      running.get(port)!.kill(signal);
      readers.get(port)?.disconnect();
      readers.delete(port);
      if (signal === 'SIGCONT') readers.set(port, readerOf(t, port));
    },
    start,
    async newest(id) {
      const found = [...readers].map(async ([port, reader]) => {
        // One that just starts, or loads what its primary has, does not answer.
        const entries = await reader.xrevrange(`ragen:s:${id}`, '+', '-').catch(() => []);
        const entry = entries.find(([, [, kind]]) => kind !== 'T');
        if (!entry) return [port, 0] as const;
        const [number, [, kind]] = [Number(entry[0].split('-')[1]), entry[1]];
        return [port, kind === 'C' ? number - 1 : number] as const;
      });
      return new Map(await Promise.all(found));
    },
  };
}

function readerOf(t: Test, port: number): Redis {
  const reader = new Redis({ host: '127.0.0.1', port, maxRetriesPerRequest: 0 });
  reader.on('error', () => undefined);
  t.teardown(() => reader.disconnect());
  return reader;
}

/** The newest acknowledged step: the reign in which it was, and the servers that had it then. */
interface Acknowledged {
  readonly reign: Reign;
  readonly holders: ReadonlySet<number>;
}

/** A session that is played while its store fails over. */
class Player {
  readonly id: string;
  readonly #t: Test;
  readonly #app: TestApp;
  readonly #group: Group;
  #step = 0;
  /** Number of acknowledged steps that were lost as documented. */
  lost = 0;
  #last: Acknowledged | undefined;

  static async open(t: Test, app: TestApp, group: Group): Promise<Player> {
    const request = { env_id: 'test/Counter-v0', config: { goal: 5000, max_steps: 9000 } };
    for (;;) {
      const reply = await app.ask('POST', '/v1/sessions', request, { 'idempotency-key': 'open' });
      if (reply.status === 201) return new Player(t, app, group, String(reply.body.session_id));
      if (reply.status !== 503) throw new Error(reply.text);
      await delay(50);
    }
  }

  private constructor(t: Test, app: TestApp, group: Group, id: string) {
    this.#t = t;
    this.#app = app;
    this.#group = group;
    this.id = id;
  }

  /** Takes steps under keys, each again until it is answered. Returns how long the longest one took, in milliseconds. */
  async play(steps: number, when: string): Promise<number> {
    let longest = 0;
    for (let taken = 0; taken < steps; taken++) {
      const begun = performance.now();
      await this.#takeStep(when);
      longest = Math.max(longest, performance.now() - begun);
    }
    this.#t.pass(`${steps} steps ${when}, up to step ${this.#step}`);
    return Math.round(longest);
  }

  async #takeStep(when: string): Promise<void> {
    const [path, key] = [`/v1/sessions/${this.id}`, `k${this.#step + 1}`];
    for (;;) {
      const before = await this.#group.reign();
      const reply = await this.#app.ask(
        'POST',
        `${path}/step`,
        { action: 'add' },
        { 'idempotency-key': key },
      );
      if (reply.status === 200) {
        this.#step++;
        if (Number(reply.body.step) !== this.#step)
          throw new Error(`${when}: step ${reply.body.step} follows ${this.#step - 1} without a word`);
        return this.#acknowledge(before);
      }
      if (String(reply.body.code) === 'session_rolled_back') {
        await this.#rolledBack(when);
        return this.#takeStep(when);
      }
      if (reply.status !== 503) throw new Error(`${when}: ${reply.text}`);
      await delay(50);
    }
  }

  /** A replica must have what was acknowledged, unless another primary came meanwhile. */
  async #acknowledge(before: Reign): Promise<void> {
    const newest = await this.#group.newest(this.id);
    const reign = await this.#group.reign();
    const isSame = before.epoch === reign.epoch;
    const holders = [...newest].filter(([, number]) => isSame && number >= newest.get(reign.port)!);
    this.#last = { reign: before, holders: new Set(holders.map(([port]) => port)) };
    if (isSame && holders.length < 2)
      throw new Error(`step ${this.#step} was acknowledged and is at no replica: ${[...newest.values()]}`);
  }

  /** Waits until each server has all that was acknowledged: nothing may be lost then, no matter which one is promoted. */
  async everywhere(): Promise<Reign> {
    for (;;) {
      const reign = await this.#group.reign();
      const newest = await this.#group.newest(this.id);
      const holders = [...newest].filter(([, number]) => number === newest.get(reign.port));
      if (holders.length === SERVERS && (await this.#group.reign()).epoch === reign.epoch) {
        this.#last = { reign, holders: new Set(holders.map(([port]) => port)) };
        return reign;
      }
      await delay(20);
    }
  }

  /** Fails where something was lost that may not be: all of one promoted server had it, or nothing failed over. */
  async #rolledBack(when: string): Promise<void> {
    const { body } = await this.#app.ask('GET', `/v1/sessions/${this.id}`);
    const { reign, holders } = this.#last!;
    const now = await this.#group.reign();
    const said = `${when}: steps ${Number(body.step) + 1} to ${this.#step} were lost at fail-over ${reign.epoch} to ${now.epoch}`;
    const mayLose =
      now.epoch === reign.epoch + 1
        ? !holders.has(now.port)
        : now.epoch > reign.epoch && holders.size < SERVERS;
    if (!mayLose) throw new Error(`${said}, though ${now.port} had them`);
    this.#t.comment(`${said}: Sentinel promoted a server without them, as documented`);
    this.lost += this.#step - Number(body.step);
    this.#step = Number(body.step);
  }
}

t.test(
  'sessions continue on the primary that Sentinel promotes, and lose nothing that it had',
  { skip: lacksSentinel, timeout: 180_000 },
  async t => {
    const group = await sentinelGroup(t);
    const app = await listening(t, { store: group.address, durability: 'replicated' });
    const player = await Player.open(t, app, group);
    await player.play(50, 'at first');

    const killed = await player.everywhere();
    group.signal(killed.port, 'SIGKILL');
    const killedMs = await player.play(50, 'after a kill');
    t.ok(killedMs < FAILOVER_MS, `${killedMs} ms without answer after a kill`);
    t.not((await group.reign()).port, killed.port, 'another one was promoted');

    group.start(killed.port);
    await delay(3 * DOWN_AFTER_MS);
    await player.play(20, 'while the old primary returns');

    const paused = await player.everywhere();
    group.signal(paused.port, 'SIGSTOP');
    const pausedMs = await player.play(20, 'after a pause');
    t.ok(pausedMs < FAILOVER_MS, `${pausedMs} ms without answer after a pause`);
    group.signal(paused.port, 'SIGCONT');
    await player.play(20, 'when the paused one continues');
    t.comment(`kill ${killedMs} ms, pause ${pausedMs} ms`);
  },
);

t.test(
  'a session is rolled back once where Sentinel promotes a replica without the newest steps',
  { skip: lacksSentinel, timeout: 180_000 },
  async t => {
    const group = await sentinelGroup(t);
    const app = await listening(t, { store: group.address, durability: 'replicated' });
    const player = await Player.open(t, app, group);
    await player.play(5, 'at first');
    const primary = await player.everywhere();
    const [ahead, behind] = [...(await group.newest(player.id)).keys()].filter(port => port !== primary.port);
    group.signal(behind, 'SIGSTOP');
    await group.cutReplicas(primary.port);
    await player.play(7, 'while a replica is paused');
    for (const port of [primary.port, ahead]) group.signal(port, 'SIGKILL');
    group.signal(behind, 'SIGCONT');
    await until(async () => (await group.reign()).port === behind);
    group.start(ahead, '--replicaof', `127.0.0.1 ${behind}`);
    await player.play(10, 'after the loss');
    const failovers = (await group.reign()).epoch - primary.epoch;
    // A machine that stands still may fail over to the one that has the steps, before it has dropped them.
    const expected = failovers === 1 ? [7] : [0, 7];
    t.ok(expected.includes(player.lost), `${player.lost} steps lost in ${failovers} fail-overs`);
  },
);

t.test('a Sentinel that is down prints nothing', { skip: lacksSentinel, timeout: 180_000 }, async t => {
  const group = await sentinelGroup(t);
  const down = await freePort();
  const client = Redis.prototype as unknown as {
    silentEmit(name: string, error: { port?: number }): boolean;
  };
  const { silentEmit } = client;
  let errors = 0;
  t.intercept(client, 'silentEmit', {
    value(this: Redis, name: string, error: { port?: number }) {
      if (name === 'error' && error.port === down) errors++;
      return silentEmit.call(this, name, error);
    },
  });
  const printed = t.capture(console, 'error');
  const app = await listening(t, { store: group.address.replace('/main', `,127.0.0.1:${down}/main`) });
  // One error is of the question for the primary at the start; the others are of the watch.
  await until(() => errors > 1);
  t.same(printed(), []);
  await (await Player.open(t, app, group)).play(3, 'while a Sentinel is down');
});
