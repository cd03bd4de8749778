import type { JournalRecord } from './records.ts';
import type { JournalFault, JournalPosition, ReplayFindings } from './replay.ts';

/** Verdict on a record: what replaying does with it. */
export type ContinuityVerdict = 'apply' | 'covered' | 'ignored';

interface Progress {
  /** Number of the last record that is in the session. */
  n: number;
  position: JournalPosition | undefined;
  gap: JournalPosition | undefined;
}

/**
 * Follows the records of each session by their numbers: which are to be applied, and which sessions stand before what
 * their clients have seen, because records are missing.
 */
export class SessionContinuity {
  readonly #sessions = new Map<string, Progress>();

  /** A session as the database has it. */
  covers(sessionId: string, n: number): void {
    this.#sessions.set(sessionId, { n, position: undefined, gap: undefined });
  }

  /**
   * `covered`: the session has it already, or it was there twice. `ignored`: a record before it is missing. Records of
   * sessions that were neither in the database nor opened in the journal are ignored, too.
   */
  verdict({ kind, sessionId, n }: JournalRecord, position: JournalPosition): ContinuityVerdict {
    if (kind === 'clientReply') return 'apply';
    let progress = this.#sessions.get(sessionId);
    if (!progress) {
      progress = { n: 0, position: undefined, gap: undefined };
      this.#sessions.set(sessionId, progress);
    }
    if (progress.gap) return 'ignored';
    if (n <= progress.n) return 'covered';
    if (n > progress.n + 1) {
      progress.gap = position;
      return 'ignored';
    }
    progress.n = n;
    progress.position = position;
    return 'apply';
  }

  /**
   * Sessions that stand, or may stand, before what their clients saw last: records of theirs are missing; or damage
   * came after their last record, and the session of the damaged record is unknown. Call it when all was replayed.
   * A request for such a session gets `session_rolled_back`.
   */
  behind({ faults, incomplete }: ReplayFindings): Set<string> {
    const behind = new Set<string>();
    const damage = faults.filter(({ kind }) => kind !== 'torn');
    for (const [id, progress] of this.#sessions) {
      if (progress.gap || incomplete !== undefined) behind.add(id);
      else if (damage.some(fault => mayConcern(fault, id, progress, this.#sessions))) behind.add(id);
    }
    return behind;
  }
}

function mayConcern(
  fault: JournalFault,
  id: string,
  { position }: Progress,
  sessions: ReadonlyMap<string, unknown>,
): boolean {
  const named = fault.sessionId !== undefined && sessions.has(fault.sessionId);
  if (named && fault.sessionId !== id) return false;
  return position === undefined || isBefore(position, fault);
}

/** Segments are named in the order in which they were begun. */
function isBefore(a: JournalPosition, b: JournalPosition): boolean {
  return a.file === b.file ? a.offset < b.offset : a.file < b.file;
}
