/**
 * Branching rollouts against single episodes at equal cost, `npm run bench:branching`: GRPO, PPO, GiGPO, prefix sampling, trees, vines
 * and graph credit, from one imitated policy per environment and seed, until each has used the budget of environment steps. Success
 * of validations from the original start is read at equal environment steps and at equal sampled tokens. The same command continues
 * where it was stopped; `--fresh` starts over. Writes docs/results/branching.md, its data and its curves after each run.
 *
 * `--environments FrozenLake,Sokoban,Sudoku,Countdown`, `--arms grpo,ppo,gigpo,prefix,tree,vine,graph`, `--seeds 0,1,2`, `--env-steps 200000`, `--imitated 2000`
 * episodes, `--every 5` iterations between validations of `--episodes 256`; `--runs` is the folder of the runs, `--out` that of page
 * and data. Settings behind the flags go to every run.
 */
import { existsSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { curvePlot } from '../docs/generator/plot.ts';
import { wilsonInterval } from '../trainer/algorithms/wilson-interval.ts';
import { readJsonLines } from '../trainer/tracking/jsonlines.ts';
import { latestCheckpoint } from '../trainer/training/run-folder/checkpoint.ts';
import { runFolderAt } from '../trainer/training/run-folder/run-folder.ts';
import { writeResultsIndex } from './claims/results-index.ts';
import { ROOT, runTrainer, trainerArguments } from './claims/run-trainer.ts';
import { positiveInteger, scriptFlags } from './flags.ts';
import { ServerProcess } from './server-process.ts';

const { values: flags, positionals } = scriptFlags(import.meta.filename, {
  allowPositionals: true,
  options: {
    environments: { type: 'string', default: 'FrozenLake,Sokoban,Sudoku' },
    arms: { type: 'string', default: 'grpo,ppo,gigpo,prefix,tree,vine,graph' },
    seeds: { type: 'string', default: '0,1,2' },
    'env-steps': { type: 'string', default: '200000' },
    imitated: { type: 'string', default: '2000' },
    every: { type: 'string', default: '5' },
    episodes: { type: 'string', default: '256' },
    runs: { type: 'string', default: 'runs' },
    out: { type: 'string', default: ROOT },
    fresh: { type: 'boolean', default: false },
  },
});

/** Recipe and changes of each arm; groups of 8 in all. */
const ARMS: { readonly [name: string]: readonly string[] } = {
  grpo: ['recipe=grpo'],
  ppo: ['recipe=starpo', 'rollout.group_size=8', 'rollout.env_groups=32'],
  gigpo: ['recipe=gigpo'],
  prefix: ['recipe=prefix'],
  tree: ['recipe=tree'],
  vine: ['recipe=vine', 'rollout.vine.clones=3', 'algorithm.mini_batch_size=32'],
  graph: ['recipe=graph_gpo'],
};
/** A game of symbols on its own; credit by turns takes whole episodes, and trees take returns as they are. */
const game = (name: string) => ({
  config: 'configs/generalist-nano.yaml',
  overrides: [
    `train_tags=[${name}Train]`,
    `validation.tags=[${name}Unseen]`,
    'rollout.context_mode=full',
    'rollout.max_context_window=0',
    'algorithm.reward_normalization.method=identity',
  ],
});
const ENVIRONMENTS: {
  readonly [name: string]: { readonly config: string; readonly overrides: readonly string[] };
} = {
  FrozenLake: { config: 'configs/frozenlake-grpo.yaml', overrides: [] },
  Sokoban: { config: 'configs/sokoban-nano-grpo.yaml', overrides: [] },
  Sudoku: game('Sudoku'),
  Countdown: game('Countdown'),
};

type Axis = 'envSteps' | 'tokens';
const AXES: readonly (readonly [Axis, unit: string])[] = [
  ['envSteps', 'environment step'],
  ['tokens', 'sampled token'],
];

const chosen = (flag: 'environments' | 'arms', known: readonly string[]): string[] => {
  const names = flags[flag].split(',');
  const wrong = names.find(name => !known.includes(name));
  if (wrong !== undefined)
    throw new RangeError(`--${flag}: there is no ${wrong}; there are ${known.join(', ')}`);
  return names;
};
const environments = chosen('environments', Object.keys(ENVIRONMENTS));
const arms = chosen('arms', Object.keys(ARMS));
const seeds = flags.seeds.split(',').map(text => {
  const seed = Number(text);
  if (text === '' || !Number.isInteger(seed) || seed < 0)
    throw new RangeError(`--seeds are whole numbers from 0, got ${flags.seeds}`);
  return seed;
});
const budget = positiveInteger('env-steps', flags['env-steps']);
const episodes = positiveInteger('episodes', flags.episodes);
const folder = resolve(flags.runs, 'bench-branching');
if (flags.fresh) rmSync(folder, { recursive: true, force: true });
mkdirSync(folder, { recursive: true });
const PLACES = ['--runs', '--out'];
const given = process.argv
  .slice(2)
  .filter(
    (argument, i, all) =>
      argument !== '--fresh' && !PLACES.includes(argument) && !PLACES.includes(all[i - 1]),
  );
const command = `npm run bench:branching${given.length === 0 ? '' : ` -- ${given.join(' ')}`}`;

/** A validation with what had been used by then. */
interface Point {
  readonly envSteps: number;
  readonly tokens: number;
  /** 0 to 1. */
  readonly success: number;
}

interface Run {
  readonly environment: string;
  readonly arm: string;
  readonly seed: number;
  readonly iterations: number;
  readonly updates: number;
  readonly seconds: number;
  readonly points: readonly Point[];
}

const runs: Run[] = [];
const server = new ServerProcess([]);
try {
  await server.start();
  for (const environment of environments) {
    for (const seed of seeds) {
      const start = await imitated(environment, seed);
      for (const arm of arms) {
        runs.push(await trained({ environment, arm, seed, start }));
        write();
      }
    }
  }
} finally {
  await server.end('SIGTERM');
}
console.log(page());

/** The policy that all arms of an environment and seed begin with. */
async function imitated(environment: string, seed: number): Promise<string> {
  const name = `${environment.toLowerCase()}-imitated-${seed}`;
  const { config, overrides: own } = ENVIRONMENTS[environment];
  const overrides = [
    ...own,
    `seed=${seed}`,
    'seeds.validation=123',
    'policy.value_head=true',
    `warm_start.episodes=${positiveInteger('imitated', flags.imitated)}`,
    ...positionals,
  ];
  const run = runFolderAt(join(folder, name));
  if (!existsSync(run.summary)) await ended({ command: 'sft', config, name, overrides });
  return latestCheckpoint(run)!.policy;
}

interface Plan {
  readonly environment: string;
  readonly arm: string;
  readonly seed: number;
  readonly start: string;
}

async function trained({ environment, arm, seed, start }: Plan): Promise<Run> {
  const name = `${environment.toLowerCase()}-${arm}-${budget}-${seed}`;
  const { config, overrides: own } = ENVIRONMENTS[environment];
  const overrides = [
    ...own,
    ...ARMS[arm],
    `seed=${seed}`,
    'seeds.validation=123',
    `policy.init=${JSON.stringify(start)}`,
    'warm_start=null',
    `training.max_env_steps=${budget}`,
    'training.steps=1000000',
    `training.validate_every=${positiveInteger('every', flags.every)}`,
    'training.checkpoint_every=1000000',
    `validation.episodes=${episodes}`,
    'validation.sets={}',
    'optimizer.decay=constant',
    'tracking.tensorboard=false',
    'tracking.trajectories_every=0',
    'diagnostics.collapse.every=0',
    ...positionals,
  ];
  const run = runFolderAt(join(folder, name));
  if (!existsSync(run.summary)) await ended({ command: 'train', config, name, overrides });
  const { state } = latestCheckpoint(run)!;
  return {
    environment,
    arm,
    seed,
    iterations: state.step,
    updates: state.updates,
    seconds: state.seconds,
    points: pointsOf(readJsonLines(run.metrics) as Row[]),
  };
}

interface Row {
  readonly [name: string]: number;
}

function pointsOf(rows: readonly Row[]): Point[] {
  let [envSteps, tokens] = [0, 0];
  const points: Point[] = [];
  for (const row of rows) {
    if ('training/env_steps' in row) {
      envSteps = row['training/env_steps'];
      tokens = row['training/sampled_tokens'];
    }
    if ('val-env/success' in row) points.push({ envSteps, tokens, success: row['val-env/success'] });
  }
  return points;
}

async function ended(plan: {
  readonly command: 'train' | 'sft';
  readonly config: string;
  readonly name: string;
  readonly overrides: readonly string[];
}): Promise<void> {
  const status = await runTrainer(trainerArguments({ ...plan, folder, server: server.origin }), 'ignore');
  if (status !== 0) throw new Error(`${plan.name} ended with status ${status}; the same command goes on`);
}

function write(): void {
  const results = join(flags.out, 'docs/results');
  mkdirSync(join(results, 'data'), { recursive: true });
  mkdirSync(join(flags.out, 'docs/pictures'), { recursive: true });
  const data = { title: 'Branching rollouts at equal cost', command, budget, episodes, runs };
  writeFileSync(join(results, 'data/branching.json'), `${JSON.stringify(data, null, 1)}\n`);
  writeFileSync(join(results, 'branching.md'), page());
  for (const [file, figure] of figures()) writeFileSync(join(flags.out, 'docs/pictures', file), figure);
  writeResultsIndex(results);
}

/** Curves of an environment over both budgets: means over the seeds, as far as every run of it went. */
function figures(): [file: string, figure: string][] {
  return [...new Set(runs.map(({ environment }) => environment))].flatMap(environment => {
    const own = runs.filter(run => run.environment === environment);
    return AXES.map(([axis, unit]): [string, string] => {
      const last = commonBudget(own, axis);
      const budgets = Array.from({ length: 11 }, (_, i) => (i / 10) * last);
      const curves = [...new Set(own.map(({ arm }) => arm))].map(arm => ({
        name: arm,
        points: budgets.map((at): [number, number] => [
          at,
          100 * mean(own.flatMap(run => (run.arm === arm ? (successAt(run.points, axis, at) ?? []) : []))),
        ]),
      }));
      return [pictureOf(environment, axis), curvePlot(`${environment} at equal cost`, curves, unit)];
    });
  });
}

function pictureOf(environment: string, axis: Axis): string {
  return `branching-${environment.toLowerCase()}-${axis === 'envSteps' ? 'steps' : 'tokens'}.svg`;
}

/** The most of a budget that every run used. */
function commonBudget(own: readonly Run[], axis: Axis): number {
  return Math.min(...own.map(({ points }) => points.at(-1)![axis]));
}

/** Success at a budget, between the two validations around it; undefined where the run did not get there. */
function successAt(points: readonly Point[], axis: Axis, at: number): number | undefined {
  const after = points.findIndex(point => point[axis] >= at);
  if (after < 0) return undefined;
  if (after === 0) return points[0].success;
  const [a, b] = [points[after - 1], points[after]];
  const part = (at - a[axis]) / (b[axis] - a[axis]);
  return a.success + part * (b.success - a.success);
}

/** Tables of all runs so far, one for each environment. */
function page(): string {
  const lines = [
    '# Branching rollouts at equal cost',
    '',
    '_Reference._ Written by',
    `\`${command}\``,
    'from [its data](./data/branching.json). All arms of a seed begin with the same imitated policy and play the same',
    'validation levels from the original start. Success is read between the two validations around the budget, as the mean',
    'over the seeds; the interval is Wilson’s 95 % over their episodes together. The budgets are the most that every run of',
    'the environment reached. [What is counted](../how-to/branch-rollouts.md#count-the-budget).',
    '',
  ];
  for (const environment of new Set(runs.map(run => run.environment))) {
    const own = runs.filter(run => run.environment === environment);
    const steps = commonBudget(own, 'envSteps');
    const tokens = commonBudget(own, 'tokens');
    lines.push(
      `## ${environment}`,
      '',
      `| arm | seeds | before % | after ${steps} environment steps % | after ${tokens} sampled tokens % | iterations | optimizer steps | seconds |`,
      '| --- | --- | --- | --- | --- | --- | --- | --- |',
      ...[...new Set(own.map(({ arm }) => arm))].map(arm =>
        rowOf(
          own.filter(run => run.arm === arm),
          steps,
          tokens,
        ),
      ),
      '',
      ...AXES.flatMap(([axis, unit]) => [
        `![Success on ${environment} by ${unit}](../pictures/${pictureOf(environment, axis)})`,
        '',
      ]),
    );
  }
  lines.push(
    'Intervals that overlap show no difference. The learning rate is that of the config for all arms, not tuned for each.',
    'Seconds depend on what else the machine did.',
    '',
  );
  return lines.join('\n');
}

function rowOf(own: readonly Run[], steps: number, tokens: number): string {
  const cell = (axis: Axis, at: number) => {
    const shares = own.flatMap(({ points }) => successAt(points, axis, at) ?? []);
    const share = mean(shares);
    const count = episodes * shares.length;
    const [low, high] = wilsonInterval(Math.round(share * count), count);
    const percent = (value: number) => (100 * value).toFixed(1);
    return `${percent(share)} (${percent(low)} to ${percent(high)})`;
  };
  const rounded = (pick: (run: Run) => number) => String(Math.round(mean(own.map(pick))));
  const before = (100 * mean(own.map(({ points }) => points[0].success))).toFixed(1);
  return `| ${[
    own[0].arm,
    own.map(({ seed }) => seed).join(', '),
    before,
    cell('envSteps', steps),
    cell('tokens', tokens),
    rounded(({ iterations }) => iterations),
    rounded(({ updates }) => updates),
    rounded(({ seconds }) => seconds),
  ].join(' | ')} |`;
}

function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}
