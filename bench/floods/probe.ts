import { once } from 'node:events';
import { Agent, get } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import { WebSocket } from 'ws';

/** Milliseconds that one kind of request took. */
export interface Latencies {
  readonly count: number;
  readonly p50: number;
  readonly p99: number;
  readonly most: number;
}

type Answer =
  | { readonly ok: true; readonly result: { readonly session_id: string } }
  | { readonly ok: false; readonly error: { readonly code: string } };

/** A well-behaved client: asks now and then, one request at a time, and notes how long each takes. */
export class Probe {
  readonly #origin: string;
  readonly #pauseMs: number;
  readonly #agent = new Agent({ keepAlive: true, maxSockets: 1 });
  readonly #stopped = new AbortController();
  readonly #lives: number[] = [];
  readonly #steps: number[] = [];
  #running: Promise<unknown> = Promise.resolve();

  constructor(origin: string, pauseMs = 20) {
    this.#origin = origin;
    this.#pauseMs = pauseMs;
  }

  /** Opens what it asks with. */
  async start(): Promise<void> {
    const socket = new WebSocket(`${this.#origin.replace('http', 'ws')}/v1/ws`);
    await once(socket, 'open');
    const ask = async (frame: object): Promise<Answer> => {
      socket.send(JSON.stringify({ id: 1, ...frame }));
      const [reply] = (await once(socket, 'message')) as [Buffer];
      return JSON.parse(reply.toString());
    };
    const config = { p_frozen: 1, max_steps: 10_000 };
    let opened = await ask({ op: 'create', env_id: 'FrozenLake-v0', config });
    for (; !opened.ok && opened.error.code === 'too_many_sessions'; await delay(this.#pauseMs)) {
      opened = await ask({ op: 'create', env_id: 'FrozenLake-v0', config });
    }
    if (!opened.ok) throw new Error(`the probe got no session: ${JSON.stringify(opened.error)}`);
    const { session_id } = opened.result;
    this.#running = Promise.all([
      this.#repeat(this.#lives, () => this.#live()),
      this.#repeat(this.#steps, () => ask({ op: 'step', session_id, action: 1 })),
    ]).finally(() => socket.terminate());
  }

  /** Stops, and says how long `GET /livez` and a step over a WebSocket took since the last {@link forget}. */
  async stop(): Promise<{ livez: Latencies; step: Latencies }> {
    this.#stopped.abort();
    await this.#running;
    this.#agent.destroy();
    return { livez: summary(this.#lives), step: summary(this.#steps) };
  }

  forget(): void {
    this.#lives.length = 0;
    this.#steps.length = 0;
  }

  async #repeat(latencies: number[], ask: () => Promise<unknown>): Promise<void> {
    while (!this.#stopped.signal.aborted) {
      const begin = performance.now();
      await ask();
      latencies.push(performance.now() - begin);
      await delay(this.#pauseMs);
    }
  }

  async #live(): Promise<void> {
    const request = get(`${this.#origin}/livez`, { agent: this.#agent });
    const [response] = await once(request, 'response');
    response.resume();
    await once(response, 'end');
    if (response.statusCode !== 200) throw new Error(`/livez answered ${response.statusCode}`);
  }
}

function summary(latencies: readonly number[]): Latencies {
  const sorted = latencies.toSorted((a, b) => a - b);
  const at = (share: number) =>
    sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN;
  return { count: sorted.length, p50: at(0.5), p99: at(0.99), most: at(1) };
}
