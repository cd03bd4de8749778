import { type ChildProcess, spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { Command } from 'commander';
import { hashToken } from '../env-server/http/auth.ts';
import {
  type Client,
  httpClient,
  type Measurement,
  measure,
  type Player,
  webSocketClient,
} from './server/load.ts';
import { batchPlayer, fixedPlayer, framePlayer, openSessions, restPlayer } from './server/players.ts';

/**
 * Steps per second of FrozenLake through every door, with auth, metrics, limits and expiry on, beside the
 * least any server could do: a fixed reply of node:http and a ws echo. Server and load are two processes.
 */

const TOKEN = 'bench';
const HEAP = 'nodejs_heap_size_used_bytes';
const BATCH = 32;
const WARM_UP_SECONDS = 1;
const BARE_HTTP = 'node:http fixed reply, 32 clients';
const BARE_WS = 'ws echo, 32 clients';

interface Row extends Measurement {
  readonly name: string;
  /** Processor time of the server for a step, in microseconds: what counts on a busy machine. */
  readonly cpuMicroseconds: number;
  readonly baseline?: string;
}

interface Child {
  readonly origin: string;
  readonly process: ChildProcess;
}

/** Starts a server and waits for the line that says where it listens. */
async function start(script: string, args: readonly string[]): Promise<Child> {
  const path = fileURLToPath(new URL(script, import.meta.url));
  const child = spawn(process.execPath, ['--expose-gc', path, ...args], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  process.on('exit', () => child.kill());
  for await (const line of createInterface({ input: child.stdout! })) {
    const match = /listening on (http:\S+)/.exec(line);
    if (match) return { origin: match[1], process: child };
  }
  throw new Error(`${script} ended before it listened`);
}

async function play(
  name: string,
  seconds: number,
  origin: string,
  connect: Connect,
  players: readonly Player[],
  baseline?: string,
): Promise<Row> {
  const clients = await Promise.all(
    players.map(async player => [await connect(origin, TOKEN), player] as const),
  );
  await measure(clients, WARM_UP_SECONDS);
  const cpuBefore = await metric(origin, 'process_cpu_seconds_total');
  const measurement = await measure(clients, seconds);
  const cpu = (await metric(origin, 'process_cpu_seconds_total')) - cpuBefore;
  for (const [client] of clients) client.close();
  return { name, baseline, ...measurement, cpuMicroseconds: (1e6 * cpu) / measurement.steps };
}

type Connect = (origin: string, token: string) => Promise<Client>;

/** The value of a metric of a server. */
async function metric(origin: string, name: string): Promise<number> {
  const response = await fetch(`${origin}/metrics`, { headers: { authorization: `Bearer ${TOKEN}` } });
  const line = new RegExp(`^${name} (\\S+)`, 'm').exec(await response.text());
  if (!line) throw new Error(`${origin} has no metric ${name}`);
  return Number(line[1]);
}

const times = <T>(count: number, make: (index: number) => T): T[] =>
  Array.from({ length: count }, (_, i) => make(i));

async function measureBare(seconds: number): Promise<Row[]> {
  const { origin, process: child } = await start('./server/bare.ts', []);
  const body = '{"action":1}';
  const frame = '{"id":1,"op":"step","session_id":"sAAAAAAAAAAAAAAAA","action":1}';
  const rows = [
    await play(
      BARE_HTTP,
      seconds,
      origin,
      httpClient,
      times(32, () => fixedPlayer(body)),
    ),
    await play(
      BARE_WS,
      seconds,
      origin,
      webSocketClient,
      times(32, () => fixedPlayer(frame)),
    ),
  ];
  child.kill();
  return rows;
}

async function measureServer(seconds: number): Promise<Row[]> {
  const tokens = JSON.stringify([{ name: 'bench', sha256: hashToken(TOKEN), scopes: ['play', 'admin'] }]);
  const { origin, process: child } = await start('../env-server/main.ts', [
    '--port',
    '0',
    '--tokens',
    tokens,
  ]);
  const frameEnvelope = '"id":1,"op":"batch",';
  const rows: Row[] = [];
  const add = async (
    name: string,
    connect: Connect,
    clients: number,
    sessionsEach: number,
    player: (ids: readonly string[]) => Player,
    baseline?: string,
  ) => {
    const ids = await openSessions(origin, TOKEN, clients * sessionsEach);
    const players = times(clients, i => player(ids.slice(i * sessionsEach, (i + 1) * sessionsEach)));
    rows.push(await play(name, seconds, origin, connect, players, baseline));
  };
  const rest = (ids: readonly string[]) => restPlayer(ids[0]);
  const frames = (ids: readonly string[]) => framePlayer(ids[0]);
  const batches = (ids: readonly string[]) => batchPlayer(ids, BATCH, '');
  const frameBatches = (ids: readonly string[]) => batchPlayer(ids, BATCH, frameEnvelope);
  await add('REST, 1 client', httpClient, 1, 1, rest);
  await add('REST, 32 clients', httpClient, 32, 1, rest, BARE_HTTP);
  await add('WebSocket, 32 clients', webSocketClient, 32, 1, frames, BARE_WS);
  await add('WebSocket, 256 clients', webSocketClient, 256, 1, frames, BARE_WS);
  await add('REST batches of 32, 1 client', httpClient, 1, BATCH, batches);
  await add('REST batches of 32, 32 clients', httpClient, 32, BATCH, batches);
  await add('WebSocket batches of 32, 8 clients', webSocketClient, 8, BATCH, frameBatches);
  child.kill();
  return rows;
}

/** Whether a step costs the same however many sessions are open, and what an idle one weighs. */
async function measureMany(seconds: number, sessions: number): Promise<Row[]> {
  const { origin, process: child } = await start('../env-server/main.ts', ['--port', '0']);
  const few = await openSessions(origin, TOKEN, 2 * BATCH);
  const row = (ids: readonly string[]) => {
    const half = ids.length / 2;
    const players = times(2, i => batchPlayer(ids.slice(i * half, (i + 1) * half), BATCH, ''));
    return play(
      `REST batches of 32, 2 clients, ${ids.length} sessions open`,
      seconds,
      origin,
      httpClient,
      players,
    );
  };
  const before = await metric(origin, HEAP);
  const rows = [await row(few)];
  const heapBefore = Math.min(before, await metric(origin, HEAP));
  const many = await openSessions(origin, TOKEN, sessions);
  const bytes = ((await metric(origin, HEAP)) - heapBefore) / sessions;
  console.log(`memory of an idle FrozenLake session: about ${(bytes / 1024).toFixed(2)} KiB of heap`);
  rows.push(await row(many));
  child.kill();
  return rows;
}

function print(rows: readonly Row[]): void {
  console.log('| | steps/s | p50 ms | p99 ms | of the bare server | server CPU µs a step |');
  console.log('|---|---|---|---|---|---|');
  for (const row of rows) {
    const baseline = rows.find(({ name }) => name === row.baseline);
    const ratio = baseline ? (row.stepsPerSecond / baseline.stepsPerSecond).toFixed(2) : '';
    console.log(
      `| ${row.name} | ${Math.round(row.stepsPerSecond)} | ${row.p50.toFixed(2)} | ${row.p99.toFixed(2)} | ${ratio} | ${row.cpuMicroseconds.toFixed(1)} |`,
    );
  }
}

const options = new Command('bench:server')
  .option('--seconds <n>', 'measured time of each case', Number, 3)
  .option('--sessions <n>', 'open sessions in the last case', Number, 50_000)
  .parse()
  .opts<{ seconds: number; sessions: number }>();

print([
  ...(await measureBare(options.seconds)),
  ...(await measureServer(options.seconds)),
  ...(await measureMany(options.seconds, options.sessions)),
]);
