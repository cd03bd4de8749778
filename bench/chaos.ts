/**
 * A training run that is given trouble: of two environment servers one is killed and started again every 20 seconds, the
 * other is removed for good a third of the way, and the trainer is killed half-way and resumed. Every signal is SIGKILL.
 *
 *     npm run bench:chaos [-- --config configs/quickstart.yaml --steps 100 --every 20 warm_start.episodes=500]
 *
 * Ends with status 1 unless the run completes, every step stands once in `metrics.jsonl`, and every episode was counted once.
 */

import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { startEnvServer } from '../trainer/commands/processes/env-server-process.ts';
import { readJsonLines } from '../trainer/tracking/jsonlines.ts';
import { openRunFolder, runFolderAt } from '../trainer/training/run-folder/run-folder.ts';
import { scriptFlags } from './flags.ts';

const TRAINER = fileURLToPath(new URL('../trainer/main.ts', import.meta.url));
const LOOK_EVERY_MS = 250;

const { values: flags, positionals: overrides } = scriptFlags(import.meta.filename, {
  allowPositionals: true,
  options: {
    config: { type: 'string', default: 'configs/quickstart.yaml' },
    steps: { type: 'string', default: '100' },
    every: { type: 'string', default: '20' },
  },
});
const [steps, every] = [Number(flags.steps), Number(flags.every)];
if (!(steps >= 6 && every > 0)) throw new RangeError('--steps must be at least 6, --every above 0 seconds');

type Row = { readonly [name: string]: number };

const folder = mkdtempSync(join(tmpdir(), 'ragen-chaos-'));
const path = join(folder, 'run');
const startedAt = performance.now();
const say = (text: string) =>
  console.log(`${((performance.now() - startedAt) / 1000).toFixed(0)} s: ${text}`);
const rows = (): Row[] => {
  const { metrics } = runFolderAt(path);
  return existsSync(metrics) ? (readJsonLines(metrics) as Row[]).filter(row => 'train/success' in row) : [];
};
const step = () => rows().at(-1)?.step ?? 0;

const troubled = await startEnvServer(['--port', '0']);
const removed = await startEnvServer(['--port', '0']);
let server = troubled.child;
let restarts = 0;
let over = false;

const restarting = (async () => {
  while (!over) {
    for (let waited = 0; waited < every && !over; waited++) await sleep(1000);
    if (over) break;
    server.kill();
    await server.ended;
    server = (await startEnvServer(['--port', new URL(troubled.url).port])).child;
    restarts++;
    say(`server killed and started again, step ${step()}`);
  }
})();

function train(...args: string[]): ChildProcess {
  return spawn(process.execPath, [TRAINER, 'train', ...args, '--quiet'], {
    stdio: ['ignore', 'ignore', 'inherit'],
  });
}
const ended = async (child: ChildProcess): Promise<number | null> =>
  child.exitCode === null && child.signalCode === null ? (await once(child, 'exit'))[0] : child.exitCode;
async function reach(wanted: number, child: ChildProcess): Promise<void> {
  while (step() < wanted) {
    if (child.exitCode !== null)
      throw new Error(`the trainer ended with status ${child.exitCode} at step ${step()}`);
    await sleep(LOOK_EVERY_MS);
  }
}

try {
  const first = train(
    flags.config,
    `servers=${JSON.stringify([{ url: troubled.url }, { url: removed.url }])}`,
    `run.folder=${folder}`,
    'run.name=run',
    `training.steps=${steps}`,
    'training.checkpoint_every=5',
    'rollout.failover_s=2',
    ...overrides,
  );
  await reach(Math.floor(steps / 3), first);
  removed.child.kill();
  say(`one server removed for good, step ${step()}`);
  await reach(Math.floor(steps / 2), first);
  first.kill('SIGKILL');
  await ended(first);
  say(`trainer killed, step ${step()}`);
  const second = train('--resume', path);
  const status = await ended(second);
  say(`trainer ended with status ${status}, step ${step()}`);
  process.exitCode = verdict(status) ? 0 : 1;
} finally {
  over = true;
  await restarting;
  server.kill();
  removed.child.kill();
  await Promise.all([server.ended, removed.child.ended]);
}

/** Prints what came out; true when nothing is missing and nothing counted twice. */
function verdict(status: number | null): boolean {
  const { settings } = openRunFolder(path);
  const all = rows();
  const sum = (name: string) => all.reduce((total, row) => total + (row[name] ?? 0), 0);
  const inOrder = all.length === steps && all.every((row, i) => row.step === i + 1);
  const wanted = steps * settings.rollout.env_groups * settings.rollout.group_size;
  const counted = all.at(-1)?.['training/episodes'];
  const dropped = sum('errored_rollouts') + sum('rollout/validation_levels_left_out');
  console.log(`server restarts: ${restarts}`);
  console.log(`steps: ${all.length} of ${steps}, each once: ${inOrder}`);
  console.log(`episodes counted: ${counted} of ${wanted}, ${dropped} dropped`);
  console.log(`episodes that went on elsewhere: ${sum('rollouter/replayed_episodes')}`);
  console.log(
    `success in training: ${all[0]?.['train/success'].toFixed(2)} → ${all.at(-1)?.['train/success'].toFixed(2)}`,
  );
  return status === 0 && inOrder && counted === wanted - dropped;
}
