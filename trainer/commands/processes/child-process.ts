import { type ChildProcess, spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { STARTED_BY_VARIABLE } from '../train/run-failure.ts';

/** Exit status of a program that a signal ended: 128 + SIGTERM. */
export const KILLED_STATUS = 143;

/**
 * A program of ours in a separate process, outside our process group: Ctrl-C reaches it only through us. A channel to us
 * closes when we are gone for any reason, and the program ends.
 */
export interface ChildProgram {
  readonly pid: number;
  /** Its exit status, once it has ended. */
  readonly ended: Promise<number>;
  /** Asks it to end. */
  stop(): void;
  /** Ends it at once. */
  kill(): void;
}

/** The handle of a process that was started with a channel. */
export function childOf(process: ChildProcess): ChildProgram {
  const ended = new Promise<number>((resolve, reject) => {
    process.once('error', reject);
    process.once('exit', code => resolve(code ?? KILLED_STATUS));
  });
  return {
    pid: process.pid ?? -1,
    ended,
    stop: () => process.kill('SIGTERM'),
    kill: () => process.kill('SIGKILL'),
  };
}

const TRAINER = fileURLToPath(new URL('../../main.ts', import.meta.url));

/**
 * Starts the command `train` with our terminal.
 * @param startedBy the command of the user that continues with it
 */
export function startTrainer(args: readonly string[], startedBy: string): ChildProgram {
  return childOf(
    spawn(process.execPath, [TRAINER, 'train', ...args], {
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
      detached: true,
      env: { ...process.env, [STARTED_BY_VARIABLE]: startedBy },
    }),
  );
}
