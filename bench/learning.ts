/**
 * A regression figure of learning: success after a fixed time, `npm run bench:learning`. FrozenLake has 3 minutes and Sokoban
 * 10 by default, both by reinforcement learning and cut off while success still rises, so that lost speed shows. Warm
 * start and validations are part of the time, the last validation is not. The figure depends on the machine, so it is compared on
 * one machine that does nothing else. The same command continues where it was stopped; `--fresh` starts over. Writes
 * docs/results/learning.md and its data after each run.
 *
 * It then trains the script and the service that the documentation defines with the configs that `init` writes, three seeds
 * each, and fails where success ends less than 30 points above random play; docs/results/own-environments.md has them.
 *
 * `--only timed` and `--only own` measure one of the two. `--frozenlake-seconds 180`, `--sokoban-seconds 600`, `--seed 0`; `--runs` is the folder of the runs, `--out` that of page and
 * data; `--json` prints the figures as JSON. Settings behind the flags go to both runs.
 */
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import type { RunSummary } from '../trainer/training/run-folder/report.ts';
import { readOutcome } from './claims/outcomes.ts';
import { ROOT, runTrainer, trainerArguments } from './claims/run-trainer.ts';
import { positiveInteger, scriptFlags } from './flags.ts';
import { trainOwnEnvironments, writeOwnEnvironments } from './learning/own-environments.ts';
import { ServerProcess } from './server-process.ts';

const { values: flags, positionals } = scriptFlags(import.meta.filename, {
  allowPositionals: true,
  options: {
    'frozenlake-seconds': { type: 'string', default: '180' },
    'sokoban-seconds': { type: 'string', default: '600' },
    only: { type: 'string' },
    seed: { type: 'string', default: '0' },
    runs: { type: 'string', default: 'runs' },
    /** Output folder of the data. */
    out: { type: 'string', default: ROOT },
    fresh: { type: 'boolean', default: false },
    json: { type: 'boolean', default: false },
  },
});

/** Measured recipes. The learning rate falls over about as many iterations as fit in the time. */
const RECIPES = [
  {
    name: 'FrozenLake',
    config: 'configs/frozenlake-ppo.yaml',
    seconds: positiveInteger('frozenlake-seconds', flags['frozenlake-seconds']),
    overrides: ['training.steps=320', 'validation.sets={}'],
  },
  {
    name: 'Sokoban',
    config: 'configs/sokoban-constrained.yaml',
    seconds: positiveInteger('sokoban-seconds', flags['sokoban-seconds']),
    overrides: ['training.steps=450', 'validation.sets={}'],
  },
];

const seed = Number(flags.seed);
if (!Number.isInteger(seed) || seed < 0)
  throw new RangeError(`--seed is a whole number from 0, got ${flags.seed}`);
const folder = resolve(flags.runs, 'bench-learning');
if (flags.fresh) rmSync(folder, { recursive: true, force: true });
mkdirSync(folder, { recursive: true });
/** Flags that change no figure, with their values. */
const PLACES = ['--runs', '--out'];
const given = process.argv
  .slice(2)
  .filter(
    (argument, i, all) =>
      !['--fresh', '--json', ...PLACES].includes(argument) && !PLACES.includes(all[i - 1]),
  );
const command = `npm run bench:learning${given.length === 0 ? '' : ` -- ${given.join(' ')}`}`;

interface Row {
  readonly name: string;
  readonly seconds: number;
  readonly iterations: number;
  readonly episodes: number;
  readonly success: number;
  readonly low: number;
  readonly high: number;
}

const rows: Row[] = [];
if (flags.only !== undefined && flags.only !== 'timed' && flags.only !== 'own')
  throw new RangeError(`--only is timed or own, got ${flags.only}`);
const server = new ServerProcess(['--remote-networks', '127.0.0.1/32']);
const results = join(flags.out, 'docs/results');
try {
  await server.start();
  for (const { name, config, seconds, overrides } of flags.only === 'own' ? [] : RECIPES) {
    const run = `${name.toLowerCase()}-${seconds}-seconds-seed-${seed}`;
    if (!readOutcome(join(folder, run), name, seed)) {
      const length = [
        `training.max_seconds=${seconds}`,
        'training.validate_first=false',
        'training.validate_every=1000000',
        'training.checkpoint_every=20',
        'tracking.tensorboard=false',
        'tracking.trajectories_every=0',
        'diagnostics.collapse.every=0',
        `seed=${seed}`,
        'seeds.validation=123',
      ];
      const planned = { command: 'train', config, folder, name: run, server: server.origin } as const;
      const status = await runTrainer(
        trainerArguments({ ...planned, overrides: [...overrides, ...length, ...positionals] }),
        'ignore',
      );
      if (status !== 0) throw new Error(`${name}: the trainer ended with status ${status}`);
    }
    const summary = JSON.parse(readFileSync(join(folder, run, 'summary.json'), 'utf8')) as RunSummary;
    if (summary.ended === 'stopped' || !summary.after)
      throw new Error(`${name}: stopped; the same command continues`);
    const [{ success, low, high }] = Object.values(summary.after.tags);
    rows.push({ name, seconds, iterations: summary.step, episodes: summary.episodes, success, low, high });
    mkdirSync(join(results, 'data'), { recursive: true });
    writeFileSync(
      join(results, 'data/learning.json'),
      `${JSON.stringify({ command, seed, rows }, null, 2)}\n`,
    );
    writeFileSync(join(results, 'learning.md'), page());
  }
  if (flags.only !== 'timed') {
    const title = 'Success on environments of one’s own, with the configs that init wrote';
    await trainOwnEnvironments(server.origin, join(folder, 'own'), own =>
      writeOwnEnvironments(results, { title, command, rows: own }),
    );
  }
} finally {
  await server.end('SIGTERM');
}
console.log(flags.json ? JSON.stringify(rows, null, 1) : table().join('\n'));

function table(): string[] {
  const percent = (share: number) => (100 * share).toFixed(1);
  return [
    '| environment | seconds | iterations | episodes | success % | 95 % interval |',
    '|---|---|---|---|---|---|',
    ...rows.map(
      ({ name, seconds, iterations, episodes, success, low, high }) =>
        `| ${name} | ${seconds} | ${iterations} | ${episodes} | ${percent(success)} | ${percent(low)} to ${percent(high)} |`,
    ),
  ];
}

function page(): string {
  return [
    '# Success after a fixed time',
    '',
    `_Reference._ Written by \`${command}\` from [its data](./data/learning.json), seed ${seed}.`,
    'Sampled success on layouts that never occur in training, with Wilson’s interval over the episodes of the validation.',
    'FrozenLake begins with a warm start on random play, Sokoban with nothing. Warm start and validations are part of the',
    'time. The figures depend on the machine: compare them on one that does nothing else.',
    '',
    ...table(),
    '',
  ].join('\n');
}
