import { type ChildProcess, spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

const ENV_SERVER = fileURLToPath(new URL('../../env-server/main.ts', import.meta.url));
const TRAINER = fileURLToPath(new URL('../main.ts', import.meta.url));
const LISTENING = /listening on (http:\/\/\S+)/;
/** Exit status of a program that a signal ended: 128 + SIGTERM. */
const KILLED_STATUS = 143;

/**
 * A program of ours in a process of its own, outside our process group: Ctrl-C reaches it only through us. A channel to us
 * tells it when we are gone, in whatever way, and it ends.
 */
export interface Child {
  readonly pid: number;
  /** Its exit status, once it has ended. */
  readonly ended: Promise<number>;
  /** Asks it to end. */
  stop(): void;
  /** Ends it at once. */
  kill(): void;
}

/**
 * Starts an environment server on its default port, or a free one where that is taken.
 * @throws Error with what the server said when it does not come up
 */
export async function startEnvServer(
  args: readonly string[] = [],
): Promise<{ readonly child: Child; readonly url: string }> {
  const server = spawn(process.execPath, [ENV_SERVER, ...args], {
    stdio: ['ignore', 'pipe', 'inherit', 'ipc'],
    detached: true,
  });
  const child = childOf(server);
  const url = await new Promise<string>((found, reject) => {
    createInterface({ input: server.stdout! }).on('line', line => {
      const match = LISTENING.exec(line);
      if (match) found(match[1]);
    });
    child.ended.then(status =>
      reject(new Error(`the environment server ended with status ${status}; see above`)),
    );
  });
  return { child, url };
}

/** Starts the command `train` with our terminal. */
export function startTrainer(args: readonly string[]): Child {
  return childOf(
    spawn(process.execPath, [TRAINER, 'train', ...args], {
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
      detached: true,
    }),
  );
}

function childOf(process: ChildProcess): Child {
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
