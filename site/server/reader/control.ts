import { randomBytes } from 'node:crypto';
import { constants } from 'node:fs';
import { link, lstat, mkdir, open, readdir, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import {
  CONTROL_FOLDER,
  type ControlCommand,
  isCommandFile,
  MAX_REMEMBERED_COMMANDS,
  MAX_WAITING_COMMANDS,
} from '../../../shared/run-folder/control.ts';
import { RUN_FILES, type RunStatus } from '../../../shared/run-folder/run-files.ts';
import { type FoundRun, readRunJson } from './run-folders.ts';
import { MAX_STATUS_BYTES } from './runs-table.ts';

/** Never an existing file, and never through a link. */
const NEW_FILE = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;

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
    const status = (await readRunJson(run, MAX_STATUS_BYTES, RUN_FILES.status)) as
      | Partial<RunStatus>
      | undefined;
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
    if (!(await lstat(folder)).isDirectory())
      throw Object.assign(new Error('no folder'), { code: 'ENOTDIR' });
    if ((await readdir(folder)).filter(isCommandFile).length >= MAX_WAITING_COMMANDS)
      throw new ControlRefused(
        `${MAX_WAITING_COMMANDS} commands wait for the trainer already: it does not read them, or is an earlier version`,
      );
    await writeNew(folder, command);
    this.#sent.add(key);
    if (this.#sent.size > MAX_REMEMBERED_COMMANDS) this.#sent.delete(this.#sent.values().next().value!);
  }
}

/** The whole file appears at once, and never takes the place of another one. */
async function writeNew(folder: string, command: ControlCommand): Promise<void> {
  const partial = join(folder, `${randomBytes(6).toString('hex')}.partial`);
  const file = await open(partial, NEW_FILE, 0o644);
  try {
    await file.writeFile(`${JSON.stringify(command)}\n`);
    await file.close();
    await link(partial, join(folder, `${command.id}.json`));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST')
      throw new ControlRefused(`the command ${command.id} was sent before`);
    throw error;
  } finally {
    await file.close().catch(() => undefined);
    await unlink(partial).catch(() => undefined);
  }
}
