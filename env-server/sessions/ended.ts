import { Problem } from '../problems.ts';

/** Ids of ended sessions that are remembered at most. */
export const MAX_REMEMBERED = 200_000;

/** Reason for the end of a session; the code of the problem that answers its id from then on. */
export type EndReason = 'session_expired' | 'session_closed' | 'session_lost';

export interface EndedSession {
  readonly id: string;
  readonly owner: string;
  readonly ending: EndReason;
  /** Why it was lost. */
  readonly reason: string | null;
  /** Milliseconds since the epoch. */
  readonly forgetAt: number;
}

/** Remembers for a while which sessions ended, and how. */
export class EndedSessions {
  readonly #ended = new Map<string, EndedSession>();
  #assumedLostUntil = 0;

  remember(ended: EndedSession): void {
    if (this.#ended.size >= MAX_REMEMBERED) {
      const [oldest] = this.#ended.keys();
      this.#ended.delete(oldest);
    }
    this.#ended.set(ended.id, ended);
  }

  /** Until then, what nobody knows is taken for lost with the process that kept it. */
  assumeLost(until: number): void {
    this.#assumedLostUntil = until;
  }

  /** Problem of a request for a session which is not open. */
  problem(owner: string, id: string, now: number): Problem {
    const ended = this.#ended.get(id);
    if (!ended || ended.owner !== owner || ended.forgetAt <= now) {
      if (!ended && this.#assumedLostUntil > now) {
        return new Problem(
          'session_lost',
          `session ${id} is not known (any more): the process that kept it ended without warning, and what it had not stored is lost`,
        );
      }
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

  /** Forgets what ended long ago. */
  forget(now: number): void {
    for (const [id, ended] of this.#ended) {
      if (ended.forgetAt > now) break;
      this.#ended.delete(id);
    }
  }
}
