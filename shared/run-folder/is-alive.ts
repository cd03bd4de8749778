import { readFileSync } from 'node:fs';

/** Fields of `/proc/<pid>/stat` after the name, which may hold spaces and brackets: state, and ticks from boot to start. */
const STATE_FIELD = 0;
const START_FIELD = 19;
/** State of a process that has ended before its parent has noticed. */
const ZOMBIE = 'Z';

/** The fields of a process behind its name; undefined where it is gone, or the system has no `/proc`. */
function readStat(pid: number): readonly string[] | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
    return stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  } catch {
    return undefined;
  }
}

/**
 * When a process started, in clock ticks since the machine booted, which distinguishes it from a later one with the same number; null where
 * it is gone, or the system has no `/proc`.
 */
export function processStart(pid: number): string | null {
  return readStat(pid)?.[START_FIELD] ?? null;
}

/**
 * Whether this machine has a process of this number, that of another user included, which has not ended.
 * @param start of the process that is meant, from {@link processStart}; without it any process of that number counts
 */
export function isAlive(pid: number, start: string | null = null): boolean {
  try {
    process.kill(pid, 0);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EPERM') return false;
  }
  const stat = readStat(pid);
  if (stat === undefined) return true;
  return stat[STATE_FIELD] !== ZOMBIE && (start === null || stat[START_FIELD] === start);
}
