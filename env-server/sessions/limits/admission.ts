import { counted } from '../../../shared/counted.ts';
import { Problem } from '../../problems.ts';
import type { EnvironmentCounters } from '../episodes/variant.ts';
import { ReplyCache } from '../replies/reply-cache.ts';
import { ByteAccount, ByteBudget, type ByteLimits } from './budgets.ts';
import { mostOfClient } from './client-share.ts';

const RETRY_AFTER_SECONDS = 1;

export interface SessionLimits extends ByteLimits {
  readonly maxSessions: number;
  /** 0 for the default of {@link mostOfClient}. */
  readonly maxSessionsPerClient: number;
  readonly maxSessionsPerEnvironment: number;
  /** Idle time after which a session expires unless it asked for another, in seconds. */
  readonly idleTtlSeconds: number;
  /** Time after which even a busy session expires, in seconds. */
  readonly lifetimeSeconds: number;
  /** Seconds for which ended ids get 410 before they get 404. */
  readonly goneSeconds: number;
  /** Empty where clients have no tokens. */
  readonly tokens: string;
}

export interface ClientUsage {
  sessions: number;
  /** Memory of its sessions and replies. */
  readonly account: ByteAccount;
  /** Replies to requests that concern no session yet. */
  readonly replies: ReplyCache;
}

/** Open sessions: in all, of one client, of one environment. */
interface OpenCounts {
  readonly inAll: number;
  readonly ofClient: number;
  readonly ofEnvironment: number;
}

/** The most sessions that may be open. */
export function mostOpen(limits: SessionLimits): OpenCounts {
  const { maxSessions, maxSessionsPerClient, maxSessionsPerEnvironment, tokens } = limits;
  return {
    inAll: maxSessions,
    ofClient: mostOfClient(maxSessions, maxSessionsPerClient, tokens),
    ofEnvironment: maxSessionsPerEnvironment,
  };
}

/** The exceeded limit, and the number of open sessions it counts. */
export interface Refusal {
  readonly open: number;
  readonly most: number;
  /** e.g. `of one client`. */
  readonly scope: string;
}

/** The exceeded limit, by its position in the list of {@link checksOf}. */
export function refusalAt(
  limits: SessionLimits,
  { limit, open }: { readonly limit: number; readonly open: number },
  envId: string,
): Refusal {
  const [, most, scope] = checksOf(limits, { inAll: open, ofClient: open, ofEnvironment: open }, envId)[
    limit
  ];
  return { open, most, scope };
}

type LimitCheck = readonly [open: number, most: number, scope: string];

function checksOf(limits: SessionLimits, counts: OpenCounts, envId: string): readonly LimitCheck[] {
  const most = mostOpen(limits);
  return [
    [counts.inAll, most.inAll, 'on this server'],
    [counts.ofClient, most.ofClient, 'of one client'],
    [counts.ofEnvironment, most.ofEnvironment, `of ${envId}`],
  ];
}

/** The first limit that this many more sessions would exceed. */
function refusalOf(
  limits: SessionLimits,
  counts: OpenCounts,
  envId: string,
  more: number,
): Refusal | undefined {
  for (const [open, most, scope] of checksOf(limits, counts, envId))
    if (open + more > most) return { open, most, scope };
  return undefined;
}

/** `too_many_sessions`, with its numbers for protocols that report them. */
export class TooManySessions extends Problem {
  readonly open: number;
  readonly most: number;

  constructor({ open, most, scope }: Refusal, more: number) {
    super(
      'too_many_sessions',
      `${more} more would exceed the limit of ${counted(most, 'session')} ${scope}`,
      {
        retryAfterSeconds: RETRY_AFTER_SECONDS,
      },
    );
    this.open = open;
    this.most = most;
  }
}

/** Counts open sessions in total, by client and by environment, and rejects those over a limit. */
export class Admission {
  readonly #limits: SessionLimits;
  readonly #clients = new Map<string, ClientUsage>();
  /** Memory of the whole server. */
  readonly bytes: ByteBudget;
  #sessions = 0;

  constructor(limits: SessionLimits) {
    this.#limits = limits;
    this.bytes = new ByteBudget(limits);
  }

  /** @throws TooManySessions */
  admit(owner: string, counters: EnvironmentCounters, count: number): void {
    const counts = {
      inAll: this.#sessions,
      ofClient: this.client(owner).sessions,
      ofEnvironment: counters.sessions,
    };
    const refusal = refusalOf(this.#limits, counts, counters.envId, count);
    if (refusal) throw new TooManySessions(refusal, count);
    this.count(owner, counters, count);
  }

  /** Counts sessions that open without admission or, below zero, close. */
  count(owner: string, counters: EnvironmentCounters, change: number): void {
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
