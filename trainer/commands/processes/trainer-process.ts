import { TRAINER } from '../../../shared/program.ts';
import { shellWord } from '../../../shared/text.ts';
import { ServerProblem, ServerUnavailable } from '../../client/retry.ts';
import { latestCheckpoint } from '../../training/run-folder/checkpoint.ts';
import { latestRun, openRunFolder, type RunFolder } from '../../training/run-folder/run-folder.ts';
import { readWarmStart, shownPosition } from '../../training/supervised/warm-start.ts';
import { STARTED_BY_VARIABLE } from './child-program.ts';

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
  if (error instanceof ServerUnavailable) return `${message}. Start it again`;
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
