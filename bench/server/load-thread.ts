import { once } from 'node:events';
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads';
import { type Connect, httpClient, type Measurement, measure, type Player, webSocketClient } from './load.ts';
import { batchPlayer, framePlayer, openSessions, restPlayer } from './players.ts';
import { TOKEN } from './processes.ts';

/** Clients of one thread, each with a request in flight. */
interface Load {
  readonly connect: Connect;
  readonly clients: number;
  readonly sessionsEach: number;
  readonly player: (ids: readonly string[]) => Player;
}

const BATCH = 32;

export const LOADS = {
  REST: { connect: httpClient, clients: 32, sessionsEach: 1, player: ([id]) => restPlayer(id) },
  WebSocket: { connect: webSocketClient, clients: 32, sessionsEach: 1, player: ([id]) => framePlayer(id) },
  'WebSocket batches of 32': {
    connect: webSocketClient,
    clients: 8,
    sessionsEach: BATCH,
    player: ids => batchPlayer(ids, BATCH, '"id":1,"op":"batch",'),
  },
} satisfies { readonly [name: string]: Load };

export type LoadName = keyof typeof LOADS;

interface Start {
  readonly origin: string;
  readonly name: LoadName;
}

/** A thread with a load's clients, connected to a server. */
export class LoadThread {
  readonly #worker: Worker;

  private constructor(start: Start) {
    this.#worker = new Worker(new URL(import.meta.url), { workerData: start });
  }

  static async connect(origin: string, name: LoadName): Promise<LoadThread> {
    const thread = new LoadThread({ origin, name });
    await once(thread.#worker, 'message');
    return thread;
  }

  /** Lets its clients play for this many seconds. */
  async measure(seconds: number): Promise<Measurement> {
    this.#worker.postMessage(seconds);
    const [measurement] = (await once(this.#worker, 'message')) as [Measurement];
    return measurement;
  }

  async close(): Promise<void> {
    await this.#worker.terminate();
  }
}

async function playWhenAsked({ origin, name }: Start): Promise<void> {
  const { connect, clients, sessionsEach, player }: Load = LOADS[name];
  const ids = await openSessions(origin, TOKEN, clients * sessionsEach);
  const players = await Promise.all(
    Array.from({ length: clients }, async (_, i) => {
      const own = ids.slice(i * sessionsEach, (i + 1) * sessionsEach);
      return [await connect(origin, TOKEN), player(own)] as const;
    }),
  );
  parentPort!.on('message', async (seconds: number) => {
    parentPort!.postMessage(await measure(players, seconds));
  });
  parentPort!.postMessage('connected');
}

if (!isMainThread) await playWhenAsked(workerData as Start);
