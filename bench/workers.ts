import { fork } from 'node:child_process';
import { once } from 'node:events';
import { availableParallelism } from 'node:os';
import { fileURLToPath } from 'node:url';
import { Command, Option } from 'commander';
import { ServerProcess } from './server-process.ts';
import { CASES, type Load, type Measured, type WorkerLoadCase } from './workers/load.ts';

/**
 * Two workers against one. The load needs separate cores: where there are too few of them, both share what there is,
 * and the ratio that cores would allow is that of the server's processor time for a step.
 */

const CLIENTS = 32;
const WARM_UP_SECONDS = 1;
const LOAD = fileURLToPath(new URL('./workers/load.ts', import.meta.url));

interface Options {
  readonly seconds: number;
  readonly workers: number;
  /** Processes. */
  readonly load: number;
  readonly cases: readonly WorkerLoadCase[];
}

interface Row extends Measured {
  readonly stepsPerSecond: number;
  /** Processor time of all processes of the server for a step. */
  readonly cpuMicroseconds: number;
}

async function measureCase(
  server: ServerProcess,
  name: WorkerLoadCase,
  { seconds, load: loads }: Options,
): Promise<Row> {
  const load: Load = {
    origin: server.origin,
    name,
    clients: Math.ceil(CLIENTS / loads),
    warmUpSeconds: WARM_UP_SECONDS,
    seconds,
  };
  const children = Array.from({ length: loads }, () => fork(LOAD));
  for (const child of children) child.send(load);
  await Promise.all(children.map(child => once(child, 'message')));
  const before = (await server.vitals()).cpuSeconds;
  const measured = await Promise.all(
    children.map(async child => (await once(child, 'message'))[0] as Measured),
  );
  const cpu = (await server.vitals()).cpuSeconds - before;
  const steps = measured.reduce((sum, each) => sum + each.steps, 0);
  return {
    steps,
    p99: Math.max(...measured.map(({ p99 }) => p99)),
    stepsPerSecond: steps / seconds,
    cpuMicroseconds: (1e6 * cpu) / steps,
  };
}

async function measureAll(workers: number, options: Options): Promise<Map<WorkerLoadCase, Row>> {
  const server = new ServerProcess(['--workers', String(workers)]);
  await server.start();
  try {
    const rows = new Map<WorkerLoadCase, Row>();
    for (const name of options.cases) rows.set(name, await measureCase(server, name, options));
    return rows;
  } finally {
    await server.end('SIGTERM');
  }
}

const options = new Command('bench:workers')
  .description('Compares two workers with one.')
  .option('--seconds <n>', 'measured time of each case', Number, 3)
  .option('--workers <n>', 'workers to compare with one', Number, 2)
  .option('--load <n>', 'processes of the load', Number, Math.max(1, availableParallelism() - 2))
  .addOption(
    new Option('--cases <name...>', 'which to measure')
      .choices(Object.keys(CASES))
      .default(Object.keys(CASES)),
  )
  .parse()
  .opts<Options>();

const { seconds, workers, load, cases } = options;
if (!(seconds > 0 && workers >= 2 && load >= 1)) {
  console.error('--seconds must be above 0, --workers at least 2, --load at least 1');
  process.exit(1);
}
console.log(`${availableParallelism()} cores; ${load} processes of load with ${CLIENTS} clients`);
const one = await measureAll(1, options);
const many = await measureAll(workers, options);
console.log(
  `| | 1 worker, steps/s | ${workers} workers, steps/s | ratio | p99 ms, 1 → ${workers} | server CPU µs a step, 1 → ${workers} | ratio that cores would allow |`,
);
console.log('|---|---|---|---|---|---|---|');
for (const name of cases) {
  const [before, after] = [one.get(name)!, many.get(name)!];
  const ratio = after.stepsPerSecond / before.stepsPerSecond;
  const allowed = (workers * before.cpuMicroseconds) / after.cpuMicroseconds;
  console.log(
    `| ${name} | ${Math.round(before.stepsPerSecond)} | ${Math.round(after.stepsPerSecond)} | ${ratio.toFixed(2)} | ${before.p99.toFixed(1)} → ${after.p99.toFixed(1)} | ${before.cpuMicroseconds.toFixed(1)} → ${after.cpuMicroseconds.toFixed(1)} | ${allowed.toFixed(2)} |`,
  );
}
for (const name of cases) console.log(`${name}: ${CASES[name]}`);
