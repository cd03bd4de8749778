import { closeSync, constants, fstatSync, openSync, readdirSync, readFileSync, unlinkSync } from 'node:fs';
import { join } from 'node:path';
import { attempted } from '../../../shared/json.ts';
import {
  CONTROL_FOLDER,
  type ControlCommand,
  controlProblem,
  isCommandFile,
  MAX_CONTROL_BYTES,
  MAX_REMEMBERED_COMMANDS,
  MAX_WAITING_COMMANDS,
  type Schedule,
} from '../../../shared/run-folder/requests.ts';
import type { Progress } from '../../tracking/progress.ts';

/** Interval between checks for commands. */
const LOOK_EVERY_MS = 500;
/** Neither follows a link nor waits for the writer of a pipe. */
const READ_FLAGS = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;

/** Commands to a running trainer. */
export interface RunCommands {
  /** Changes to the settings of `training` so far. */
  readonly schedule: Schedule;
  /** True once for each requested checkpoint. */
  takeCheckpointRequest(): boolean;
}

/**
 * Reads the commands that pages write into a run folder, and carries out each once: `stop` works like Ctrl-C,
 * `checkpoint` after the step in progress, `schedule` from then on. Everyone with write access to the folder may send
 * them. Other files are removed with a warning.
 */
export class RunControl implements RunCommands, Disposable {
  readonly #folder: string;
  readonly #session: string;
  readonly #progress: Pick<Progress, 'note' | 'warn'>;
  readonly #stop = new AbortController();
  readonly #timer: NodeJS.Timeout;
  /** Ids of the latest commands that were carried out. */
  readonly #done = new Set<string>();
  #schedule: Schedule = {};
  #checkpoint = false;

  /** @param session `started_at` in the status of the run */
  constructor(path: string, session: string, progress: Pick<Progress, 'note' | 'warn'>) {
    this.#folder = join(path, CONTROL_FOLDER);
    this.#session = session;
    this.#progress = progress;
    this.#timer = setInterval(() => this.look(), LOOK_EVERY_MS).unref();
  }

  /** Aborted by the command `stop`. */
  get signal(): AbortSignal {
    return this.#stop.signal;
  }

  get schedule(): Schedule {
    return this.#schedule;
  }

  takeCheckpointRequest(): boolean {
    const asked = this.#checkpoint;
    this.#checkpoint = false;
    return asked;
  }

  /** Carries out waiting commands. A folder that cannot be read has no commands. */
  look(): void {
    const names = attempted(() => readdirSync(this.#folder)) ?? [];
    for (const name of names.filter(isCommandFile).sort().slice(0, MAX_WAITING_COMMANDS)) this.#take(name);
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
  }

  #take(name: string): void {
    const id = name.slice(0, -'.json'.length);
    if (this.#done.has(id)) return;
    this.#done.add(id);
    if (this.#done.size > MAX_REMEMBERED_COMMANDS) this.#done.delete(this.#done.values().next().value!);
    const file = join(this.#folder, name);
    const command = readCommand(file);
    try {
      unlinkSync(file);
    } catch {
      // It cannot be removed, and is skipped from now on.
    }
    if (typeof command === 'string') this.#progress.warn(`${file} is not a command: ${command}`);
    else if (command.id !== id) this.#progress.warn(`${file} is not a command: its \`id\` is ${command.id}`);
    // A command to an earlier session of the run does not apply to this one.
    else if (command.session === this.#session) this.#obey(command);
  }

  #obey({ action, schedule }: ControlCommand): void {
    switch (action) {
      case 'stop':
        this.#progress.note('asked by a page: stopping with a checkpoint');
        this.#stop.abort(new DOMException('asked to stop', 'AbortError'));
        break;
      case 'checkpoint':
        this.#progress.note('asked by a page: a checkpoint after this step');
        this.#checkpoint = true;
        break;
      case 'schedule': {
        this.#schedule = { ...this.#schedule, ...schedule };
        const changes = Object.entries(schedule!).map(([key, value]) => `training.${key}=${value}`);
        this.#progress.note(`asked by a page, until the run ends: ${changes.join(' ')}`);
      }
    }
  }
}

/** A command; a text says what is wrong with it. */
function readCommand(file: string): ControlCommand | string {
  let handle: number;
  try {
    handle = openSync(file, READ_FLAGS);
  } catch (error) {
    return (error as Error).message;
  }
  try {
    const stats = fstatSync(handle);
    if (!stats.isFile()) return 'it is not a regular file';
    if (stats.size > MAX_CONTROL_BYTES) return `it has more than ${MAX_CONTROL_BYTES} bytes`;
    const value: unknown = JSON.parse(readFileSync(handle, 'utf8'));
    return controlProblem(value) ?? (value as ControlCommand);
  } catch (error) {
    return (error as Error).message;
  } finally {
    closeSync(handle);
  }
}
