import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { Command } from 'commander';
import { lacksPython, PYTHON } from '../test/python.test-data.ts';
import { median } from './measuring.ts';
import { ServerProcess } from './server-process.ts';

/**
 * Steps a second of a vector of FrozenLake in Python: ragen-env against a server in another process, Gymnasium without
 * any server, and OpenEnv's server with its own client where the package `openenv` is installed. All take turns in
 * each round; the median of the rounds counts. RAGEN_PYTHON names the interpreter that has the packages.
 */

const PROGRAM = fileURLToPath(new URL('./python/steps.py', import.meta.url));
const SOURCES = fileURLToPath(new URL('../openapi/python/src', import.meta.url));
const RAGEN = 'ragen-env, text';
const OPENENV = "OpenEnv's server and client";

interface Row {
  readonly name: string;
  readonly size: number;
  readonly steps_per_second: number;
  /** Microseconds of processor time a step, of the client and of the server; in processes: of the caller alone. */
  readonly cpu_us: number;
}

const { seconds, rounds, sizes } = new Command('bench:python')
  .option('--seconds <n>', 'measured time of each case in each round', Number, 2)
  .option('--rounds <n>', 'how often each case is measured', Number, 3)
  .option('--sizes <list>', 'environments in a vector', '1,16,64,256')
  .parse()
  .opts<{ seconds: number; rounds: number; sizes: string }>();

const missing = lacksPython('gymnasium', 'numpy', 'httpx', 'websockets');
if (missing) throw new Error(`${missing}; set RAGEN_PYTHON`);

const server = new ServerProcess(['--max-batch-items', '4096']);
await server.start();
try {
  const rows = await measure(server.origin);
  print(rows);
} finally {
  await server.end('SIGKILL');
}

async function measure(origin: string): Promise<Row[]> {
  const path = [SOURCES, process.env.PYTHONPATH].filter(Boolean).join(':');
  const child = spawn(
    PYTHON,
    [PROGRAM, origin, String(server.pids[0]), sizes, String(seconds), String(rounds)],
    {
      stdio: ['ignore', 'pipe', 'inherit'],
      env: { ...process.env, PYTHONPATH: path },
    },
  );
  const rows: Row[] = [];
  for await (const line of createInterface({ input: child.stdout })) {
    const value = JSON.parse(line);
    if ('name' in value) rows.push(value);
    else console.log(`orjson: ${value.orjson ? 'yes' : 'no'}; openenv: ${value.openenv ? 'yes' : 'no'}\n`);
  }
  const [code] = child.exitCode === null ? await once(child, 'close') : [child.exitCode];
  if (code !== 0) throw new Error(`${PROGRAM} ended with status ${code}`);
  return rows;
}

function print(rows: readonly Row[]): void {
  table('steps/s', rows, 'steps_per_second', (ours, theirs) => ours / theirs);
  console.log();
  table('processor time a step, µs', rows, 'cpu_us', (ours, theirs) => theirs / ours);
}

function table(
  title: string,
  rows: readonly Row[],
  key: 'steps_per_second' | 'cpu_us',
  ratio: (ours: number, theirs: number) => number,
): void {
  const columns = sizes.split(',').map(Number);
  const names = [...new Set(rows.map(({ name }) => name))];
  const value = (name: string, size: number): number | undefined => {
    const values = rows.filter(row => row.name === name && row.size === size).map(row => row[key]);
    return values.length > 0 ? median(values) : undefined;
  };
  console.log(`| ${title}; environments: | ${columns.join(' | ')} |`);
  console.log(`|---|${columns.map(() => '---:').join('|')}|`);
  for (const name of names) {
    const cells = columns.map(size => {
      const cell = value(name, size);
      return cell === undefined ? '' : Math.round(cell).toLocaleString('en-US');
    });
    console.log(`| ${name} | ${cells.join(' | ')} |`);
  }
  if (!names.includes(OPENENV)) return;
  const ratios = columns.map(size => ratio(value(RAGEN, size)!, value(OPENENV, size)!).toFixed(1));
  console.log(`| ${RAGEN}: times OpenEnv | ${ratios.join(' | ')} |`);
}
