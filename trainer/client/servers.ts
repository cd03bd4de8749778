import { pause } from '../../shared/http/retry.ts';
import { ClientClosed, DEFAULT_RETRY, type WaitEvents } from './retry.ts';
import { EnvServer, type EnvServerSettings } from './server.ts';

/** Interval between checks while all servers are unavailable. */
const LOOK_EVERY_MS = 50;

/** Several environment servers that share the work by weight. */
export class ServerPool {
  readonly servers: readonly EnvServer[];
  /** Called for an episode that was lost in its course and is played again. */
  readonly onReplay: NonNullable<WaitEvents['onReplay']>;
  readonly #patienceMs: number;
  readonly #closed = new AbortController();
  /** Work of each server, in units of its weight. */
  readonly #load = new Map<EnvServer, number>();

  /**
   * @param patienceMs longest time that all servers may be unavailable
   * @throws Error when there is no server or two have the same URL
   */
  constructor(
    servers: readonly EnvServer[],
    patienceMs = DEFAULT_RETRY.patienceMs,
    onReplay: WaitEvents['onReplay'] = () => {},
  ) {
    this.onReplay = onReplay;
    if (servers.length === 0) throw new Error('there is no environment server to play on: name at least one');
    const names = servers.map(server => server.name);
    const twice = names.find((name, i) => names.indexOf(name) !== i);
    if (twice !== undefined) throw new Error(`the server ${twice} is named twice`);
    this.servers = servers;
    this.#patienceMs = patienceMs;
  }

  /**
   * Picks a server for work: the least busy one for its weight among the available servers, or among all if none is
   * available. Return the work with {@link done}.
   * @throws Error when no server plays the tag
   */
  pick({ amount = 1, tag, except }: Workload = {}): EnvServer {
    const playing = this.servers.filter(server => server.weightFor(tag) > 0);
    if (playing.length === 0) {
      throw new Error(`no server plays ${tag}: all of them have weight 0 for it under \`servers\``);
    }
    const there = playing.filter(server => !server.away);
    const others = (some: readonly EnvServer[]) => some.filter(server => server !== except);
    const candidates = [others(there), there, others(playing), playing].find(some => some.length > 0)!;
    let best = candidates[0];
    for (const server of candidates) if (this.#loadOf(server) < this.#loadOf(best)) best = server;
    this.#load.set(best, this.#loadOf(best) + amount / best.weightFor(tag));
    return best;
  }

  /** Adds work to a server without a choice, because its work cannot move. Return it with {@link done}. */
  add(server: EnvServer, { amount = 1, tag }: Omit<Workload, 'except'> = {}): void {
    this.#load.set(server, this.#loadOf(server) + amount / server.weightFor(tag));
  }

  /** Returns work of {@link pick} or {@link add}. */
  done(server: EnvServer, { amount = 1, tag }: Omit<Workload, 'except'> = {}): void {
    this.#load.set(server, Math.max(0, this.#loadOf(server) - amount / server.weightFor(tag)));
  }

  /**
   * Waits until a server that plays the tag is available.
   * @returns false when none returned within the patience
   * @throws ClientClosed when the pool is closed
   */
  async anyThere(tag?: string): Promise<boolean> {
    const since = performance.now();
    while (this.servers.every(server => server.away || server.weightFor(tag) === 0)) {
      if (performance.now() - since >= this.#patienceMs) return false;
      await pause(LOOK_EVERY_MS, this.#closed.signal);
    }
    return true;
  }

  async close(): Promise<void> {
    this.#closed.abort(new ClientClosed(this.servers.map(server => server.name).join(', ')));
    await Promise.all(this.servers.map(server => server.close()));
  }

  #loadOf(server: EnvServer): number {
    return this.#load.get(server) ?? 0;
  }
}

/** Work for a server: this many episodes of a tag. */
export interface Workload {
  readonly amount?: number;
  /** Absent: of no tag in particular. */
  readonly tag?: string;
  /** A server that has just failed; taken only when there is no other. */
  readonly except?: EnvServer;
}

/** Longest wait for one of several servers before another takes its work. */
const PATIENCE_AMONG_SEVERAL_MS = 15_000;

/**
 * Clients for the servers of a config. A single server may be unavailable as long as the retry policy allows; work of
 * one of several moves much sooner, and only if all are unavailable do they have that long.
 * @param failoverMs longest wait for one of several
 * @param events called when the client waits for a server and when it is back
 */
export function openServers(
  settings: readonly EnvServerSettings[],
  events: WaitEvents = {},
  failoverMs = PATIENCE_AMONG_SEVERAL_MS,
): ServerPool {
  const patiences = settings.map(({ retry }) => retry?.patienceMs ?? DEFAULT_RETRY.patienceMs);
  const several = settings.length > 1;
  const servers = settings.map((one, i) => {
    const patienceMs = several ? Math.min(failoverMs, patiences[i]) : patiences[i];
    return new EnvServer({ ...one, retry: { ...one.retry, patienceMs } }, events);
  });
  return new ServerPool(servers, Math.max(...patiences, 0), events.onReplay);
}
