import { join } from 'node:path';
import { processorSeconds } from '../measuring.ts';
import { type Connect, httpClient, type Measurement, measure, type Player, webSocketClient } from './load.ts';
import { batchPlayer, framePlayer, openSessions, restPlayer } from './players.ts';
import { MAIN, type Started, start, startValkey, TOKEN, TOKENS, temporaryFolder } from './processes.ts';

const BATCH = 32;

interface Load {
  readonly name: string;
  readonly connect: Connect;
  readonly clients: number;
  readonly sessionsEach: number;
  readonly player: (ids: readonly string[]) => Player;
}

const LOADS: readonly Load[] = [
  {
    name: 'REST, 32 clients',
    connect: httpClient,
    clients: 32,
    sessionsEach: 1,
    player: ([id]) => restPlayer(id),
  },
  {
    name: 'WebSocket, 32 clients',
    connect: webSocketClient,
    clients: 32,
    sessionsEach: 1,
    player: ([id]) => framePlayer(id),
  },
  {
    name: 'WebSocket batches of 32, 8 clients',
    connect: webSocketClient,
    clients: 8,
    sessionsEach: BATCH,
    player: ids => batchPlayer(ids, BATCH, '"id":1,"op":"batch",'),
  },
];

interface Row {
  readonly stepsPerSecond: number;
  /** Processor time of a step, in microseconds: of the servers, and of Valkey. */
  readonly server: number;
  readonly store: number;
}

/**
 * Processor time of a step on one server with a folder, and on several servers with one Valkey.
 * @returns a table. Its last column is how many times the steps of the one server the others take where each has a core of its
 * own, and Valkey another
 */
export async function replicasTable(
  replicas: number,
  { seconds, rounds }: { readonly seconds: number; readonly rounds: number },
): Promise<string> {
  const folder = temporaryFolder();
  const valkey = await startValkey(folder);
  const flags = ['--port', '0', ...TOKENS];
  const one = await start(MAIN, [...flags, '--data', join(folder, 'data')]);
  const several = ['--store', valkey.address, '--replicas', String(replicas), '--log-level', 'info'];
  const many = await start(MAIN, [...flags, ...several]);
  const rows = [
    `| µs of processor time a step | one server, folder | ${replicas} servers | Valkey | steps/s of one | of ${replicas} | by processor time |`,
    '|---|---|---|---|---|---|---|',
  ];
  for (const load of LOADS) {
    const players = [await connected(one, load), await connected(many, load)] as const;
    const best: [Row?, Row?] = [];
    // The first round is the warm-up.
    for (let round = 0; round <= rounds; round++) {
      for (const [i, servers] of [one, many].entries()) {
        const row = await measured(servers.pids, valkey.pid, () => measure(players[i], seconds));
        if (round > 0 && (!best[i] || row.server < best[i].server)) best[i] = row;
      }
    }
    for (const [client] of players.flat()) client.close();
    const [alone, shared] = best as [Row, Row];
    const columns = [
      load.name,
      alone.server.toFixed(1),
      shared.server.toFixed(1),
      shared.store.toFixed(1),
      Math.round(alone.stepsPerSecond),
      Math.round(shared.stepsPerSecond),
      ((replicas * alone.server) / shared.server).toFixed(2),
    ];
    rows.push(`| ${columns.join(' | ')} |`);
  }
  return rows.join('\n');
}

async function connected({ origin }: Started, { connect, clients, sessionsEach, player }: Load) {
  const ids = await openSessions(origin, TOKEN, clients * sessionsEach);
  return Promise.all(
    Array.from({ length: clients }, async (_, i) => {
      const own = ids.slice(i * sessionsEach, (i + 1) * sessionsEach);
      return [await connect(origin, TOKEN), player(own)] as const;
    }),
  );
}

async function measured(
  servers: readonly number[],
  store: number,
  play: () => Promise<Measurement>,
): Promise<Row> {
  const spent = () => [servers.reduce((sum, pid) => sum + processorSeconds(pid), 0), processorSeconds(store)];
  const before = spent();
  const { steps, stepsPerSecond } = await play();
  const [server, own] = spent().map((seconds, i) => (1e6 * (seconds - before[i])) / steps);
  return { stepsPerSecond, server, store: own };
}
