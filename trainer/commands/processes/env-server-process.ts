import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { readLogLine } from '../../../shared/log-text.ts';
import { type ChildProgram, childOf } from './child-program.ts';

const ENV_SERVER = fileURLToPath(new URL('../../../env-server/main.ts', import.meta.url));
const LISTENING = /listening on (http:\/\/\S+)/;

/**
 * Starts an environment server on its default port, or on a free one if that is taken. It is alone in its file, because
 * the trainer's image has no server.
 * @throws Error with the server's output when it does not start
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
