import { join, resolve } from 'node:path';
import { Command } from 'commander';
import { residentBytes } from '../test/process-memory.test-data.ts';
import { median } from './measuring.ts';
import {
  bareBatchCases,
  bareCases,
  type Connected,
  connected,
  crowdCases,
  type LoadCase,
  type LoadRow,
  measured,
  play,
  serverCases,
  storeCases,
} from './server/cases.ts';
import { openSessions } from './server/players.ts';
import { MAIN, start, startValkey, TOKEN, TOKENS, temporaryFolder } from './server/processes.ts';
import { replicasTable } from './server/replicas.ts';

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
  // One client may have three quarters of them.
  const flags = ['--port', '0', ...TOKENS, '--max-sessions', String(2 * sessions)];
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

/** Settings of a comparison. */
export interface Comparison {
  readonly seconds: number;
  readonly rounds: number;
  /** Part of the names of the cases that are measured. */
  readonly only: string;
}

const WARM_UP_SECONDS = 1;

/** User times of a step in microseconds, one of each round: of the other checkout, and of this one. */
type Times = readonly [other: number[], own: number[]];

/**
 * Processor time of a step on the server of another checkout and on this one, without and with `--data`. The two take
 * turns of a fraction of a second, so that both meet the same machine. The user time counts, and of the rounds the
 * quickest and the quarter that is quicker than all others: what other programs on the machine take comes on top.
 * @param folder the other checkout, with its packages installed
 * @returns a table
 */
export async function compare(folder: string, { seconds, rounds, only }: Comparison): Promise<string> {
  const data = temporaryFolder();
  const other = resolve(folder, 'env-server/main.ts');
  const pairs: (readonly [string, readonly [LoadCase, LoadCase]])[] = [];
  for (const kept of [false, true]) {
    const flags = (name: string) => (kept ? ['--data', join(data, name)] : []);
    const before = await serverCases(other, flags('before'));
    const after = await serverCases(MAIN, flags('after'));
    for (const [i, { name }] of before.entries()) {
      const title = `${name}${kept ? ', --data' : ''}`;
      if (title.includes(only)) pairs.push([title, [before[i], after[i]]]);
    }
  }
  const rows = new Map<string, Times>();
  for (const [title, pair] of pairs) rows.set(title, await alternate(pair, seconds, rounds));
  return tableOf(rows);
}

async function alternate(
  pair: readonly [LoadCase, LoadCase],
  seconds: number,
  rounds: number,
): Promise<Times> {
  const clients: readonly Connected[] = await Promise.all(pair.map(connected));
  const times: Times = [[], []];
  for (const [i, one] of pair.entries()) await measured(one, clients[i], WARM_UP_SECONDS);
  for (let round = 0; round < rounds; round++) {
    for (const [i, one] of pair.entries()) {
      times[i].push((await measured(one, clients[i], seconds)).userMicroseconds);
    }
  }
  for (const [client] of clients.flat()) client.close();
  return times;
}

const least = (values: readonly number[]): number => Math.min(...values);
const quarter = (values: readonly number[]): number =>
  values.toSorted((a, b) => a - b)[Math.floor(values.length / 4)];

function tableOf(rows: ReadonlyMap<string, Times>): string {
  const lines = [
    '| user CPU µs a step | other, least | this, least | ratio | other, quarter | this, quarter | ratio |',
    '|---|---|---|---|---|---|---|',
  ];
  for (const [name, times] of rows) {
    const columns = [least, quarter].flatMap(of => {
      const [before, after] = times.map(of);
      return [before.toFixed(1), after.toFixed(1), (after / before).toFixed(2)];
    });
    lines.push(`| ${[name, ...columns].join(' | ')} |`);
  }
  return lines.join('\n');
}

/**
 * Steps per second of FrozenLake through every transport, with auth, metrics, limits and expiry on, compared with the least
 * work of any server: a fixed reply of node:http, a ws echo, and batches answered without any work. Server and load are two
 * processes. All cases take turns, so that a machine that is slow for a while is slow for all of them. The median of the
 * rounds counts; the best shows the speed without other load.
 */

function print(cases: readonly LoadCase[], rowsOf: ReadonlyMap<LoadCase, readonly LoadRow[]>): void {
  console.log(
    '| | steps/s | best round | p50 ms | p99 ms | of the baseline | best to best | server CPU µs a step, least |',
  );
  console.log('|---|---|---|---|---|---|---|---|');
  for (const each of cases) {
    const middle = (key: keyof LoadRow, of = each) => median(rowsOf.get(of)!.map(row => row[key]));
    const best = (of = each) => Math.max(...rowsOf.get(of)!.map(({ stepsPerSecond }) => stepsPerSecond));
    const baseline = cases.find(({ name }) => name === each.baseline);
    const columns = [
      each.name,
      Math.round(middle('stepsPerSecond')),
      Math.round(best()),
      middle('p50').toFixed(2),
      middle('p99').toFixed(2),
      baseline ? (middle('stepsPerSecond') / middle('stepsPerSecond', baseline)).toFixed(2) : '',
      baseline ? (best() / best(baseline)).toFixed(2) : '',
      Math.min(...rowsOf.get(each)!.map(({ cpuMicroseconds }) => cpuMicroseconds)).toFixed(1),
    ];
    console.log(`| ${columns.join(' | ')} |`);
  }
}

interface Options extends Comparison {
  readonly sessions: number;
  readonly against?: string;
  readonly store?: true;
  readonly memory?: true;
  readonly replicas?: number;
  readonly threads: number;
}

const options = new Command('bench:server')
  .option('--seconds <n>', 'measured time of each case in each round', Number, 2)
  .option('--rounds <n>', 'how often each case is measured', Number, 5)
  .option('--sessions <n>', 'open sessions in the last case, and with --memory', Number, 50_000)
  .option(
    '--against <folder>',
    'another checkout; its server gets the same load alternately, and other cases are left out',
  )
  .option('--store', 'sessions in a folder and in Valkey in the same run, without the crowd of sessions')
  .option('--memory', 'only the memory of idle sessions: without a store, with a folder and with Valkey')
  .option('--replicas <n>', 'only one server with a folder, and so many with one Valkey', Number)
  .option('--threads <n>', 'with --replicas: threads of load, for a machine with cores for them', Number, 1)
  .option('--only <text>', 'with --against: cases with this text in their name', '')
  .parse()
  .opts<Options>();

if (options.against !== undefined) {
  console.log(await compare(options.against, options));
  process.exit();
}

if (options.memory) {
  console.log(await memoryTable(options.sessions));
  process.exit();
}
if (options.replicas !== undefined) {
  console.log(await replicasTable(options.replicas, options));
  process.exit();
}

const cases = [
  ...(await bareCases()),
  ...(await bareBatchCases()),
  ...(options.store
    ? await storeCases()
    : [...(await serverCases()), ...(await crowdCases(options.sessions))]),
];
const rowsOf = new Map<LoadCase, LoadRow[]>(cases.map(each => [each, []]));
for (let round = 0; round < options.rounds; round++) {
  for (const each of cases) rowsOf.get(each)!.push(await play(each, options.seconds));
}
print(cases, rowsOf);
process.exit();
