import { readFileSync } from 'node:fs';

/** Fields of `/proc/<pid>/stat` behind the name, which may hold spaces and brackets: the state is the first. */
const START_FIELD = 19;

/**
 * When a process started, in clock ticks since the machine booted, which tells it from a later one with the same number; null where
 * it is gone, or the system has no `/proc`.
 */
export function processStart(pid: number): string | null {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
    return stat.slice(stat.lastIndexOf(')') + 2).split(' ')[START_FIELD] ?? null;
  } catch {
    return null;
  }
}

/**
 * Whether this machine has a process of this number, that of another user included.
 * @param start of the process that is meant, from {@link processStart}; without it any process of that number counts
 */
export function isAlive(pid: number, start: string | null = null): boolean {
  try {
    process.kill(pid, 0);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EPERM') return false;
  }
  const now = start === null ? null : processStart(pid);
  return now === null || now === start;
}
