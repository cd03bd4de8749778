import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import type { Test } from 'tap';
import { freePort } from '../../test/free-port.test-data.ts';

const MAIN = fileURLToPath(new URL('../../env-server/main.ts', import.meta.url));

/** An environment server in a separate process. Requests run one after the other. */
export interface ServerProcess {
  readonly url: string;
  /** Ends it at once, as a crash would. */
  kill(): Promise<void>;
  /** Starts it again on the same port. */
  restart(): Promise<void>;
}

/** Starts a server on a free port; it ends with the test. */
export async function serverProcess(t: Test): Promise<ServerProcess> {
  let child: ChildProcess;
  const start = async (port: number): Promise<string> => {
    child = spawn(process.execPath, [MAIN, '--port', String(port)], { stdio: ['ignore', 'pipe', 'inherit'] });
    for await (const chunk of child.stdout!) {
      const address = /listening on (\S+)/.exec(String(chunk));
      if (address) {
        child.stdout!.resume();
        return address[1];
      }
    }
    throw new Error('the environment server ended before it listened');
  };
  const kill = async (): Promise<void> => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    const gone = once(child, 'exit');
    child.kill('SIGKILL');
    await gone;
  };
  const url = await start(await freePort());
  let last: Promise<unknown> = Promise.resolve();
  const next = (work: () => Promise<unknown>): Promise<void> => {
    const done = last.then(work);
    last = done;
    return done.then(() => {});
  };
  t.teardown(() => next(kill));
  return {
    url,
    kill: () => next(kill),
    restart: () =>
      next(async () => {
        await kill();
        await start(Number(new URL(url).port));
      }),
  };
}
