import { Problem } from '../../shared/problems.ts';
import { ReplyMemory } from './replies.ts';
import type { EnvironmentTally } from './tally.ts';

/** Replies remembered for each client by request key, for requests that concern no session yet. */
export const CLIENT_REPLIES_KEPT = 4096;
const RETRY_AFTER_SECONDS = 1;

export interface SessionLimits {
  readonly maxSessions: number;
  readonly maxSessionsPerClient: number;
  readonly maxSessionsPerEnvironment: number;
  /** Idle time after which a session expires unless it asked for another, in seconds. */
  readonly idleTtlSeconds: number;
  /** Time after which a session expires however busy it is, in seconds. */
  readonly lifetimeSeconds: number;
  /** How long ended ids answer 410 before they answer 404, in seconds. */
  readonly goneSeconds: number;
}

export interface Client {
  sessions: number;
  /** Of requests that concern no session yet. */
  replies: ReplyMemory;
}

/** Counts open sessions in all, of each client and of each environment, and refuses those over a limit. */
export class Admission {
  readonly #limits: SessionLimits;
  readonly #clients = new Map<string, Client>();
  #sessions = 0;

  constructor(limits: SessionLimits) {
    this.#limits = limits;
  }

  /** @throws Problem `too_many_sessions` */
  admit(owner: string, tally: EnvironmentTally, count: number): void {
    const { maxSessions, maxSessionsPerClient, maxSessionsPerEnvironment } = this.#limits;
    const refuse = (limit: number, whose: string) =>
      new Problem('too_many_sessions', `${count} more would exceed the limit of ${limit} sessions ${whose}`, {
        retryAfterSeconds: RETRY_AFTER_SECONDS,
      });
    if (this.#sessions + count > maxSessions) throw refuse(maxSessions, 'on this server');
    if (this.client(owner).sessions + count > maxSessionsPerClient) {
      throw refuse(maxSessionsPerClient, 'of one client');
    }
    if (tally.sessions + count > maxSessionsPerEnvironment) {
      throw refuse(maxSessionsPerEnvironment, `of ${tally.envId}`);
    }
    this.count(owner, tally, count);
  }

  /** Counts sessions that come or, below zero, go. */
  count(owner: string, tally: EnvironmentTally, change: number): void {
    this.#sessions += change;
    this.client(owner).sessions += change;
    tally.sessions += change;
  }

  client(owner: string): Client {
    let client = this.#clients.get(owner);
    if (!client) {
      client = { sessions: 0, replies: new ReplyMemory(CLIENT_REPLIES_KEPT) };
      this.#clients.set(owner, client);
    }
    return client;
  }

  clients(): Iterable<readonly [owner: string, client: Client]> {
    return this.#clients;
  }
}
