import type { WaitEvents } from './availability.ts';
import { EnvServer, type EnvServerSettings } from './server.ts';

/** Several environment servers that share the work by weight. */
export class ServerPool {
  readonly servers: readonly EnvServer[];
  /** Work each is busy with, in units of its weight. */
  readonly #load = new Map<EnvServer, number>();

  /** @throws Error when there is no server or two have the same URL */
  constructor(servers: readonly EnvServer[]) {
    if (servers.length === 0) throw new Error('there is no environment server to play on: name at least one');
    const names = servers.map(server => server.name);
    const twice = names.find((name, i) => names.indexOf(name) !== i);
    if (twice !== undefined) throw new Error(`the server ${twice} is named twice`);
    this.servers = servers;
  }

  /**
   * The server that is to take `amount` of work: the one that is least busy for its weight, among those that are not away;
   * among all where all are away. Give the work back with {@link done}.
   * @param except one that has just failed; taken only when it is alone
   */
  pick(amount = 1, except?: EnvServer): EnvServer {
    const others = this.servers.filter(server => server !== except);
    const there = others.filter(server => !server.away);
    const candidates = there.length > 0 ? there : others.length > 0 ? others : this.servers;
    let best = candidates[0];
    for (const server of candidates) if (this.#loadOf(server) < this.#loadOf(best)) best = server;
    this.#load.set(best, this.#loadOf(best) + amount / best.weight);
    return best;
  }

  /** Work that {@link pick} gave out is over. */
  done(server: EnvServer, amount = 1): void {
    this.#load.set(server, Math.max(0, this.#loadOf(server) - amount / server.weight));
  }

  async close(): Promise<void> {
    await Promise.all(this.servers.map(server => server.close()));
  }

  #loadOf(server: EnvServer): number {
    return this.#load.get(server) ?? 0;
  }
}

/** How long one of several servers is waited for before its work goes to another. */
const PATIENCE_AMONG_SEVERAL_MS = 15_000;

/**
 * Clients for the servers of a config. A single server is waited for as long as the retry policy says; one of several is
 * left for another much sooner, unless its own settings say otherwise.
 * @param events tell when one is waited for and when it is back
 */
export function openServers(settings: readonly EnvServerSettings[], events: WaitEvents = {}): ServerPool {
  const patience = settings.length > 1 ? { patienceMs: PATIENCE_AMONG_SEVERAL_MS } : {};
  return new ServerPool(
    settings.map(one => new EnvServer({ ...one, retry: { ...patience, ...one.retry } }, events)),
  );
}
