import { type ChildProcess, spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { TRAINER } from '../../../shared/program.ts';
import { shellWord } from '../../../shared/shell-word.ts';
import { ServerProblem } from '../../client/retry.ts';
import { latestCheckpoint } from '../../training/run-folder/checkpoint.ts';
import { latestRun, openRunFolder, type RunFolder } from '../../training/run-folder/run-folder.ts';
import { readWarmStart, shownPosition } from '../../training/supervised/warm-start.ts';

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

/** Programs of the product that start a trainer set it to the user's command. */
export const STARTED_BY_VARIABLE = 'RAGEN_STARTED_BY';

/** The command that continues a run: the user's, if another program of the product started this one. */
export function resumeCommand(run: string, overrides: readonly string[] = []): string {
  return process.env[STARTED_BY_VARIABLE] ?? commandOf('train', ['--resume', run, ...overrides]);
}

/** A trainer command as the user types it. */
export function commandOf(name: string, words: readonly string[]): string {
  return [TRAINER, name, ...words.map(shellWord)].join(' ');
}

const NO_ROOM: ReadonlySet<string> = new Set(['ENOSPC', 'EDQUOT']);
/** Reasons why a file can suddenly not be written or read. */
const NO_ACCESS: ReadonlySet<string> = new Set(['EROFS', 'ENOENT', 'EACCES', 'EPERM', 'EIO', 'ENOTDIR']);

/**
 * The cause of a run's end, with the path concerned and the command that continues.
 * @param command continues the run, or starts it again
 */
export function runFailure(error: unknown, run: Pick<RunFolder, 'path'>, command: string): Error {
  const { name } = error as Error;
  if (name === 'ConfigError' || name === 'AbortError') return error as Error;
  return new Error(`${faultOf(error as Error, run)}; then continue with: ${command}`, { cause: error });
}

/** The message, with what to do where that is known. */
function faultOf(error: Error, run: Pick<RunFolder, 'path'>): string {
  const { message } = error;
  const { code = '', path = run.path } = systemErrorOf(error) ?? {};
  if (NO_ROOM.has(code)) return `no room is left on the disk of ${path} (${message}): make room`;
  if (NO_ACCESS.has(code))
    return `${path} cannot be used (${message}): see that its disk is there and can be written`;
  if (error instanceof ServerProblem && error.code === 'unknown_environment')
    return `${message}; register it again (a server without --data keeps no registrations)`;
  return message;
}

/** The operating system's error among an error and its causes. */
function systemErrorOf(error: unknown): NodeJS.ErrnoException | undefined {
  for (let at = error; at instanceof Error; at = at.cause) {
    const { code } = at as NodeJS.ErrnoException;
    if (code !== undefined && (NO_ROOM.has(code) || NO_ACCESS.has(code))) return at;
  }
  return undefined;
}

interface UnfinishedRun {
  readonly path: string;
  /** The position from which it resumes, in words. */
  readonly position: string;
}

/** The newest unfinished run named `name` or `name-NNN` in a folder that has saved something. */
export function unfinishedRun(folder: string, name: string): UnfinishedRun | undefined {
  const path = latestRun(folder, name);
  if (path === undefined) return undefined;
  const { run, settings } = openRunFolder(path);
  const checkpoint = latestCheckpoint(run);
  if (checkpoint) {
    const { step } = checkpoint.state;
    return step < settings.training.steps ? { path, position: `at step ${step}` } : undefined;
  }
  const warmStart = readWarmStart(run);
  if (!warmStart) return undefined;
  return { path, position: shownPosition(warmStart.state) };
}
