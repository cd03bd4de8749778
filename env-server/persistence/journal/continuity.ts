import type { JournalRecord, ReplayedRecord } from './records.ts';

/** Position of a record. */
export interface JournalPosition {
  /** Name of the file. */
  readonly file: string;
  /** Number of the turn in it; in a segment of an earlier server, the byte offset. */
  readonly offset: number;
}

/** An unreadable part of the journal. */
export interface JournalFault extends JournalPosition {
  /**
   * `cut`: the file has lost its end, although the machine did not go down. `missing`: the file is gone. `corrupt`:
   * bytes were changed. `unreadable`: the file cannot be read, or its format is unknown. `torn`, in segments of earlier
   * servers: a record is incomplete, because the process died in the middle of a write; no reply had left for it.
   */
  readonly kind: 'torn' | 'cut' | 'missing' | 'corrupt' | 'unreadable';
  /** Sessions of the records, where all of them can be identified. */
  readonly sessionIds?: readonly string[];
  readonly reason?: string;
}

/** Findings of a replay besides records. */
export interface ReplayFindings {
  readonly faults: JournalFault[];
  /**
   * Reason why the last records of any session may be missing although no damage shows it; undefined where none can be.
   */
  incomplete: string | undefined;
}

export interface PositionedRecord {
  readonly record: ReplayedRecord;
  readonly position: JournalPosition;
}

/** Verdict on a record in a replay. */
export type ContinuityVerdict = 'apply' | 'covered' | 'ignored';

interface Progress {
  /** Number of the last applied record of the session. */
  n: number;
  position: JournalPosition | undefined;
  gap: JournalPosition | undefined;
}

/**
 * Tracks the record numbers of each session: which records are to be applied, and which sessions are behind what their
 * clients have seen, because records are missing.
 */
export class SessionContinuity {
  readonly #sessions = new Map<string, Progress>();

  /** A session in the database. */
  covers(sessionId: string, n: number): void {
    this.#sessions.set(sessionId, { n, position: undefined, gap: undefined });
  }

  /**
   * `covered`: the session already includes it, or it is a duplicate. `ignored`: a record before it is missing. Records
   * of sessions that were neither in the database nor opened in the journal are ignored, too.
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
   * Sessions that are, or may be, behind what their clients saw last: their records are missing; or damage followed
   * their last record, and the sessions of the damaged records are unknown. Call it after the replay. A request for
   * such a session gets `session_rolled_back`.
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
  const { sessionIds } = fault;
  const named = sessionIds?.every(each => sessions.has(each)) ?? false;
  if (named && !sessionIds!.includes(id)) return false;
  return position === undefined || isBefore(position, fault);
}

/** Files are named in creation order. */
function isBefore(a: JournalPosition, b: JournalPosition): boolean {
  return a.file === b.file ? a.offset < b.offset : a.file < b.file;
}
