import { Command } from 'commander';
import { median } from './measuring.ts';
import {
  bareBatchCases,
  bareCases,
  crowdCases,
  type LoadCase,
  type LoadRow,
  play,
  serverCases,
  storeCases,
} from './server/cases.ts';
import { type Comparison, compare } from './server/compare.ts';
import { memoryTable } from './server/memory.ts';
import { replicasTable } from './server/replicas.ts';

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
