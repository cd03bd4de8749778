import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import {
  type Client,
  type Connect,
  httpClient,
  type Measurement,
  measure,
  type Player,
  webSocketClient,
} from './load.ts';
import { batchPlayer, fixedPlayer, framePlayer, openSessions, restPlayer } from './players.ts';
import { MAIN, start, startValkey, TOKEN, TOKENS, temporaryFolder } from './processes.ts';

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
/** Fields that a frame adds to a batch. */
const BATCH_FRAME = '"id":1,"op":"batch",';

/** Something to measure, again and again. */
export interface LoadCase {
  readonly name: string;
  readonly origin: string;
  readonly connect: Connect;
  readonly players: readonly Player[];
  /** The case that it is compared with. */
  readonly baseline?: string;
}

export interface LoadRow extends Measurement {
  /** Processor time of the server for a step, in microseconds: what counts on a busy machine. */
  readonly cpuMicroseconds: number;
  /** The same without that of the operating system. */
  readonly userMicroseconds: number;
}

const BARE = fileURLToPath(new URL('./bare.ts', import.meta.url));

/** The clients of a case, connected. */
export type Connected = readonly (readonly [Client, Player])[];

/** Measures a case. */
export async function play(one: LoadCase, seconds: number): Promise<LoadRow> {
  const clients = await connected(one);
  await measure(clients, WARM_UP_SECONDS);
  const row = await measured(one, clients, seconds);
  for (const [client] of clients) client.close();
  return row;
}

export function connected({ origin, connect, players }: LoadCase): Promise<Connected> {
  return Promise.all(players.map(async player => [await connect(origin, TOKEN), player] as const));
}

/** Lets connected clients of a case play for so long. */
export async function measured({ origin }: LoadCase, clients: Connected, seconds: number): Promise<LoadRow> {
  const cpuSeconds = async () => ({
    all: await metric(origin, 'process_cpu_seconds_total'),
    user: await metric(origin, 'process_cpu_user_seconds_total'),
  });
  const before = await cpuSeconds();
  const measurement = await measure(clients, seconds);
  const after = await cpuSeconds();
  const micros = (key: 'all' | 'user') => (1e6 * (after[key] - before[key])) / measurement.steps;
  return { ...measurement, cpuMicroseconds: micros('all'), userMicroseconds: micros('user') };
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

export async function bareCases(): Promise<LoadCase[]> {
  const { origin } = await start(BARE, []);
  const frame = '{"id":1,"op":"step","session_id":"sAAAAAAAAAAAAAAAA","action":1}';
  const fixed = (name: string, connect: Connect, clients: number, text: string): LoadCase => ({
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
export async function bareBatchCases(): Promise<LoadCase[]> {
  const { origin } = await start(BARE, ['batches']);
  const ids = times(BATCH, () => 'sAAAAAAAAAAAAAAAA');
  const batches = (name: string, connect: Connect, clients: number, envelope: string): LoadCase => ({
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

/**
 * Every transport of an environment server.
 * @param main its program
 * @param flags besides its port and tokens
 */
export async function serverCases(main = MAIN, flags: readonly string[] = []): Promise<LoadCase[]> {
  const { origin } = await start(main, ['--port', '0', ...TOKENS, ...flags]);
  const cases: LoadCase[] = [];
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
  const keyedRest = (ids: readonly string[]) => restPlayer(ids[0], true);
  const keyedFrames = (ids: readonly string[]) => framePlayer(ids[0], true);
  const frames = (ids: readonly string[]) => framePlayer(ids[0]);
  const batches = (ids: readonly string[]) => batchPlayer(ids, BATCH, '');
  const frameBatches = (ids: readonly string[]) => batchPlayer(ids, BATCH, BATCH_FRAME);
  await add('REST, 1 client', httpClient, 1, 1, rest);
  await add('REST, 32 clients', httpClient, 32, 1, rest, BARE_HTTP);
  await add('WebSocket, 32 clients', webSocketClient, 32, 1, frames, BARE_WS);
  await add(`WebSocket, ${MANY_CLIENTS} clients`, webSocketClient, MANY_CLIENTS, 1, frames, BARE_WS_CROWD);
  await add('REST, 32 clients, keyed', httpClient, 32, 1, keyedRest);
  await add('WebSocket, 32 clients, keyed', webSocketClient, 32, 1, keyedFrames);
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

/** The transports of two servers, one that keeps its sessions in a folder and one that keeps them in Valkey. */
export async function storeCases(): Promise<LoadCase[]> {
  const folder = temporaryFolder();
  const { address } = await startValkey(folder);
  const kept = await serverCases(MAIN, ['--data', join(folder, 'data')]);
  const shared = await serverCases(MAIN, ['--store', address]);
  // A case over Valkey is compared with the same case over the folder, this one with the bare server.
  return [
    ...kept.map(one => ({ ...one, name: `${one.name}, folder` })),
    ...shared.map(one => ({ ...one, name: `${one.name}, Valkey`, baseline: `${one.name}, folder` })),
  ];
}

/** Cost of a step with few and many open sessions, played or not, and memory of an idle one; a server for each. */
export async function crowdCases(sessions: number): Promise<LoadCase[]> {
  const crowd = (name: string, origin: string, ids: readonly string[], baseline?: string): LoadCase => ({
    name: `REST batches of 32, 2 clients, ${name}`,
    origin,
    connect: httpClient,
    players: times(2, i =>
      batchPlayer(ids.slice((i * ids.length) / 2, ((i + 1) * ids.length) / 2), BATCH, ''),
    ),
    baseline: baseline && `REST batches of 32, 2 clients, ${baseline}`,
  });
  const { origin: quiet } = await start(MAIN, ['--port', '0']);
  const { origin: crowded } = await start(MAIN, ['--port', '0']);
  const before = await metric(crowded, HEAP);
  const many = await openSessions(crowded, TOKEN, sessions);
  const bytes = ((await metric(crowded, HEAP)) - before) / sessions;
  console.log(`memory of an idle FrozenLake session: about ${(bytes / 1024).toFixed(2)} KiB of heap`);
  const few = `${FEW_SESSIONS} sessions open`;
  return [
    crowd(few, quiet, await openSessions(quiet, TOKEN, FEW_SESSIONS)),
    crowd(
      `${FEW_SESSIONS} next to ${sessions}`,
      crowded,
      await openSessions(crowded, TOKEN, FEW_SESSIONS),
      few,
    ),
    crowd(`all of ${sessions}`, crowded, many, few),
  ];
}
