import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { Command } from 'commander';
import { hashToken } from '../env-server/transports/access/auth.ts';
import { median } from './median.ts';
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
 * Steps per second of FrozenLake through every door, with auth, metrics, limits and expiry on, beside the least any
 * server could do: a fixed reply of node:http, a ws echo, and batches answered without any work. Server and load are two
 * processes. All take turns, so that a machine that is slow for a while is slow for all of them; the median of the
 * rounds counts, the best tells what there is where others leave the machine alone.
 */

const TOKEN = 'bench';
const HEAP = 'nodejs_heap_size_used_bytes';
const BATCH = 32;
const WARM_UP_SECONDS = 1;
const BARE_HTTP = 'node:http fixed reply, 32 clients';
const BARE_WS = 'ws echo, 32 clients';
const MANY_CLIENTS = 256;
const BARE_WS_CROWD = `ws echo, ${MANY_CLIENTS} clients`;
const BARE_BATCHES = 'node:http answering batches of 32, 32 clients';
const BARE_FRAME_BATCHES = 'ws answering batches of 32, 8 clients';
const FEW_SESSIONS = 64;
/** What a frame adds to a batch. */
const BATCH_FRAME = '"id":1,"op":"batch",';

type Connect = (origin: string, token: string) => Promise<Client>;

/** Something to measure, again and again. */
interface Case {
  readonly name: string;
  readonly origin: string;
  readonly connect: Connect;
  readonly players: readonly Player[];
  /** The case that it is compared with. */
  readonly baseline?: string;
}

interface Row extends Measurement {
  /** Processor time of the server for a step, in microseconds: what counts on a busy machine. */
  readonly cpuMicroseconds: number;
}

/** Starts a server and waits for the line that says where it listens. */
async function start(script: string, args: readonly string[]): Promise<{ origin: string }> {
  const path = fileURLToPath(new URL(script, import.meta.url));
  const child = spawn(process.execPath, ['--expose-gc', path, ...args], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  process.on('exit', () => child.kill());
  for await (const line of createInterface({ input: child.stdout! })) {
    const match = /listening on (http:\S+)/.exec(line);
    if (match) return { origin: match[1] };
  }
  throw new Error(`${script} ended before it listened`);
}

async function play({ origin, connect, players }: Case, seconds: number): Promise<Row> {
  const clients = await Promise.all(
    players.map(async player => [await connect(origin, TOKEN), player] as const),
  );
  await measure(clients, WARM_UP_SECONDS);
  const cpuBefore = await metric(origin, 'process_cpu_seconds_total');
  const measurement = await measure(clients, seconds);
  const cpu = (await metric(origin, 'process_cpu_seconds_total')) - cpuBefore;
  for (const [client] of clients) client.close();
  return { ...measurement, cpuMicroseconds: (1e6 * cpu) / measurement.steps };
}

/** The value of a metric of a server. */
async function metric(origin: string, name: string): Promise<number> {
  const response = await fetch(`${origin}/metrics`, { headers: { authorization: `Bearer ${TOKEN}` } });
  const line = new RegExp(`^${name} (\\S+)`, 'm').exec(await response.text());
  if (!line) throw new Error(`${origin} has no metric ${name}`);
  return Number(line[1]);
}

const times = <T>(count: number, make: (index: number) => T): T[] =>
  Array.from({ length: count }, (_, i) => make(i));

async function bareCases(): Promise<Case[]> {
  const { origin } = await start('./server/bare.ts', []);
  const frame = '{"id":1,"op":"step","session_id":"sAAAAAAAAAAAAAAAA","action":1}';
  const fixed = (name: string, connect: Connect, clients: number, text: string): Case => ({
    name,
    origin,
    connect,
    players: times(clients, () => fixedPlayer(text)),
  });
  return [
    fixed(BARE_HTTP, httpClient, 32, '{"action":1}'),
    fixed(BARE_WS, webSocketClient, 32, frame),
    fixed(BARE_WS_CROWD, webSocketClient, MANY_CLIENTS, frame),
  ];
}

/** Servers that read batches and write replies of the same size, but know no sessions and take no steps. */
async function bareBatchCases(): Promise<Case[]> {
  const { origin } = await start('./server/bare.ts', ['batches']);
  const ids = times(BATCH, () => 'sAAAAAAAAAAAAAAAA');
  const batches = (name: string, connect: Connect, clients: number, envelope: string): Case => ({
    name,
    origin,
    connect,
    players: times(clients, () => batchPlayer(ids, BATCH, envelope)),
  });
  return [
    batches(BARE_BATCHES, httpClient, 32, ''),
    batches(BARE_FRAME_BATCHES, webSocketClient, 8, BATCH_FRAME),
  ];
}

async function serverCases(): Promise<Case[]> {
  const tokens = JSON.stringify([{ name: 'bench', sha256: hashToken(TOKEN), scopes: ['play', 'admin'] }]);
  const { origin } = await start('../env-server/main.ts', ['--port', '0', '--tokens', tokens]);
  const cases: Case[] = [];
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
    cases.push({ name, origin, connect, players, baseline });
  };
  const rest = (ids: readonly string[]) => restPlayer(ids[0]);
  const frames = (ids: readonly string[]) => framePlayer(ids[0]);
  const batches = (ids: readonly string[]) => batchPlayer(ids, BATCH, '');
  const frameBatches = (ids: readonly string[]) => batchPlayer(ids, BATCH, BATCH_FRAME);
  await add('REST, 1 client', httpClient, 1, 1, rest);
  await add('REST, 32 clients', httpClient, 32, 1, rest, BARE_HTTP);
  await add('WebSocket, 32 clients', webSocketClient, 32, 1, frames, BARE_WS);
  await add(`WebSocket, ${MANY_CLIENTS} clients`, webSocketClient, MANY_CLIENTS, 1, frames, BARE_WS_CROWD);
  await add('REST batches of 32, 1 client', httpClient, 1, BATCH, batches);
  await add('REST batches of 32, 32 clients', httpClient, 32, BATCH, batches, BARE_BATCHES);
  await add(
    'WebSocket batches of 32, 8 clients',
    webSocketClient,
    8,
    BATCH,
    frameBatches,
    BARE_FRAME_BATCHES,
  );
  return cases;
}

/** Whether a step costs the same however many sessions are open, played or not, and what an idle one weighs: a server each. */
async function crowdCases(sessions: number): Promise<Case[]> {
  const crowd = (name: string, origin: string, ids: readonly string[], baseline?: string): Case => ({
    name: `REST batches of 32, 2 clients, ${name}`,
    origin,
    connect: httpClient,
    players: times(2, i =>
      batchPlayer(ids.slice((i * ids.length) / 2, ((i + 1) * ids.length) / 2), BATCH, ''),
    ),
    baseline: baseline && `REST batches of 32, 2 clients, ${baseline}`,
  });
  const { origin: quiet } = await start('../env-server/main.ts', ['--port', '0']);
  const { origin: crowded } = await start('../env-server/main.ts', ['--port', '0']);
  const before = await metric(crowded, HEAP);
  const many = await openSessions(crowded, TOKEN, sessions);
  const bytes = ((await metric(crowded, HEAP)) - before) / sessions;
  console.log(`memory of an idle FrozenLake session: about ${(bytes / 1024).toFixed(2)} KiB of heap`);
  const few = `${FEW_SESSIONS} sessions open`;
  return [
    crowd(few, quiet, await openSessions(quiet, TOKEN, FEW_SESSIONS)),
    crowd(
      `${FEW_SESSIONS} beside ${sessions}`,
      crowded,
      await openSessions(crowded, TOKEN, FEW_SESSIONS),
      few,
    ),
    crowd(`all of ${sessions}`, crowded, many, few),
  ];
}

function print(cases: readonly Case[], rowsOf: ReadonlyMap<Case, readonly Row[]>): void {
  console.log(
    '| | steps/s | best round | p50 ms | p99 ms | of the baseline | best to best | server CPU µs a step, least |',
  );
  console.log('|---|---|---|---|---|---|---|---|');
  for (const each of cases) {
    const middle = (key: keyof Row, of = each) => median(rowsOf.get(of)!.map(row => row[key]));
    const best = (of = each) => Math.max(...rowsOf.get(of)!.map(({ stepsPerSecond }) => stepsPerSecond));
    const baseline = cases.find(({ name }) => name === each.baseline);
    const columns = [
      each.name,
      Math.round(middle('stepsPerSecond')),
      Math.round(best()),
      middle('p50').toFixed(2),
      middle('p99').toFixed(2),
      baseline ? (middle('stepsPerSecond') / middle('stepsPerSecond', baseline)).toFixed(2) : '',
      baseline ? (best() / best(baseline)).toFixed(2) : '',
      Math.min(...rowsOf.get(each)!.map(({ cpuMicroseconds }) => cpuMicroseconds)).toFixed(1),
    ];
    console.log(`| ${columns.join(' | ')} |`);
  }
}

const options = new Command('bench:server')
  .option('--seconds <n>', 'measured time of each case in each round', Number, 2)
  .option('--rounds <n>', 'how often each case is measured', Number, 5)
  .option('--sessions <n>', 'open sessions in the last case', Number, 50_000)
  .parse()
  .opts<{ seconds: number; rounds: number; sessions: number }>();

const cases = [
  ...(await bareCases()),
  ...(await bareBatchCases()),
  ...(await serverCases()),
  ...(await crowdCases(options.sessions)),
];
const rowsOf = new Map<Case, Row[]>(cases.map(each => [each, []]));
for (let round = 0; round < options.rounds; round++) {
  for (const each of cases) rowsOf.get(each)!.push(await play(each, options.seconds));
}
print(cases, rowsOf);
process.exit();
