/**
 * A regression figure of learning: success after a fixed time, `npm run bench:learning`. FrozenLake has 3 minutes and Sokoban
 * 10 unless told otherwise; warm start and validations are part of the time, the last validation is not. The figure depends on the machine, so
 * it is compared on one machine that does nothing else.
 */
import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import type { RunSummary } from '../trainer/training/report.ts';
import { positiveInteger } from './flags.ts';
import { ServerProcess } from './server-process.ts';

const ROOT = resolve(import.meta.dirname, '..');

const { values: flags, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    'frozenlake-seconds': { type: 'string', default: '180' },
    'sokoban-seconds': { type: 'string', default: '600' },
    seed: { type: 'string', default: '0' },
    json: { type: 'boolean', default: false },
  },
});

/** What is measured; the learning rate falls over about as many iterations as the time has room for. */
const RECIPES = [
  {
    name: 'FrozenLake',
    config: 'configs/frozenlake-ppo.yaml',
    seconds: positiveInteger('frozenlake-seconds', flags['frozenlake-seconds']),
    overrides: ['training.steps=120'],
  },
  {
    name: 'Sokoban',
    config: 'configs/sokoban-nano.yaml',
    seconds: positiveInteger('sokoban-seconds', flags['sokoban-seconds']),
    overrides: ['training.steps=400', 'validation.sets={}'],
  },
];

function trainer(args: readonly string[]): Promise<void> {
  return new Promise((done, reject) => {
    const child = spawn(process.execPath, [join(ROOT, 'trainer/main.ts'), ...args], {
      cwd: ROOT,
      stdio: ['ignore', 'ignore', 'inherit'],
    });
    child.once('error', reject);
    child.once('exit', code =>
      code === 0 ? done() : reject(new Error(`the trainer ended with status ${code}`)),
    );
  });
}

const folder = mkdtempSync(join(tmpdir(), 'ragen-learning-'));
const server = new ServerProcess([]);
const rows: {
  name: string;
  seconds: number;
  iterations: number;
  episodes: number;
  success: number;
  low: number;
  high: number;
}[] = [];
try {
  await server.start();
  for (const { name, config, seconds, overrides } of RECIPES) {
    const place = [
      `servers=${JSON.stringify([{ url: server.origin }])}`,
      `run.folder=${JSON.stringify(folder)}`,
      `run.name=${name}`,
    ];
    const length = [
      `training.max_seconds=${seconds}`,
      'training.validate_first=false',
      'training.validate_every=1000000',
      'training.checkpoint_every=1000000',
      'tracking.tensorboard=false',
      'tracking.trajectories_every=0',
      'diagnostics.collapse.every=0',
    ];
    await trainer([
      'train',
      config,
      ...overrides,
      ...length,
      ...place,
      `seed=${flags.seed}`,
      'seeds.validation=123',
      '--quiet',
      ...positionals,
    ]);
    const summary = JSON.parse(readFileSync(join(folder, name, 'summary.json'), 'utf8')) as RunSummary;
    const [{ success, low, high }] = Object.values(summary.after!.tags);
    rows.push({ name, seconds, iterations: summary.step, episodes: summary.episodes, success, low, high });
  }
} finally {
  await server.end('SIGTERM');
  rmSync(folder, { recursive: true, force: true });
}
if (flags.json) console.log(JSON.stringify(rows, null, 1));
else {
  const percent = (share: number) => (100 * share).toFixed(1);
  console.log('| environment | seconds | iterations | episodes | success % | 95 % interval |');
  console.log('| --- | --- | --- | --- | --- | --- |');
  for (const { name, seconds, iterations, episodes, success, low, high } of rows) {
    console.log(
      `| ${name} | ${seconds} | ${iterations} | ${episodes} | ${percent(success)} | ${percent(low)} to ${percent(high)} |`,
    );
  }
}
