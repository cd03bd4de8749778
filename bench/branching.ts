/**
 * Branching rollouts against single episodes at equal cost, `npm run bench:branching`: GRPO, PPO, GiGPO, prefix sampling, trees, vines
 * and graph credit, from one imitated policy per environment and seed, until each has used the budget of environment steps. Success
 * of validations from the original start is read at equal environment steps and at equal sampled tokens. The same command continues
 * where it was stopped; `--fresh` starts over. Writes docs/results/branching.md, its data and its curves after each run, and keeps
 * what the data has of other environments.
 *
 * `--environments FrozenLake,SokobanEasy,Sokoban,Sudoku,Countdown`, `--arms grpo,ppo,gigpo,prefix,tree,vine,graph`, `--seeds 0,1,2`,
 * `--env-steps 200000`, `--imitated 2000` episodes, `--imitated-seed 0` for one policy in place of one a seed, `--every 5` iterations
 * between validations of `--episodes 256`; `--runs` is the folder of the runs, `--out` that of page and data. Settings behind the
 * flags go to every run.
 */
import { existsSync, mkdirSync, rmSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { readJsonLines } from '../trainer/tracking/jsonlines.ts';
import { latestCheckpoint } from '../trainer/training/run-folder/checkpoint.ts';
import { runFolderAt } from '../trainer/training/run-folder/run-folder.ts';
import { type BranchingRun, type Point, writeComparison } from './branching/report.ts';
import { completeRun, ROOT, trainerArguments } from './claims/run-trainer.ts';
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
    'imitated-seed': { type: 'string' },
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
    'validation.sets={}',
    'rollout.context_mode=full',
    'rollout.max_context_window=0',
    'algorithm.reward_normalization.method=identity',
  ],
});
interface Environment {
  readonly config: string;
  /** Sentences for the page. */
  readonly about?: string;
  readonly overrides: readonly string[];
  /** The warm start alone takes these. */
  readonly imitation?: readonly string[];
}
const ENVIRONMENTS: { readonly [name: string]: Environment } = {
  FrozenLake: { config: 'configs/frozenlake-grpo.yaml', overrides: [] },
  SokobanEasy: {
    config: 'configs/sokoban-nano-grpo.yaml',
    about: 'Rooms of one box, solved in 1 to 3 moves, from random play on.',
    overrides: [
      'train_tags=[SokobanEasy]',
      'tags.SokobanUnseen.config.max_solution=3',
      'policy.layers=2',
      'optimizer.learning_rate=1e-3',
    ],
    imitation: ['warm_start.policy=random', 'warm_start.epochs=4'],
  },
  Sokoban: {
    config: 'configs/sokoban-nano-grpo.yaml',
    about: 'Rooms of one box, ten moves, one a turn, from games of the best player on.',
    overrides: [
      ...['SokobanTrain', 'SokobanUnseen'].flatMap(tag => [
        `tags.${tag}.max_turn=10`,
        `tags.${tag}.max_actions_per_turn=1`,
      ]),
      'train_tags=[SokobanTrain]',
      'policy.layers=3',
      'policy.context=768',
      'rollout.constrained=true',
    ],
    imitation: ['warm_start.policy=optimal', 'warm_start.batch_size=32', 'warm_start.epochs=5'],
  },
  Sudoku: {
    config: 'configs/base.yaml',
    about:
      'Boards of 4 × 4 with six empty cells and six placements, one a turn, so that each must be right. Only legal placements\nare sampled, of which random ones solve two boards in three. All seeds begin\nwith one policy.',
    overrides: [
      ...[
        ['SudokuTrain', 'train'],
        ['SudokuUnseen', 'validation'],
      ].map(
        ([tag, split]) =>
          `tags.${tag}={env_id: Sudoku-v0, config: {difficulty: easy, split: ${split}}, max_turn: 6, max_actions_per_turn: 1, max_actions_per_traj: 6}`,
      ),
      'train_tags=[SudokuTrain]',
      'validation.tags=[SudokuUnseen]',
      'policy.context=640',
      'rollout.response_length=12',
      'rollout.constrained=true',
      'algorithm.reward_scale=0.2',
      'loss.entropy_coefficient=0',
      'optimizer.learning_rate=5e-4',
      'optimizer.warmup_iterations=0',
    ],
    imitation: [
      'warm_start.policy=optimal',
      'warm_start.learn=responses',
      'warm_start.batch_size=32',
      'warm_start.epochs=5',
    ],
  },
  Countdown: game('Countdown'),
};

const chosen = (flag: 'environments' | 'arms', known: readonly string[]): string[] => {
  const names = flags[flag].split(',');
  const wrong = names.find(name => !known.includes(name));
  if (wrong !== undefined)
    throw new RangeError(`--${flag}: there is no ${wrong}; there are ${known.join(', ')}`);
  return names;
};
const environments = chosen('environments', Object.keys(ENVIRONMENTS));
const arms = chosen('arms', Object.keys(ARMS));
const seedsOf = (flag: 'seeds' | 'imitated-seed'): number[] =>
  (flags[flag]?.split(',') ?? []).map(text => {
    const seed = Number(text);
    if (text === '' || !Number.isInteger(seed) || seed < 0)
      throw new RangeError(`--${flag}: whole numbers from 0, got ${flags[flag]}`);
    return seed;
  });
const seeds = seedsOf('seeds');
const [imitatedSeed] = seedsOf('imitated-seed');
const budget = positiveInteger('env-steps', flags['env-steps']);
const episodes = positiveInteger('episodes', flags.episodes);
const folder = resolve(flags.runs, 'bench-branching');
if (flags.fresh) rmSync(folder, { recursive: true, force: true });
mkdirSync(folder, { recursive: true });
/** The flags that a page names: neither places nor what starts over, and its own environment alone. */
const UNNAMED = ['--runs', '--out', '--environments'];
const given = process.argv
  .slice(2)
  .filter(
    (argument, i, all) =>
      argument !== '--fresh' && !UNNAMED.includes(argument) && !UNNAMED.includes(all[i - 1]),
  );

const server = new ServerProcess([]);
try {
  await server.start();
  for (const environment of environments) {
    const runs: BranchingRun[] = [];
    const command = ['npm run bench:branching -- --environments', environment, ...given].join(' ');
    for (const seed of seeds) {
      const start = await imitated(environment, imitatedSeed ?? seed);
      for (const arm of arms) {
        runs.push(await trained({ environment, arm, seed, start }));
        const { about } = ENVIRONMENTS[environment];
        console.log(
          writeComparison(flags.out, {
            environment,
            ...(about === undefined ? {} : { about }),
            command,
            budget,
            episodes,
            runs,
          }),
        );
      }
    }
  }
} finally {
  await server.end('SIGTERM');
}

/** The policy that all arms of an environment and seed begin with. */
async function imitated(environment: string, seed: number): Promise<string> {
  const name = `${environment.toLowerCase()}-imitated-${seed}`;
  const { config, overrides: own, imitation = [] } = ENVIRONMENTS[environment];
  const overrides = [
    ...own,
    ...imitation,
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

async function trained({ environment, arm, seed, start }: Plan): Promise<BranchingRun> {
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
  await completeRun(trainerArguments({ ...plan, folder, server: server.origin }), 'ignore');
}
