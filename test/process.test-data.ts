import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import type { Test } from 'tap';
import type { Json } from '../shared/json.ts';
import type { Body } from './app.test-data.ts';

/** The server as a separate process, asked through real sockets. */

const MAIN = fileURLToPath(new URL('../env-server/main.ts', import.meta.url));

/** Starts the program, perhaps by way of another command; after the test it is killed, and writes nothing any more. */
export function runServer(
  t: Test,
  args: string[],
  env: { [name: string]: string } = {},
  started: (command: string[]) => string[] = command => command,
): ChildProcess {
  const [program, ...rest] = started([process.execPath, MAIN, ...args]);
  const child = spawn(program, rest, { env: { ...process.env, ...env } });
  const ended = once(child, 'exit');
  t.teardown(async () => {
    child.kill('SIGKILL');
    await ended;
  });
  return child;
}

/** Lines of output until one says where the server listens. */
export async function listening(child: ChildProcess): Promise<{ origin: string; lines: string[] }> {
  const lines: string[] = [];
  for await (const line of createInterface({ input: child.stdout! })) {
    lines.push(line);
    const match = /^ragen env-server listening on (http:\/\/127\.0\.0\.1:\d+) \(playground/.exec(line);
    if (match) return { origin: match[1], lines };
  }
  throw new Error(`it ended after: ${lines.join('\n')}`);
}

/** All that a process says until it ends. */
export async function output(child: ChildProcess): Promise<{ code: number; text: string }> {
  let text = '';
  child.stdout!.on('data', chunk => {
    text += chunk;
  });
  child.stderr!.on('data', chunk => {
    text += chunk;
  });
  const [code] = await once(child, 'close');
  return { code, text };
}

export interface ServerProcess {
  readonly origin: string;
  readonly child: ChildProcess;
  /** Lines it printed until it listened. */
  readonly lines: readonly string[];
  ask(
    method: string,
    path: string,
    body?: Json,
    headers?: { readonly [name: string]: string },
  ): Promise<{ status: number; body: Body; text: string; headers: Headers }>;
  /** Ends it and says how it ended. */
  end(signal: 'SIGTERM' | 'SIGINT' | 'SIGKILL'): Promise<{ code: number | null; signal: string | null }>;
}

/** A server on a free port. */
export async function startServer(
  t: Test,
  args: string[] = [],
  env: { [name: string]: string } = {},
  started?: (command: string[]) => string[],
): Promise<ServerProcess> {
  const child = runServer(t, ['--port', '0', ...args], env, started);
  child.stderr!.on('data', chunk => t.comment(String(chunk).trimEnd()));
  const { origin, lines } = await listening(child);
  return {
    origin,
    child,
    lines,
    async ask(method, path, body, headers = {}) {
      const response = await fetch(origin + path, {
        method,
        headers: body === undefined ? headers : { 'content-type': 'application/json', ...headers },
        body: body === undefined ? undefined : JSON.stringify(body),
      });
      const text = await response.text();
      const isJson = /json(;|$)/.test(response.headers.get('content-type') ?? '');
      return {
        status: response.status,
        headers: response.headers,
        text,
        body: isJson && text !== '' ? JSON.parse(text) : {},
      };
    },
    async end(signal) {
      const ended = once(child, 'exit');
      child.kill(signal);
      const [code, by] = await ended;
      return { code, signal: by };
    },
  };
}
