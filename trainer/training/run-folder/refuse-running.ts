import { readFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { HEARTBEAT_S, type RunStatus } from '../../../shared/dashboard/run-files.ts';
import type { RunFolder } from './run-folder.ts';

/** A process with no sign of life for so long is taken for gone, whoever has its number now. */
const SILENCE_MS = 6 * HEARTBEAT_S * 1000;

/** @throws Error where another process on this machine trains the run: both would write to the same files */
export function refuseRunning(run: Pick<RunFolder, 'path' | 'status'>): void {
  const status = readStatus(run.status);
  if (status?.state !== 'running' || status.host !== hostname() || status.pid === process.pid) return;
  if (Date.now() - Date.parse(status.updated_at) > SILENCE_MS || !isAlive(status.pid)) return;
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

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}
