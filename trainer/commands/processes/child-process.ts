import { type ChildProcess, spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { STARTED_BY_VARIABLE } from '../train/run-failure.ts';

/** Exit status of a program ended by a signal: 128 + SIGTERM. */
export const KILLED_STATUS = 143;

/**
 * One of our programs in a separate process, outside our process group: Ctrl-C reaches it only through us. Its channel
 * to us closes when we exit for any reason, and the program then ends.
 */
export interface ChildProgram {
  readonly pid: number;
  /** Its exit status, once it has ended. */
  readonly ended: Promise<number>;
  /** Asks it to stop. */
  stop(): void;
  /** Kills it. */
  kill(): void;
}

/** The handle of a process started with a channel. */
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
 * Starts the command `train` in our terminal.
 * @param startedBy the user's command that continues with it
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
