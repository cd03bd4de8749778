import { readdir, readFile } from 'node:fs/promises';

/** Searches until nothing is found, at most: a process may fork while the others are searched. */
const MAX_SEARCHES = 10;
const PID = /^[1-9]\d*$/;

/**
 * Kills the processes of this user that have a variable in their environment, wherever they moved: a process keeps the
 * environment that its program was started with over `setsid` and forks. One that starts another program with an empty
 * environment is not found. Does nothing where there is no `/proc`.
 */
export async function killMarked(name: string, value: string): Promise<void> {
  const mark = `${name}=${value}`;
  for (let left = MAX_SEARCHES; left > 0; left--) {
    const pids = (await readdir('/proc').catch(() => [])).filter(entry => PID.test(entry));
    const found = await Promise.all(pids.map(pid => hasMark(pid, mark)));
    if (!found.includes(true)) return;
    for (const pid of pids.filter((_, i) => found[i])) kill(Number(pid));
  }
}

async function hasMark(pid: string, mark: string): Promise<boolean> {
  // Processes of others, and those that ended, have none that can be read.
  const text = await readFile(`/proc/${pid}/environ`, 'latin1').catch(() => '');
  return text.split('\0').includes(mark);
}

function kill(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // It has ended, or became another user's.
  }
}
