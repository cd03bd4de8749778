import { type ChildProcess, spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

const MAIN = fileURLToPath(new URL('../trainer/main.ts', import.meta.url));
const SERVING = /on (http:\/\/\S+)\/v1/;

/** `ragen serve` in its own process, on a free port. */
export interface ServeProcess {
  readonly url: string;
  readonly child: ChildProcess;
}

/** @throws Error when it ends before it serves */
export async function startServe(
  target: string,
  args: readonly string[],
  env: Readonly<Record<string, string>> = {},
): Promise<ServeProcess> {
  const child = spawn(process.execPath, [MAIN, 'serve', target, '--port', '0', ...args], {
    stdio: ['ignore', 'pipe', 'inherit'],
    env: { ...process.env, ...env },
  });
  const url = await new Promise<string>((found, reject) => {
    createInterface({ input: child.stdout }).on('line', line => {
      const match = SERVING.exec(line);
      if (match) found(match[1]);
    });
    child.once('exit', code => reject(new Error(`ragen serve ended with status ${code}`)));
  });
  return { url, child };
}
