import { Problem } from '../problems.ts';
import { MAX_REMEMBERED } from '../store/unwritten-ends.ts';

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
