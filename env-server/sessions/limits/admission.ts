import { remembered } from '../../../shared/remembered.ts';
import { counted } from '../../../shared/text.ts';
import { Problem } from '../../problems.ts';
import type { OpenLimits } from '../../store/session-store.ts';
import type { EnvironmentCounters } from '../episodes/variant.ts';
import { ReplyCache } from '../replies/reply-cache.ts';
import { ByteAccount, ByteBudget, type ByteLimits } from './budgets.ts';

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

/** The most sessions that may be open. */
export function mostOpen(limits: SessionLimits): OpenLimits {
  const { maxSessions, maxSessionsPerClient, maxSessionsPerEnvironment, tokens } = limits;
  const ofClient = mostOfClient(maxSessions, maxSessionsPerClient, tokens);
  return [maxSessions, ofClient, maxSessionsPerEnvironment];
}

/** The exceeded limit, and the number of open sessions it counts. */
export interface Refusal {
  readonly open: number;
  readonly most: number;
  /** e.g. `of one client`. */
  readonly scope: string;
}

/** The exceeded limit, by its position in {@link OpenLimits}. */
export function refusalAt(
  limits: SessionLimits,
  { limit, open }: { readonly limit: number; readonly open: number },
  envId: string,
): Refusal {
  const scope = ['on this server', 'of one client', `of ${envId}`][limit];
  return { open, most: mostOpen(limits)[limit], scope };
}

/** `too_many_sessions`, with its numbers for protocols that report them. */
export class TooManySessions extends Problem {
  readonly open: number;
  readonly most: number;

  constructor({ open, most, scope }: Refusal, more: number) {
    super('too_many_sessions', `${more} more would exceed the limit of ${counted(most, 'session')} ${scope}`);
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
    const counts = [this.#sessions, this.client(owner).sessions, counters.sessions];
    const limit = mostOpen(this.#limits).findIndex((most, i) => counts[i] + count > most);
    if (limit >= 0) {
      const refusal = refusalAt(this.#limits, { limit, open: counts[limit] }, counters.envId);
      throw new TooManySessions(refusal, count);
    }
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
    return remembered(this.#clients, owner, () => {
      const account = new ByteAccount(this.bytes);
      return { sessions: 0, account, replies: new ReplyCache(account) };
    });
  }

  clients(): Iterable<readonly [owner: string, client: ClientUsage]> {
    return this.#clients;
  }
}

/** Part of a limit that one token may have unless it is set. */
const CLIENT_SHARE = 0.75;

/**
 * The most that one client may have of what all share, so that one token leaves something to the others. Without
 * tokens clients are addresses, and one may have everything.
 * @param ofClient the setting; 0 for the default
 */
export function mostOfClient(ofAll: number, ofClient: number, tokens: string): number {
  if (ofClient > 0) return ofClient;
  return tokens === '' ? ofAll : Math.max(1, Math.floor(ofAll * CLIENT_SHARE));
}
