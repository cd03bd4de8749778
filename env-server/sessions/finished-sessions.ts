import type { Json } from '../../shared/json.ts';
import { remembered } from '../../shared/remembered.ts';
import { MAX_REMEMBERED } from '../persistence/session-rows.ts';
import { Problem } from '../problems.ts';
import type { EpisodeState, TrajectoryRecord } from './episodes/episode.ts';
import type { Variant } from './episodes/variant.ts';
import type { Session } from './session.ts';

/** Milliseconds for which an ended session can still be read. */
const KEEP_FINISHED_MS = 60_000;
/** Ended sessions kept for one client. */
const MAX_PER_CLIENT = 200;
/** Estimated memory of all kept sessions, in bytes; a session larger than a quarter of it is not kept. */
const MAX_BYTES = 32 * 1024 * 1024;
const LARGEST_SHARE = 4;

/** An ended session in its last state. */
export interface FinishedSession {
  readonly id: string;
  readonly serial: number;
  readonly owner: string;
  readonly variant: Variant;
  readonly groupId: string | null;
  readonly seed: number | null;
  readonly episodeId: string;
  readonly episode: EpisodeState;
  /** Records of the episode, where they cannot be replayed. */
  readonly records: readonly TrajectoryRecord[] | undefined;
  readonly lastAction: Json | undefined;
  readonly ending: EndReason;
  /** Milliseconds of the server's clock. */
  readonly endedAt: number;
  /** Time by the wall clock, in milliseconds since the epoch. */
  readonly createdAt: number;
  /** Estimated memory. */
  readonly bytes: number;
}

/** Keeps each client's last sessions for a while after their end, so that watchers can see how they ended. */
export class FinishedSessions {
  /** Sessions by owner, then by id, in the order of their ends. */
  readonly #byOwner = new Map<string, Map<string, FinishedSession>>();
  /** Estimated memory, in bytes. */
  #bytes = 0;

  /**
   * Keeps a session that ends now, unless it is too large. An unplayed one may be on a watcher's screen too; it is
   * dropped first.
   */
  keep(session: Session, ending: EndReason, now: number): void {
    const { id, serial, owner, variant, groupId, seed, episode, createdAt, bytes } = session;
    if (bytes > MAX_BYTES / LARGEST_SHARE) return;
    const kept: FinishedSession = {
      id,
      serial,
      owner,
      variant,
      groupId,
      seed,
      episodeId: episode.id,
      episode: episode.capture(),
      records: episode.ownRecords,
      lastAction: episode.lastAction,
      ending,
      endedAt: now,
      createdAt,
      bytes,
    };
    const own = remembered(this.#byOwner, owner, () => new Map());
    own.set(id, kept);
    this.#bytes += bytes;
    if (own.size > MAX_PER_CLIENT) this.#drop(firstUnplayed(own) ?? first(own)!);
    while (this.#bytes > MAX_BYTES) this.#drop(this.#oldest()!);
  }

  /** An ended session that is still kept. */
  get(owner: string, id: string): FinishedSession | undefined {
    return this.#byOwner.get(owner)?.get(id);
  }

  /** Played sessions of a client, the most recently ended first; of all clients where no owner is given. */
  list(owner: string | undefined): FinishedSession[] {
    if (owner !== undefined) return played(this.#byOwner.get(owner)).reverse();
    const all = [...this.#byOwner.values()].flatMap(played);
    return all.sort((a, b) => b.endedAt - a.endedAt);
  }

  /** An ended session of any client. */
  find(id: string): FinishedSession | undefined {
    for (const own of this.#byOwner.values()) {
      const found = own.get(id);
      if (found) return found;
    }
    return undefined;
  }

  /** Drops sessions that ended long ago. */
  forget(now: number): void {
    for (const own of this.#byOwner.values()) {
      for (const session of own.values()) {
        if (session.endedAt + KEEP_FINISHED_MS > now) break;
        this.#drop(session);
      }
    }
  }

  #drop({ owner, id, bytes }: FinishedSession): void {
    const own = this.#byOwner.get(owner)!;
    own.delete(id);
    this.#bytes -= bytes;
    if (own.size === 0) this.#byOwner.delete(owner);
  }

  #oldest(): FinishedSession | undefined {
    let oldest: FinishedSession | undefined;
    for (const own of this.#byOwner.values()) {
      const candidate = first(own)!;
      if (!oldest || candidate.endedAt < oldest.endedAt) oldest = candidate;
    }
    return oldest;
  }
}

function first(own: ReadonlyMap<string, FinishedSession>): FinishedSession | undefined {
  const [session] = own.values();
  return session;
}

function firstUnplayed(own: ReadonlyMap<string, FinishedSession>): FinishedSession | undefined {
  for (const session of own.values()) if (session.episode.step === 0) return session;
  return undefined;
}

function played(own: ReadonlyMap<string, FinishedSession> | undefined): FinishedSession[] {
  return [...(own?.values() ?? [])].filter(({ episode }) => episode.step > 0);
}

/** Reason for a session's end: the code of the problem that later requests for its id get. */
export type EndReason = 'session_expired' | 'session_closed' | 'session_lost';

export interface EndedSession {
  readonly id: string;
  readonly owner: string;
  readonly ending: EndReason;
  /** Why a lost session was lost. */
  readonly reason: string | null;
  /** Milliseconds since the epoch. */
  readonly forgetAt: number;
}

/** Remembers ended sessions, and how they ended, for a while. */
export class EndedSessions {
  readonly #ended = new Map<string, EndedSession>();

  remember(ended: EndedSession): void {
    if (this.#ended.size >= MAX_REMEMBERED) {
      const [oldest] = this.#ended.keys();
      this.#ended.delete(oldest);
    }
    this.#ended.set(ended.id, ended);
  }

  /** Problem of a request for a session that is not open. */
  problem(owner: string, id: string, now: number): Problem {
    const ended = this.#ended.get(id);
    if (!ended || ended.owner !== owner || ended.forgetAt <= now) {
      return new Problem('unknown_session', `there is no session ${id}`);
    }
    switch (ended.ending) {
      case 'session_expired':
        return new Problem(ended.ending, `session ${id} expired`);
      case 'session_closed':
        return new Problem(ended.ending, `session ${id} was closed`);
      case 'session_lost':
        return new Problem(ended.ending, `session ${id} is lost: ${ended.reason}`);
    }
  }

  /** Forgets sessions that ended long ago. */
  forget(now: number): void {
    for (const [id, ended] of this.#ended) {
      if (ended.forgetAt > now) break;
      this.#ended.delete(id);
    }
  }
}
