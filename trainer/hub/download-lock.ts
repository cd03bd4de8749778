import { setTimeout as sleep } from 'node:timers/promises';
import { lock } from 'proper-lockfile';
import { HubError } from './hub-error.ts';

/** A process that has not renewed its lock for so long is gone. */
const STALE_LOCK_MS = 20_000;
const RETRY_MS = 500;
const LONGEST_WAIT_MS = 3_600_000;

export interface LockOptions {
  /** Path of the lock itself. */
  readonly lockfilePath: string;
  /** The file and model, for notes and errors. */
  readonly what: string;
  /** Ends the wait. */
  readonly signal?: AbortSignal;
  /** Called once where another process has the lock. */
  readonly note: (text: string) => void;
}

/**
 * Locks a file against other processes and waits, for up to an hour, where another one has it.
 * @returns what gives the lock back
 * @throws HubError after an hour; AbortError, or the signal's reason, once it is aborted
 */
export async function lockFile(
  path: string,
  { lockfilePath, what, signal, note }: LockOptions,
): Promise<() => Promise<void>> {
  for (let waitedMs = 0; ; waitedMs += RETRY_MS) {
    signal?.throwIfAborted();
    try {
      return await lock(path, { realpath: false, lockfilePath, stale: STALE_LOCK_MS, retries: 0 });
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ELOCKED') throw error;
      if (waitedMs >= LONGEST_WAIT_MS) {
        throw new HubError(
          `another process has been downloading ${what} for an hour: end it, or remove ${lockfilePath}, then start again`,
          { cause: error },
        );
      }
      if (waitedMs === 0) note(`another process is downloading ${what}: waiting for it (${lockfilePath})`);
      await sleep(RETRY_MS, undefined, { signal });
    }
  }
}
