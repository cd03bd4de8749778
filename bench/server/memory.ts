import { join } from 'node:path';
import { residentBytes } from '../../test/process-memory.test-data.ts';
import { openSessions } from './players.ts';
import { MAIN, start, startValkey, TOKEN, TOKENS, temporaryFolder } from './processes.ts';

const BYTES_PER_KIB = 1024;
const BYTES_PER_MIB = 1024 * 1024;

/**
 * Resident memory of a server with this many idle sessions: without a store, with a folder and with Valkey, and that of
 * Valkey itself.
 * @returns a table
 */
export async function memoryTable(sessions: number): Promise<string> {
  const folder = temporaryFolder();
  const valkey = await startValkey(folder);
  const flags = ['--port', '0', ...TOKENS, '--max-sessions', String(sessions)];
  const rows = ['| | before, MiB | with the sessions, MiB | each, KiB |', '|---|---|---|---|'];
  const kinds = [
    ['no store', []],
    ['folder', ['--data', join(folder, 'data')]],
    ['Valkey', ['--store', valkey.address]],
  ] as const;
  for (const [name, kind] of kinds) {
    const { origin, pids } = await start(MAIN, [...flags, ...kind]);
    const measured: [name: string, pid: number][] = [[`server, ${name}`, pids[0]]];
    if (name === 'Valkey') measured.push(['Valkey itself', valkey.pid]);
    const before = measured.map(([, pid]) => residentBytes(pid, 'VmRSS'));
    await openSessions(origin, TOKEN, sessions);
    for (const [i, [title, pid]] of measured.entries()) {
      const after = residentBytes(pid, 'VmRSS');
      const each = (after - before[i]) / sessions / BYTES_PER_KIB;
      const [from, to] = [before[i], after].map(bytes => (bytes / BYTES_PER_MIB).toFixed(0));
      rows.push(`| ${title} | ${from} | ${to} | ${each.toFixed(2)} |`);
    }
    process.kill(pids[0], 'SIGKILL');
  }
  return rows.join('\n');
}
