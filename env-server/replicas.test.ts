import { setTimeout as delay } from 'node:timers/promises';
import t, { type Test } from 'tap';
import { type ServerProcess, startServer } from '../test/process.test-data.ts';
import { until } from '../test/until.test-data.ts';
import { lacksValkey, type TestValkey, testValkey } from './store/valkey.test-data.ts';

/** Server processes on one store, killed and stopped while clients play. */

t.setTimeout(300_000);

const GAME = { env_id: 'Game2048-v0', seed: 5, wrappers: [{ name: 'auto_reset' }] };
const ACTIONS = ['Left', 'Up', 'Right', 'Down'];
const CLIENTS = 4;
const PLAY_MS = 6000;
const ANSWER_MS = 3000;

const server = (t: Test, { address }: TestValkey) =>
  startServer(t, ['--store', address, '--grace-seconds', '1']);

interface Outcome {
  readonly id: string;
  /** `step` and `reward` of every acknowledged step, in order. */
  readonly acknowledged: readonly (readonly [step: number, reward: number])[];
}

/** Plays one session over all servers in turn, each step under its key until some server acknowledges it. */
async function play(servers: readonly ServerProcess[], client: number, untilMs: number): Promise<Outcome> {
  let turn = client;
  const ask = async (method: string, path: string, body: object, key: string) => {
    for (;;) {
      const { origin } = servers[turn++ % servers.length];
      try {
        const reply = await fetch(origin + path, {
          method,
          headers: { 'content-type': 'application/json', 'idempotency-key': key },
          body: JSON.stringify(body),
          signal: AbortSignal.timeout(ANSWER_MS),
        });
        const text = await reply.text();
        if (reply.ok) return JSON.parse(text) as { [key: string]: never };
        if (reply.status !== 503) throw Object.assign(new Error(text), { refused: true });
      } catch (error) {
        if ((error as { refused?: boolean }).refused) throw error;
      }
      await delay(20);
    }
  };
  const { session_id: id } = await ask('POST', '/v1/sessions', GAME, `open ${client}`);
  const acknowledged: [number, number][] = [];
  for (let n = 0; performance.now() < untilMs; n++) {
    const reply = await ask(
      'POST',
      `/v1/sessions/${id}/step`,
      { action: ACTIONS[n % ACTIONS.length] },
      `k${n}`,
    );
    acknowledged.push([reply.step, reply.reward]);
  }
  return { id, acknowledged };
}

/** The same steps on a server that nothing happens to. */
async function undisturbed(t: Test, steps: number): Promise<Outcome['acknowledged']> {
  const { ask } = await startServer(t, []);
  const { body } = await ask('POST', '/v1/sessions', GAME);
  const seen: [number, number][] = [];
  for (let n = 0; n < steps; n++) {
    const { body: reply } = await ask('POST', `/v1/sessions/${body.session_id}/step`, {
      action: ACTIONS[n % ACTIONS.length],
    });
    seen.push([reply.step as never, reply.reward as never]);
  }
  return seen;
}

async function compare(t: Test, outcomes: readonly Outcome[], survivor: ServerProcess): Promise<void> {
  const longest = Math.max(...outcomes.map(({ acknowledged }) => acknowledged.length));
  const expected = await undisturbed(t, longest);
  for (const { id, acknowledged } of outcomes) {
    t.ok(acknowledged.length > 20, `${acknowledged.length} steps`);
    t.same(
      acknowledged,
      expected.slice(0, acknowledged.length),
      'every acknowledged step was taken once, in order',
    );
    const { body } = await survivor.ask('GET', `/v1/sessions/${id}`);
    t.equal(body.step as never, acknowledged.at(-1)![0], 'and the session is where its client saw it last');
  }
}

t.test('servers that are killed lose no acknowledged step', { skip: lacksValkey }, async t => {
  const valkey = await testValkey(t);
  const servers = [await server(t, valkey), await server(t, valkey), await server(t, valkey)];
  const end = performance.now() + PLAY_MS;
  const playing = Array.from({ length: CLIENTS }, (_, client) => play(servers, client, end));
  for (const victim of [0, 1]) {
    await delay(PLAY_MS / 4);
    servers[victim].child.kill('SIGKILL');
    servers[victim] = await server(t, valkey);
  }
  await compare(t, await Promise.all(playing), servers[2]);
});

t.test(
  'a server that is stopped and wakes again answers from no old state',
  { skip: lacksValkey },
  async t => {
    const valkey = await testValkey(t);
    const servers = [await server(t, valkey), await server(t, valkey)];
    const end = performance.now() + PLAY_MS;
    const playing = Array.from({ length: CLIENTS }, (_, client) => play(servers, client, end));
    for (let pause = 0; pause < 3; pause++) {
      const { child } = servers[pause % 2];
      await delay(500);
      child.kill('SIGSTOP');
      await delay(1000);
      child.kill('SIGCONT');
    }
    await compare(t, await Promise.all(playing), servers[0]);
  },
);

t.test(
  'a store that is killed and starts again loses no acknowledged step',
  { skip: lacksValkey },
  async t => {
    const valkey = await testValkey(t);
    const servers = [await server(t, valkey), await server(t, valkey)];
    const end = performance.now() + PLAY_MS;
    const playing = Array.from({ length: CLIENTS }, (_, client) => play([servers[client % 2]], client, end));
    await delay(PLAY_MS / 3);
    await valkey.restart('SIGKILL');
    const outcomes = await Promise.all(playing);
    for (const { id } of outcomes) await servers[0].ask('GET', `/v1/sessions/${id}`);
    await compare(t, outcomes, servers[0]);
  },
);

t.test(
  '--replicas serves one port from several processes, and replaces one that is killed',
  { skip: lacksValkey },
  async t => {
    const one = await startServer(t, ['--replicas', '2', '--log-level', 'info']);
    const fresh = { connection: 'close' };
    const { body } = await one.ask('POST', '/v1/sessions', GAME, fresh);
    const path = `/v1/sessions/${body.session_id}/step`;
    for (let n = 1; n <= 10; n++)
      t.equal((await one.ask('POST', path, { action: ACTIONS[n % 4] }, fresh)).body.step as never, n);
    const ended = new Promise(resolve => one.child.once('exit', resolve));
    one.child.kill('SIGTERM');
    t.equal(await ended, 0);
    await until(
      async () =>
        !(await fetch(one.origin).then(
          () => true,
          () => false,
        )),
    );
  },
);

t.test('replicas that still start are ended where one of them cannot', { skip: lacksValkey }, async t => {
  const { output, runServer } = await import('../test/process.test-data.ts');
  const child = runServer(t, ['--replicas', '3', '--port', '0', '--log-level', 'info']);
  const ended = output(child);
  const pids: number[] = [];
  child.stdout!.on('data', chunk => {
    const found = [...String(chunk).matchAll(/"replica_pid":(\d+)/g)].map(([, pid]) => Number(pid));
    if (pids.length === 0 && found.length > 0) process.kill(found[0], 'SIGKILL');
    pids.push(...found);
  });
  const { code, text } = await ended;
  t.equal(code, 1, text);
  t.equal(pids.length, 3);
  for (const pid of pids) t.throws(() => process.kill(pid, 0), { code: 'ESRCH' });
});

t.test('--replicas without valkey-server says how to install it', async t => {
  const { output, runServer } = await import('../test/process.test-data.ts');
  const { code, text } = await output(runServer(t, ['--replicas', '2', '--port', '0'], { PATH: '/nowhere' }));
  t.equal(code, 1);
  t.match(text, /needs valkey-server, which is not installed: apt-get install valkey-server/);
});
