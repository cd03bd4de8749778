import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as delay } from 'node:timers/promises';
import { pino } from 'pino';
import type { Test } from 'tap';
import { storeAddressOf } from './address.ts';
import { StoreConnection } from './connection.ts';
import { ValkeySessionStore } from './valkey-session-store.ts';

/** For `t.test`: why tests of a shared store cannot run on this machine, or false. */
export const lacksValkey: string | false =
  spawnSync('valkey-server', ['--version']).status !== 0 &&
  'needs valkey-server: apt-get install valkey-server (Debian 12: from bookworm-backports)';

export interface TestValkey {
  readonly address: string;
  readonly process: ChildProcess;
  /** Ends it with a signal and starts it again on the same files, after this many milliseconds. */
  restart(signal: NodeJS.Signals, downMs?: number): Promise<void>;
  signal(signal: NodeJS.Signals): void;
  stop(): Promise<void>;
}

const SILENT = pino({ level: 'silent' });

/** A Valkey on a Unix socket in a separate folder, which ends with the test. */
export async function testValkey(t: Pick<Test, 'teardown'>, ...more: readonly string[]): Promise<TestValkey> {
  const folder = mkdtempSync(join(tmpdir(), 'ragen-valkey-'));
  const socket = join(folder, 's');
  const keeping = ['--appendonly', 'yes', '--appendfsync', 'everysec', '--save', ''];
  const args = [
    '--port',
    '0',
    '--unixsocket',
    socket,
    '--dir',
    folder,
    '--stream-node-max-bytes',
    '1024',
    ...keeping,
  ];
  const start = async () => {
    const child = spawn('valkey-server', [...args, ...more], { stdio: ['ignore', 'pipe', 'inherit'] });
    for await (const line of createInterface({ input: child.stdout }))
      if (line.includes('Ready to accept connections unix')) break;
    child.stdout.resume();
    return child;
  };
  let child = await start();
  const stop = async () => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    const ended = once(child, 'exit');
    child.kill('SIGKILL');
    await ended;
  };
  t.teardown(async () => {
    await stop();
    rmSync(folder, { recursive: true, force: true });
  });
  return {
    address: `valkey+unix://${socket}`,
    get process() {
      return child;
    },
    async restart(signal, downMs = 0) {
      const ended = once(child, 'exit');
      child.kill(signal);
      await ended;
      await delay(downMs);
      child = await start();
    },
    signal: signal => void child.kill(signal),
    stop,
  };
}

/** A store of one server, closed after the test. */
export async function testStore(
  t: Pick<Test, 'teardown'>,
  { address }: Pick<TestValkey, 'address'>,
  replica: string,
): Promise<ValkeySessionStore> {
  const connection = await StoreConnection.open(storeAddressOf(address), 'journal', SILENT);
  t.teardown(() => connection.close());
  return new ValkeySessionStore(connection, replica);
}
