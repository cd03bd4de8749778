import type { MaybePromise } from '../../environments/core/maybe-promise.ts';
import { Problem } from '../../problems.ts';
import type { EnvironmentCounters } from '../episodes/environment-counters.ts';
import { ReplyCache } from '../replies/reply-cache.ts';
import { ByteAccount, ByteBudget, type ByteLimits } from './budgets.ts';

const RETRY_AFTER_SECONDS = 1;

export interface SessionLimits extends ByteLimits {
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

export interface ClientUsage {
  sessions: number;
  /** Memory of its sessions and replies. */
  readonly account: ByteAccount;
  /** Of requests that concern no session yet. */
  readonly replies: ReplyCache;
}

/** Open sessions: in all, of one client, of one environment. */
export interface OpenCounts {
  readonly inAll: number;
  readonly ofClient: number;
  readonly ofEnvironment: number;
}

/** The limit that keeps sessions from being opened, and how many of its kind are open. */
export interface Refusal {
  readonly open: number;
  readonly most: number;
  /** e.g. `of one client`. */
  readonly whose: string;
}

/** The first limit that so many more sessions would exceed. */
export function refusalOf(
  limits: SessionLimits,
  counts: OpenCounts,
  envId: string,
  more: number,
): Refusal | undefined {
  const checks: readonly (readonly [open: number, most: number, whose: string])[] = [
    [counts.inAll, limits.maxSessions, 'on this server'],
    [counts.ofClient, limits.maxSessionsPerClient, 'of one client'],
    [counts.ofEnvironment, limits.maxSessionsPerEnvironment, `of ${envId}`],
  ];
  for (const [open, most, whose] of checks) if (open + more > most) return { open, most, whose };
  return undefined;
}

/** `too_many_sessions`, with the numbers for clients that are told them. */
export class TooManySessions extends Problem {
  readonly open: number;
  readonly most: number;

  constructor({ open, most, whose }: Refusal, more: number) {
    super('too_many_sessions', `${more} more would exceed the limit of ${most} sessions ${whose}`, {
      retryAfterSeconds: RETRY_AFTER_SECONDS,
    });
    this.open = open;
    this.most = most;
  }
}

/** What sessions take in one of several processes, by client, and where it hears what they take in the others. */
export interface ByteUsage {
  /** Estimated memory of all sessions here. */
  readonly used: number;
  /** The same of each client. */
  usedByClient(): Iterable<readonly [owner: string, bytes: number]>;
  /** What sessions take elsewhere: all of them, and those of the clients for whom it has changed. */
  hear(all: number, byClient: Iterable<readonly [owner: string, bytes: number]>): void;
}

/** Counts for several processes that have their limits in common. */
export interface SharedLimits {
  /** Begins to exchange what sessions take. Only limits in bytes that are set are in common. */
  exchange(usage: ByteUsage): void;
  /** Counts sessions that are to be opened, unless a limit keeps them from it. */
  admit(owner: string, envId: string, count: number): Promise<Refusal | undefined>;
  change(owner: string, envId: string, change: number): void;
}

/** Counts open sessions in all, of each client and of each environment, and refuses those over a limit. */
export class Admission implements ByteUsage {
  readonly #limits: SessionLimits;
  readonly #common: SharedLimits | undefined;
  readonly #clients = new Map<string, ClientUsage>();
  /** Memory of everybody. */
  readonly bytes: ByteBudget;
  #sessions = 0;

  /** @param common decides, where this process is one of several */
  constructor(limits: SessionLimits, common?: SharedLimits) {
    this.#limits = limits;
    this.#common = common;
    this.bytes = new ByteBudget(limits);
    if (limits.maxBytes > 0 || limits.maxBytesPerClient > 0) common?.exchange(this);
  }

  get used(): number {
    return this.bytes.used;
  }

  *usedByClient(): Generator<readonly [owner: string, bytes: number]> {
    for (const [owner, { account }] of this.#clients) yield [owner, account.used];
  }

  hear(all: number, byClient: Iterable<readonly [owner: string, bytes: number]>): void {
    this.bytes.hear(all);
    if (this.#limits.maxBytesPerClient === 0) return;
    for (const [owner, bytes] of byClient) this.client(owner).account.elsewhere = bytes;
  }

  /** @throws TooManySessions */
  admit(owner: string, counters: EnvironmentCounters, count: number): MaybePromise<void> {
    if (this.#common) {
      return this.#common.admit(owner, counters.envId, count).then(refusal => {
        if (refusal) throw new TooManySessions(refusal, count);
        this.#count(owner, counters, count);
      });
    }
    const counts = {
      inAll: this.#sessions,
      ofClient: this.client(owner).sessions,
      ofEnvironment: counters.sessions,
    };
    const refusal = refusalOf(this.#limits, counts, counters.envId, count);
    if (refusal) throw new TooManySessions(refusal, count);
    this.#count(owner, counters, count);
  }

  /** Counts sessions that come unasked or, below zero, go. */
  count(owner: string, counters: EnvironmentCounters, change: number): void {
    this.#count(owner, counters, change);
    this.#common?.change(owner, counters.envId, change);
  }

  #count(owner: string, counters: EnvironmentCounters, change: number): void {
    this.#sessions += change;
    this.bytes.sessions += change;
    this.client(owner).sessions += change;
    counters.sessions += change;
  }

  client(owner: string): ClientUsage {
    let client = this.#clients.get(owner);
    if (!client) {
      const account = new ByteAccount(this.bytes);
      client = { sessions: 0, account, replies: new ReplyCache(account) };
      this.#clients.set(owner, client);
    }
    return client;
  }

  clients(): Iterable<readonly [owner: string, client: ClientUsage]> {
    return this.#clients;
  }
}
