import { readFileSync } from 'node:fs';
import { attempted } from '../json.ts';

/**
 * Fields of `/proc/<pid>/stat` after the name (which may contain spaces and parentheses): state, and ticks from boot to
 * start.
 */
const STATE_FIELD = 0;
const START_FIELD = 19;
/** State of a zombie: the process has ended, but its parent has not reaped it. */
const ZOMBIE = 'Z';

/** Fields of a process after its name; undefined when it is gone or the system has no `/proc`. */
function readStat(pid: number): readonly string[] | undefined {
  const stat = attempted(() => readFileSync(`/proc/${pid}/stat`, 'latin1'));
  return stat?.slice(stat.lastIndexOf(')') + 2).split(' ');
}

/**
 * When a process started, in clock ticks since boot, which distinguishes it from a later process with the same number; null
 * when it is gone or the system has no `/proc`.
 */
export function processStart(pid: number): string | null {
  return readStat(pid)?.[START_FIELD] ?? null;
}

/**
 * True if this machine runs a process with this number, under any user.
 * @param start start time of the process that is meant, from {@link processStart}; without it any process with that
 * number counts
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
