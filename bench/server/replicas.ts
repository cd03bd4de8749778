import { join } from 'node:path';
import { processorSeconds } from '../measuring.ts';
import { LOADS, type LoadName, LoadThread } from './load-thread.ts';
import { MAIN, type Started, start, startValkey, TOKENS, temporaryFolder } from './processes.ts';

interface Row {
  readonly stepsPerSecond: number;
  /** Processor time of a step, in microseconds: of the servers, and of Valkey. */
  readonly server: number;
  readonly store: number;
}

/**
 * Processor time of a step on one server with a folder, and on several servers with one Valkey.
 * @returns a table. Its last columns are how many times the steps of the one server the others took, and take where each has a separate
 * core, and Valkey another
 */
export async function replicasTable(
  replicas: number,
  settings: { readonly seconds: number; readonly rounds: number; readonly threads: number },
): Promise<string> {
  const { seconds, rounds, threads } = settings;
  const folder = temporaryFolder();
  const valkey = await startValkey(folder);
  const flags = ['--port', '0', ...TOKENS];
  const one = await start(MAIN, [...flags, '--data', join(folder, 'data')]);
  const several = ['--store', valkey.address, '--replicas', String(replicas), '--log-level', 'info'];
  const many = await start(MAIN, [...flags, ...several]);
  const rows = [
    `| µs of processor time a step | one server, folder | ${replicas} servers | Valkey | steps/s of one | of ${replicas} | times | by processor time |`,
    '|---|---|---|---|---|---|---|---|',
  ];
  for (const [name, { clients }] of Object.entries(LOADS) as [LoadName, { clients: number }][]) {
    const loads = [await connected(one, name, threads), await connected(many, name, threads)];
    const best: [Row?, Row?] = [];
    // The first round is the warm-up.
    for (let round = 0; round <= rounds; round++) {
      for (const [i, servers] of [one, many].entries()) {
        const row = await measured(servers.pids, valkey.pid, loads[i], seconds);
        if (round > 0 && (!best[i] || row.server < best[i].server)) best[i] = row;
      }
    }
    for (const thread of loads.flat()) await thread.close();
    const [alone, shared] = best as [Row, Row];
    const columns = [
      `${name}, ${threads * clients} clients`,
      alone.server.toFixed(1),
      shared.server.toFixed(1),
      shared.store.toFixed(1),
      Math.round(alone.stepsPerSecond),
      Math.round(shared.stepsPerSecond),
      (shared.stepsPerSecond / alone.stepsPerSecond).toFixed(2),
      ((replicas * alone.server) / shared.server).toFixed(2),
    ];
    rows.push(`| ${columns.join(' | ')} |`);
  }
  return rows.join('\n');
}

const connected = async ({ origin }: Started, name: LoadName, threads: number): Promise<LoadThread[]> =>
  Promise.all(Array.from({ length: threads }, async () => LoadThread.connect(origin, name)));

/** Lets all threads play at once. */
async function measured(
  servers: readonly number[],
  store: number,
  load: readonly LoadThread[],
  seconds: number,
): Promise<Row> {
  const spent = () => [servers.reduce((sum, pid) => sum + processorSeconds(pid), 0), processorSeconds(store)];
  const before = spent();
  const parts = await Promise.all(load.map(thread => thread.measure(seconds)));
  const steps = parts.reduce((sum, part) => sum + part.steps, 0);
  const [server, own] = spent().map((seconds, i) => (1e6 * (seconds - before[i])) / steps);
  return { stepsPerSecond: parts.reduce((sum, part) => sum + part.stepsPerSecond, 0), server, store: own };
}
