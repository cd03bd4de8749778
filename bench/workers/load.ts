import { type Client, httpClient, measure, type Player, webSocketClient } from '../server/load.ts';
import { batchPlayer, framePlayer, restPlayer } from '../server/players.ts';

/** Who plays sessions that were opened over which connection. */
export const CASES = {
  'WebSocket, own sessions': 'sockets whose sessions were opened over them: nothing is passed on',
  'WebSocket, foreign sessions':
    'sockets that play what was opened over the next one: with two workers all is passed on',
  'REST, own sessions': 'kept connections whose sessions were opened over them',
  'REST, foreign sessions': 'kept connections that play what was opened over the next one',
  'WebSocket batches of 32, mixed': 'batches of sessions of all connections: half is passed on',
} as const;
export type WorkerLoadCase = keyof typeof CASES;

export interface Load {
  readonly origin: string;
  readonly name: WorkerLoadCase;
  readonly clients: number;
  readonly warmUpSeconds: number;
  readonly seconds: number;
}

/** What a process of the load measured. */
export interface Measured {
  readonly steps: number;
  readonly p99: number;
}

const BATCH = 32;
const TOKEN = 'none';
/** A lake without holes: steps, not resets, are measured. */
const CREATE = {
  env_id: 'FrozenLake-v0',
  config: { p_frozen: 1, success_rate: 0.8, max_steps: 10_000 },
};

async function open(client: Client, overSocket: boolean, seed: number): Promise<string> {
  const request = { ...CREATE, seed };
  const reply = overSocket
    ? await client.ask(JSON.stringify({ id: 0, op: 'create', ...request }), '')
    : await client.ask(JSON.stringify(request), '/v1/sessions');
  const match = /"session_id":"([^"]+)"/.exec(reply);
  if (!match) throw new Error(reply);
  return match[1];
}

/** Plays one case; the steps are those of the measured time. */
async function play({ origin, name, clients: count, warmUpSeconds, seconds }: Load): Promise<Measured> {
  const overSocket = name.startsWith('WebSocket');
  const clients: Client[] = [];
  // One after the other, so that the server hands them out in turn.
  for (let i = 0; i < count; i++) {
    clients.push(await (overSocket ? webSocketClient : httpClient)(origin, TOKEN));
  }
  const ids: string[] = [];
  const each = name.includes('batches') ? BATCH : 1;
  for (let i = 0; i < each * count; i++) ids.push(await open(clients[i % count], overSocket, i));
  const shift = name.includes('foreign') ? 1 : 0;
  const playerOf = (i: number): Player => {
    if (name.includes('batches')) {
      const mine = Array.from({ length: BATCH }, (_, k) => ids[(i * BATCH + k) % ids.length]);
      return batchPlayer(mine, BATCH, '"id":1,"op":"batch",');
    }
    const id = ids[(i + shift) % count];
    return overSocket ? framePlayer(id) : restPlayer(id);
  };
  const pairs = clients.map((client, i) => [client, playerOf(i)] as const);
  await measure(pairs, warmUpSeconds);
  process.send?.('warm');
  const { steps, p99 } = await measure(pairs, seconds);
  for (const client of clients) client.close();
  return { steps, p99 };
}

if (process.send) {
  process.once('message', (load: Load) => {
    play(load).then(
      measured => process.send?.(measured, undefined, undefined, () => process.exit(0)),
      error => {
        console.error(error);
        process.exit(1);
      },
    );
  });
}
