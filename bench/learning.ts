/**
 * A regression figure of learning: success after a fixed time, `npm run bench:learning`. FrozenLake has 3 minutes and Sokoban
 * 10 by default, both by reinforcement learning. FrozenLake is cut off while success still rises, so that lost speed shows. Warm
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

import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { documentedEnvironment } from '../docs/documented-environments.ts';
import { loadRunSettings } from '../trainer/config/load.ts';
import type { RunSummary } from '../trainer/training/run-folder/report.ts';
import { readOutcome } from './claims/outcomes.ts';
import { completeRun, ROOT, trainerArguments } from './claims/run-trainer.ts';
import { positiveInteger, scriptFlags } from './flags.ts';
import { ServerProcess } from './server-process.ts';

/** Points of success above random play that a run of an environment of one's own must gain. */
const WANTED_GAIN = 0.3;
const SEEDS = [0, 1, 2];
/** Environments that the pages define, and the program that serves one. */
const ENVIRONMENTS = [
  { id: 'me/Guess-v0', tag: 'Guess', what: 'script', service: undefined },
  {
    id: 'me/HigherLower-v0',
    tag: 'HigherLower',
    what: 'service in Python',
    service: 'docs/examples/higher_lower.py',
  },
] as const;

/** A run on an environment that a page defines, with the config that `init` wrote. */
interface OwnRun {
  readonly env_id: string;
  readonly what: string;
  readonly seed: number;
  /** Success of random play, 0 to 1. */
  readonly random: number;
  readonly seconds: number;
  readonly episodes: number;
  /** Success, 0 to 1, of each validation, by iteration. */
  readonly points: readonly { readonly step: number; readonly success: number }[];
}

/** Data of `docs/results/data/own-environments.json`. */
export interface OwnEnvironments {
  readonly title: string;
  readonly command: string;
  readonly rows: readonly OwnRun[];
}

/**
 * Trains the environments of one's own that the documentation defines, with the configs that `init` writes, three seeds each.
 * Continues where it was stopped.
 * @param server that may reach services on this machine
 * @param folder of the runs and configs
 * @param keep called with all data so far after each run
 * @throws Error for a run that ends less than 30 points of success above random play
 */
export async function trainOwnEnvironments(
  server: string,
  folder: string,
  keep: (rows: readonly OwnRun[]) => void,
): Promise<void> {
  mkdirSync(folder, { recursive: true });
  const rows: OwnRun[] = [];
  for (const environment of ENVIRONMENTS) {
    const { id, tag, service } = environment;
    const started = service === undefined ? undefined : await startService(service);
    try {
      await register(server, id, started?.url);
      const config = join(folder, `${tag}.yaml`);
      if (!existsSync(config))
        await completeRun(['init', id, '--servers', server, '--out', config], 'ignore');
      for (const seed of SEEDS) {
        rows.push(await trained({ environment, config, seed, folder, server }));
        keep(rows);
      }
    } finally {
      started?.child.kill();
    }
  }
  const weak = rows.filter(({ points, random }) => points.at(-1)!.success < random + WANTED_GAIN);
  if (weak.length > 0) {
    const named = weak.map(({ env_id, seed }) => `${env_id} with seed ${seed}`).join(', ');
    throw new Error(`less than ${100 * WANTED_GAIN} points above random play: ${named}`);
  }
}

interface RunPlan {
  readonly environment: (typeof ENVIRONMENTS)[number];
  readonly config: string;
  readonly seed: number;
  readonly folder: string;
  readonly server: string;
}

async function trained({ environment, config, seed, folder, server }: RunPlan): Promise<OwnRun> {
  const { id, tag, what } = environment;
  const name = `${tag.toLowerCase()}-seed-${seed}`;
  const overrides = [
    `seed=${seed}`,
    'seeds.validation=123',
    'diagnostics.collapse.every=0',
    'policy.workers=1',
  ];
  if (!readOutcome(join(folder, name), tag, seed)) {
    await completeRun(
      trainerArguments({ command: 'train', config, folder, name, server, overrides }),
      'ignore',
    );
  }
  const { points, seconds, episodes } = readOutcome(join(folder, name), tag, seed)!;
  return {
    env_id: id,
    what,
    seed,
    random: loadRunSettings(config).tags[tag].random_success!,
    seconds,
    episodes,
    points: points.map(({ step, success }) => ({ step, success })),
  };
}

async function register(server: string, envId: string, url: string | undefined): Promise<void> {
  const { definition } = documentedEnvironment(envId);
  const reply = await fetch(`${server}/v1/envs`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({
      env_id: envId,
      definition: url === undefined ? definition : { ...definition, url },
    }),
  });
  if (!reply.ok) throw new Error(`${envId}: ${await reply.text()}`);
}

async function startService(file: string): Promise<{ readonly url: string; readonly child: ChildProcess }> {
  const child = spawn('python3', [join(ROOT, file), '--port', '0'], { stdio: ['ignore', 'pipe', 'inherit'] });
  const [said] = (await once(child.stdout, 'data')) as [Buffer];
  return { url: /http:\S+/.exec(String(said))![0], child };
}

/** The page of the results. */
function ownEnvironmentsPage({ command, rows }: OwnEnvironments): string {
  const percent = (share: number) => (100 * share).toFixed(1);
  return [
    '# Environments of your own',
    '',
    `_Reference._ Written by \`${command}\``,
    'from [its data](./data/own-environments.json).',
    'Sampled success on validation levels, after the whole config that `init` wrote, for the',
    '[script](../how-to/script-environments.md) and the [service](../how-to/remote-environments.md) of the documentation, as',
    'far as they have been trained. Random play is that of 64 episodes; seconds depend on what else the machine does.',
    '',
    '![Success over the iterations](../pictures/own-environments.svg)',
    '',
    '| environment | kind | seed | random % | success % | 30 points above random after | iterations | episodes | seconds |',
    '|---|---|---|---|---|---|---|---|---|',
    ...rows.map(({ env_id, what, seed, random, seconds, episodes, points }) => {
      const { step, success } = points.at(-1)!;
      const reached = points.find(point => point.success >= random + WANTED_GAIN)?.step;
      return `| ${env_id} | ${what} | ${seed} | ${percent(random)} | ${percent(success)} | ${reached ?? '–'} | ${step} | ${episodes} | ${Math.round(seconds)} |`;
    }),
    '',
  ].join('\n');
}

/** Writes data and page into a folder of results. */
export function writeOwnEnvironments(results: string, data: OwnEnvironments): void {
  mkdirSync(join(results, 'data'), { recursive: true });
  writeFileSync(join(results, 'data/own-environments.json'), `${JSON.stringify(data, null, 2)}\n`);
  writeFileSync(join(results, 'own-environments.md'), ownEnvironmentsPage(data));
}

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
    overrides: ['training.steps=300', 'validation.sets={}'],
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
      const all = [...overrides, ...length, ...positionals];
      await completeRun(trainerArguments({ ...planned, overrides: all }), 'ignore');
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
