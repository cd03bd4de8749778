import { type ChildProcess, spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';

// It imports nothing of the product: `npm start` loads it before it prints its first line.

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

const MAIN = fileURLToPath(new URL('../../main.ts', import.meta.url));

/**
 * Starts the command `train` in our terminal.
 * @param startedBy the user's command that continues with it
 */
export function startTrainer(args: readonly string[], startedBy: string): ChildProgram {
  return childOf(
    spawn(process.execPath, [MAIN, 'train', ...args], {
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
      detached: true,
      env: { ...process.env, [STARTED_BY_VARIABLE]: startedBy },
    }),
  );
}

/** Programs of the product that start a trainer set it to the user's command. */
export const STARTED_BY_VARIABLE = 'RAGEN_STARTED_BY';

const STOP_SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
/** Exit status of a program ended by Ctrl-C: 128 + SIGINT. */
export const INTERRUPTED_STATUS = 130;
/**
 * Signals this close together are one request: a terminal and npm each pass Ctrl-C on, and then the parent is gone as
 * well.
 */
const BURST_MS = 1000;
/** True for a program that a parent process started with a channel. */
const HAD_CHANNEL = process.connected;

/** A program's stop signal; disposing of it restores the default effect of the process's signals. */
export interface StopRequests extends Disposable {
  /** Aborted at the first request. */
  readonly signal: AbortSignal;
}

/**
 * Makes a signal that is aborted when the program is asked to stop: by Ctrl-C, SIGTERM, a closed terminal, or the end
 * of the parent process that kept a channel to it.
 * @param onFirst called on the first request
 * @param onAgain called on each signal from a second later on; by default it ends the process at once
 */
export function stopRequests(onFirst: () => void, onAgain: () => void = endNow): StopRequests {
  const controller = new AbortController();
  let askedAt = 0;
  const stop = () => {
    if (controller.signal.aborted) return;
    askedAt = performance.now();
    controller.abort(new DOMException('asked to stop', 'AbortError'));
    onFirst();
  };
  const onSignal = () => {
    if (controller.signal.aborted && performance.now() - askedAt >= BURST_MS) onAgain();
    else stop();
  };
  for (const name of STOP_SIGNALS) process.on(name, onSignal);
  if (process.connected) process.once('disconnect', stop);
  // The parent ended while the program was loading.
  else if (HAD_CHANNEL) setImmediate(stop);
  // Listening would keep the program alive as long as its parent.
  process.channel?.unref();
  return {
    signal: controller.signal,
    [Symbol.dispose]() {
      for (const name of STOP_SIGNALS) process.off(name, onSignal);
      process.off('disconnect', stop);
    },
  };
}

/**
 * Ends the process by SIGINT, which the shell shows as {@link INTERRUPTED_STATUS}. `process.exit` would stop worker
 * threads inside calls of ONNX Runtime, which then reports a `Napi::Error` and aborts.
 */
function endNow(): void {
  process.emit('exit', INTERRUPTED_STATUS);
  for (const name of STOP_SIGNALS) process.removeAllListeners(name);
  process.kill(process.pid, 'SIGINT');
  // Only reached as the first process of a container: the kernel keeps unhandled signals from it.
  process.exit(INTERRUPTED_STATUS);
}
