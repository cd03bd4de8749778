import { randomBytes } from 'node:crypto';
import { constants } from 'node:fs';
import { link, lstat, mkdir, open, readdir, rename, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import {
  type Annotations,
  annotationsProblem,
  CONTROL_FOLDER,
  type ControlCommand,
  isCommandFile,
  MAX_ANNOTATIONS_BYTES,
  MAX_REMEMBERED_COMMANDS,
  MAX_WAITING_COMMANDS,
  NO_ANNOTATIONS,
} from '../../../shared/run-folder/requests.ts';
import { RUN_FILES } from '../../../shared/run-folder/run-files.ts';
import { type FoundRun, readRunJson, readStatus } from './run-folders.ts';

/** Never an existing file, and never through a link. */
const NEW_FILE = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;

/**
 * Writes a file that appears as a whole under its name.
 * @param appear gives the complete temporary file its name
 * @throws Error of the file system
 */
async function writeWhole(
  folder: string,
  value: object,
  appear: (partial: string) => Promise<void>,
): Promise<void> {
  if (!(await lstat(folder)).isDirectory()) throw Object.assign(new Error('no folder'), { code: 'ENOTDIR' });
  const partial = join(folder, `${randomBytes(6).toString('hex')}.partial`);
  const file = await open(partial, NEW_FILE, 0o644);
  try {
    await file.writeFile(`${JSON.stringify(value)}\n`);
    await file.close();
    await appear(partial);
  } finally {
    await file.close().catch(() => undefined);
    await unlink(partial).catch(() => undefined);
  }
}

/** Tags, notes and archive marks of runs: files are read again only when they have changed. */
export class RunAnnotations {
  readonly #known = new Map<string, { readonly changedMs: number; readonly value: Annotations }>();

  async of(run: FoundRun): Promise<Annotations> {
    const { annotatedMs } = run;
    if (annotatedMs === undefined) return NO_ANNOTATIONS;
    const known = this.#known.get(run.id);
    if (known?.changedMs === annotatedMs) return known.value;
    const read = await readRunJson(run, MAX_ANNOTATIONS_BYTES, RUN_FILES.annotations);
    const value = annotationsProblem(read) === undefined ? (read as Annotations) : NO_ANNOTATIONS;
    this.#known.set(run.id, { changedMs: annotatedMs, value });
    return value;
  }

  /**
   * Replaces the annotations of a run.
   * @throws Error of the file system
   */
  async write(run: FoundRun, { tags, note, archived }: Annotations): Promise<void> {
    await writeWhole(run.path, { tags, note, archived }, partial =>
      rename(partial, join(run.path, RUN_FILES.annotations)),
    );
  }

  forget(id: string): void {
    this.#known.delete(id);
  }
}

/** A command that was not passed on, with the reason. */
export class ControlRefused extends Error {}

/** Commands to trainers: files in the folders of their runs. */
export class RunControl {
  /** Ids that were passed on, the latest of them. */
  readonly #sent = new Set<string>();

  /**
   * Passes a command on to the trainer of a run.
   * @throws ControlRefused for a run that is not running, another session's command, one that was sent before, and too many; Error of
   *   the file system
   */
  async send(run: FoundRun, command: ControlCommand): Promise<void> {
    const status = await readStatus(run);
    if (status?.state !== 'running') throw new ControlRefused('the run is not in progress');
    if (status.started_at !== command.session)
      throw new ControlRefused(
        `the command is for the session of ${command.session}, the present one began at ${status.started_at}`,
      );
    const key = `${run.id}\n${command.id}`;
    if (this.#sent.has(key)) throw new ControlRefused(`the command ${command.id} was sent before`);
    const folder = join(run.path, CONTROL_FOLDER);
    await mkdir(folder).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'EEXIST') throw error;
    });
    if ((await readdir(folder)).filter(isCommandFile).length >= MAX_WAITING_COMMANDS)
      throw new ControlRefused(
        `${MAX_WAITING_COMMANDS} commands wait for the trainer already: it does not read them, or is an earlier version`,
      );
    // The file never takes the place of another one.
    await writeWhole(folder, command, partial => link(partial, join(folder, `${command.id}.json`))).catch(
      (error: NodeJS.ErrnoException) => {
        throw error.code === 'EEXIST'
          ? new ControlRefused(`the command ${command.id} was sent before`)
          : error;
      },
    );
    this.#sent.add(key);
    if (this.#sent.size > MAX_REMEMBERED_COMMANDS) this.#sent.delete(this.#sent.values().next().value!);
  }
}
