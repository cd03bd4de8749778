import type { ChildProcess } from 'node:child_process';

/** Exit status of a program that a signal ended: 128 + SIGTERM. */
const KILLED_STATUS = 143;

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
