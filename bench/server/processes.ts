import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { hashToken } from '../../env-server/transports/access/auth.ts';

export const TOKEN = 'bench';
/** Flags of a server that knows the token. */
export const TOKENS = [
  '--tokens',
  JSON.stringify([{ name: 'bench', sha256: hashToken(TOKEN), scopes: ['play', 'admin'] }]),
];
/** The environment server of this checkout. */
export const MAIN = fileURLToPath(new URL('../../env-server/main.ts', import.meta.url));
const STORE_POLL_MS = 20;

export interface Started {
  readonly origin: string;
  /** Process ids of what handles requests. */
  readonly pids: readonly number[];
}

/** Starts a server and waits for the line that says where it listens. It ends with this process. */
export async function start(path: string, args: readonly string[]): Promise<Started> {
  const child = spawn(process.execPath, ['--expose-gc', path, ...args], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  process.on('exit', () => child.kill());
  const replicas: number[] = [];
  for await (const line of createInterface({ input: child.stdout! })) {
    const [, pid] = /"replica_pid":(\d+)/.exec(line) ?? [];
    if (pid) replicas.push(Number(pid));
    const match = /listening on (http:\S+)/.exec(line);
    if (match) return { origin: match[1], pids: replicas.length > 0 ? replicas : [child.pid!] };
  }
  throw new Error(`${path} ended before it listened`);
}

/** A folder that goes with this process. */
export function temporaryFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'ragen-bench-'));
  process.on('exit', () => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** Starts a Valkey that appends to a file. It ends with this process. */
export async function startValkey(
  folder: string,
): Promise<{ readonly address: string; readonly pid: number }> {
  const socket = join(folder, 'socket');
  const own = ['--port', '0', '--unixsocket', socket, '--dir', folder, '--appendonly', 'yes', '--save', ''];
  const store: ChildProcess = spawn('valkey-server', own, { stdio: 'ignore' });
  process.on('exit', () => store.kill('SIGKILL'));
  const failed = once(store, 'exit').then(() => {
    throw new Error(
      'valkey-server ended: Debian 13 has the package valkey-server, Debian 12 has it in its backports',
    );
  });
  const listening = (async () => {
    while (!existsSync(socket)) await delay(STORE_POLL_MS);
  })();
  await Promise.race([failed, listening]);
  return { address: `valkey+unix://${socket}`, pid: store.pid! };
}
