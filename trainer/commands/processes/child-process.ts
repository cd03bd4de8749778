import { type ChildProcess, spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { readLogLine } from '../../../shared/log-text.ts';
import { STARTED_BY_VARIABLE } from '../train/run-failure.ts';

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

const TRAINER = fileURLToPath(new URL('../../main.ts', import.meta.url));

/**
 * Starts the command `train` with our terminal.
 * @param startedBy the command of the user that goes on with it
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

const ENV_SERVER = fileURLToPath(new URL('../../../env-server/main.ts', import.meta.url));
const LISTENING = /listening on (http:\/\/\S+)/;

/**
 * Starts an environment server on its default port, or a free one where that is taken.
 * @throws Error with what the server said when it does not come up
 */
export async function startEnvServer(
  args: readonly string[] = [],
): Promise<{ readonly child: ChildProgram; readonly url: string }> {
  const server = spawn(process.execPath, [ENV_SERVER, ...args], {
    stdio: ['ignore', 'pipe', 'inherit', 'ipc'],
    detached: true,
  });
  const child = childOf(server);
  const url = await new Promise<string>((found, reject) => {
    createInterface({ input: server.stdout! }).on('line', line => {
      const match = LISTENING.exec(line);
      if (match) found(match[1]);
      const record = readLogLine(line);
      if (record?.isWarning) process.stderr.write(`\r\x1b[Kserver ${record.text}\n`);
    });
    child.ended.then(status =>
      reject(new Error(`the environment server ended with status ${status}; see above`)),
    );
  });
  return { child, url };
}
