import { readFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { isAlive } from '../../../shared/dashboard/is-alive.ts';
import { type RunStatus, SILENT_MS } from '../../../shared/dashboard/run-files.ts';
import type { RunFolder } from './run-folder.ts';

/** @throws Error where another process on this machine trains the run: both would write to the same files */
export function refuseRunning(run: Pick<RunFolder, 'path' | 'status'>): void {
  const status = readStatus(run.status);
  if (status?.state !== 'running' || status.host !== hostname() || status.pid === process.pid) return;
  // A number that was silent for long may be somebody else's by now.
  if (Date.now() - Date.parse(status.updated_at) > SILENT_MS || !isAlive(status.pid)) return;
  throw new Error(
    `process ${status.pid} is training the run in ${run.path}: wait for it or stop it, or begin another run with run.name`,
  );
}

function readStatus(file: string): RunStatus | undefined {
  try {
    return JSON.parse(readFileSync(file, 'utf8')) as RunStatus;
  } catch {
    return undefined;
  }
}
