import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { setTimeout as after } from 'node:timers/promises';
import { gunzipSync } from 'node:zlib';
import t, { type Test } from 'tap';
import type { JsonObject } from '../shared/json.ts';
import type { Body } from '../test/app.test-data.ts';
import { runServer, type ServerProcess, startServer } from '../test/process.test-data.ts';
import { until } from '../test/until.test-data.ts';
import { EXAMPLES } from './custom/examples.ts';
import { lacksValkey } from './store/valkey.test-data.ts';

/** A server that is killed while it works: no reply that its clients got is lost. */

t.setTimeout(900_000);

const CLIENTS = 6;
/** Replies that each client gets before the server is killed. */
const MIN_STEPS = 12;

/** Replies that a client got, and its last request without a reply. */
interface Player {
  readonly id: string;
  readonly replies: Body[];
  asked: { readonly key: string; readonly action: string } | undefined;
}

const ACTIONS = ['Left', 'Up', 'Right', 'Down'];

/** Plays with a key for each step until the server is gone. */
async function play({ ask }: ServerProcess, player: Player): Promise<void> {
  for (let i = 0; ; i++) {
    const action = ACTIONS[i % ACTIONS.length];
    player.asked = { key: `k${i}`, action };
    try {
      const { status, body } = await step(ask, player, player.asked);
      if (status !== 200) throw new Error(JSON.stringify(body));
      player.replies.push(body);
    } catch {
      return;
    }
    player.asked = undefined;
  }
}

const step = (ask: ServerProcess['ask'], { id }: Player, { key, action }: { key: string; action: string }) =>
  ask('POST', `/v1/sessions/${id}/step`, { action }, { 'idempotency-key': key });

async function crash(t: Test, flags: string[], kill: (server: ServerProcess) => Promise<unknown>) {
  const data = t.testdir();
  const all = ['--data', data, '--log-level', 'info', ...flags];
  const first = await startServer(t, all);
  const game = { env_id: 'Game2048-v0', seed: 5, wrappers: [{ name: 'auto_reset' }], count: 2 };
  const players: Player[] = [];
  const opened: { key: string; body: Body }[] = [];
  while (players.length < CLIENTS) {
    const key = `open ${players.length}`;
    const { body } = await first.ask('POST', '/v1/sessions', game, { 'idempotency-key': key });
    opened.push({ key, body });
    for (const { session_id } of body.sessions as unknown as Body[]) {
      players.push({ id: String(session_id), replies: [], asked: undefined });
    }
  }
  const [snapshots, resets] = [new Map<string, string>(), new Map<string, Body>()];
  for (const { id } of players.slice(0, 2)) {
    const { body } = await first.ask('POST', `/v1/sessions/${id}/reset`, { seed: 9 });
    resets.set(id, body);
    const taken = await first.ask('POST', `/v1/sessions/${id}/snapshot`, {}, { 'idempotency-key': 'snap' });
    snapshots.set(id, String(taken.body.snapshot_id));
  }
  const cloned = await first.ask(
    'POST',
    `/v1/sessions/${players[0].id}/clone`,
    {},
    { 'idempotency-key': 'clone' },
  );
  const [{ session_id: clone }] = cloned.body.sessions as unknown as Body[];
  t.equal((await first.ask('POST', '/v1/envs', EXAMPLES.tabular.value)).status, 201);
  const closed = await first.ask('POST', '/v1/sessions', { env_id: 'Bandit-v0' });
  await first.ask('DELETE', `/v1/sessions/${closed.body.session_id}`);

  const playing = players.map(player => play(first, player));
  await until(() => players.every(({ replies }) => replies.length >= MIN_STEPS));
  await kill(first);
  await Promise.all(playing);

  const again = await startServer(t, all);
  for (const { key, body } of opened) {
    t.same(
      (await again.ask('POST', '/v1/sessions', game, { 'idempotency-key': key })).body,
      body,
      'opened once',
    );
  }
  for (const player of players) {
    const { body: found } = await again.ask('GET', `/v1/sessions/${player.id}`);
    const last = player.replies.at(-1)!;
    const ahead = Number(found.step) - Number(last.step);
    t.ok(
      ahead === 0 || (ahead === 1 && player.asked),
      `a reply with step ${last.step}, now step ${found.step}`,
    );
    if (player.asked) {
      const { status, body } = await step(again.ask, player, player.asked);
      t.match({ status, step: body.step }, { status: 200, step: Number(last.step) + 1 }, 'carried out once');
      const repeated = await step(again.ask, player, player.asked);
      t.same(repeated.body, body);
    }
    const lines = (await again.ask('GET', `/v1/sessions/${player.id}/trajectory`)).text.trimEnd().split('\n');
    const records = lines.map(line => JSON.parse(line) as JsonObject);
    const { observation, step: at } = last as unknown as { observation: string; step: number };
    const record = records.find(({ step }) => step === at);
    // What auto_reset has left behind is in no trajectory.
    if (record && Number(records[0].step) < at)
      t.equal(record.observation, observation, 'it is the same game');
    t.match(await again.ask('GET', `/v1/sessions/${closed.body.session_id}`), { status: 410 });
  }
  for (const [id, snapshot_id] of snapshots) {
    const taken = await again.ask('POST', `/v1/sessions/${id}/snapshot`, {}, { 'idempotency-key': 'snap' });
    t.equal(taken.body.snapshot_id as unknown, snapshot_id);
    const { body } = await again.ask('POST', `/v1/sessions/${id}/restore`, { snapshot_id });
    t.equal(body.observation, resets.get(id)!.observation);
  }
  t.same(
    (await again.ask('POST', `/v1/sessions/${players[0].id}/clone`, {}, { 'idempotency-key': 'clone' })).body,
    cloned.body,
  );
  t.equal((await again.ask('GET', `/v1/sessions/${clone}`)).status, 200);
  const registered = await again.ask('GET', '/v1/envs/demo%2FCrossing-v0');
  t.match(registered.body, { env_id: 'demo/Crossing-v0', title: 'River crossing' }, 'registrations, too');
  t.same(await again.end('SIGTERM'), { code: 0, signal: null });
  t.same(
    readdirSync(join(data, 'journal')).filter(name => name.endsWith('.journal')),
    [],
    'an end in order leaves no journal',
  );
}

const killAll = (server: ServerProcess) => server.end('SIGKILL');

t.test('kill -9 between checkpoints loses nothing that was acknowledged', async t =>
  crash(t, ['--checkpoint-seconds', '0'], killAll),
);

t.test('kill -9 amid checkpoints, with the journal on the disk', async t =>
  crash(t, ['--checkpoint-seconds', '0.02', '--durability', 'fsync'], killAll),
);

t.test('kill -9 of all replicas of a server and their store', { skip: lacksValkey }, async t => {
  const data = t.testdir();
  const flags = ['--data', data, '--replicas', '2', '--log-level', 'info'];
  const first = await startServer(t, flags);
  const { body } = await first.ask('POST', '/v1/sessions', { env_id: 'Game2048-v0', seed: 5 });
  const player: Player = { id: String(body.session_id), replies: [], asked: undefined };
  for (let n = 0; n < MIN_STEPS; n++)
    await step(first.ask, player, { key: `k${n}`, action: ACTIONS[n % ACTIONS.length] });
  const pids = first.lines.flatMap(line => /"replica_pid":(\d+)/.exec(line)?.[1] ?? []).map(Number);
  t.equal(pids.length, 2);
  for (const pid of pids) process.kill(pid, 'SIGKILL');
  await first.end('SIGKILL');
  const again = await startServer(t, flags);
  const found = await again.ask('GET', `/v1/sessions/${player.id}`);
  t.match(found, { status: 200, body: { step: MIN_STEPS } });
  t.same(await again.end('SIGTERM'), { code: 0, signal: null });
});

interface OldFolder {
  readonly files: { readonly [path: string]: string };
  readonly opened: Body;
  /** Last replies to each session. */
  readonly last: { readonly [sessionId: string]: Body };
  readonly snapshot: string;
  readonly closed: string;
}

/**
 * Folders that earlier servers left, each with a moment soon after it was written: ended sessions are remembered for an
 * hour.
 */
const OLD_FOLDERS = [
  ['before 0.2.0', 'old-folder', '2026-11-24T16:45:10Z'],
  ['0.2.0', 'released-folder', '2026-11-27T12:42:31Z'],
] as const;
/** A program that sets a server's clocks to then: that of the wall, and that of the machine, which counts where it is the same one. */
const clockAt = (moment: string) => `import os from 'node:os';
import { syncBuiltinESMExports } from 'node:module';
const { now } = Date, { uptime } = os, ahead = now() - ${Date.parse(moment)};
Date.now = () => now() - ahead;
os.uptime = () => uptime() - ahead / 1000;
syncBuiltinESMExports();`;
/** Milliseconds after which a server that opens the folder is killed: before, in and after the migration. */
const KILLS = [250, 400, 550, 700, 850, 1000, 1300];

for (const [version, folder, writtenAt] of OLD_FOLDERS)
  t.test(
    `a data folder of ${version} opens, also where the server is killed again and again meanwhile`,
    async t => {
      const data = t.testdir();
      const { files, opened, last, snapshot, closed } = JSON.parse(
        readFileSync(new URL(`./persistence/journal/${folder}.test-data.json`, import.meta.url), 'utf8'),
      ) as OldFolder;
      for (const [path, text] of Object.entries(files)) {
        mkdirSync(dirname(join(data, path)), { recursive: true });
        writeFileSync(join(data, path), gunzipSync(Buffer.from(text, 'base64')));
      }
      const all = ['--data', data, '--idle-ttl-seconds', '3155760000', '--lifetime-seconds', '3155760000'];
      const options = process.env.NODE_OPTIONS ?? '';
      const env = {
        NODE_OPTIONS: `${options} --import=data:text/javascript,${encodeURIComponent(clockAt(writtenAt))}`,
      };
      for (const ms of KILLS) {
        const child = runServer(t, ['--port', '0', ...all], env);
        await after(ms);
        const ended = new Promise(resolve => child.once('exit', resolve));
        child.kill('SIGKILL');
        await ended;
      }
      const again = await startServer(t, all, env);
      for (const { session_id } of opened.sessions as unknown as Body[]) {
        const id = String(session_id);
        const seen = last[id];
        t.match((await again.ask('GET', `/v1/sessions/${id}`)).body, {
          step: seen.step,
          observation: seen.observation,
        });
        const player = { id, replies: [], asked: undefined };
        const repeated = await step(again.ask, player, { key: 'k11', action: 'Down' });
        t.match(repeated.body, seen, 'request keys are known, though a reply may have more than then');
        t.match(await step(again.ask, player, { key: 'k12', action: 'Left' }), {
          status: 200,
          body: { step: Number(seen.step) + 1 },
        });
      }
      const game = { env_id: 'Game2048-v0', seed: 5, count: 2 };
      const reopened = await again.ask('POST', '/v1/sessions', game, { 'idempotency-key': 'open' });
      t.same(reopened.body.sessions, opened.sessions, 'opened once');
      const [first] = Object.keys(last);
      const restored = await again.ask('POST', `/v1/sessions/${first}/restore`, { snapshot_id: snapshot });
      t.match(restored, { status: 200, body: { step: last[first].step } });
      t.match(await again.ask('GET', `/v1/sessions/${closed}`), { status: 410 });
      t.same(await again.end('SIGTERM'), { code: 0, signal: null });
      t.same(
        readdirSync(join(data, 'journal')).filter(name => name.endsWith('.journal')),
        [],
      );
    },
  );
