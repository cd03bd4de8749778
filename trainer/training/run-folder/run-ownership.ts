import { readFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { lockSync } from 'proper-lockfile';
import { isAlive } from '../../../shared/run-folder/is-alive.ts';
import { type RunStatus, SILENT_MS } from '../../../shared/run-folder/run-files.ts';
import type { RunFolder } from './run-folder.ts';

/**
 * Makes a run this process's own: of several that begin at once, one comes to `begin`.
 * @param begin writes the status that names this process
 * @throws Error where another process on this machine trains the run: both would write to the same files
 */
export function ownRun<T>(run: Pick<RunFolder, 'path' | 'status'>, begin: () => T): T {
  const release = startAlone(run.path);
  try {
    refuseRunning(run);
    return begin();
  } finally {
    release();
  }
}

/** @returns lets others start. @throws Error while another process is between its look at the status and writing its own */
function startAlone(path: string): () => void {
  try {
    return lockSync(path, { lockfilePath: join(path, 'starting.lock'), realpath: false });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ELOCKED') throw error;
    throw new Error(
      `another process is just about to train the run in ${path}: begin another run with run.name, or try again in ten seconds`,
      { cause: error },
    );
  }
}

function refuseRunning(run: Pick<RunFolder, 'path' | 'status'>): void {
  const status = readStatus(run.status);
  if (status?.state !== 'running' || status.host !== hostname() || status.pid === process.pid) return;
  const { pid, pid_start = null, updated_at } = status;
  if (!isAlive(pid, pid_start)) return;
  // Without its start, a number that was silent for long may be another process's by now.
  if (pid_start === null && Date.now() - Date.parse(updated_at) > SILENT_MS) return;
  throw new Error(
    `process ${pid} is training the run in ${run.path}: wait for it or stop it, or begin another run with run.name`,
  );
}

function readStatus(file: string): RunStatus | undefined {
  try {
    return JSON.parse(readFileSync(file, 'utf8')) as RunStatus;
  } catch {
    return undefined;
  }
}
