import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { curvePlot } from '../../docs/generator/plot.ts';
import { wilsonInterval } from '../../trainer/algorithms/statistics.ts';

const TITLE = 'Branching rollouts at equal cost';

/** A validation with what had been used by then. */
export interface Point {
  readonly envSteps: number;
  readonly tokens: number;
  /** 0 to 1. */
  readonly success: number;
}

export interface BranchingRun {
  readonly arm: string;
  readonly seed: number;
  readonly iterations: number;
  readonly updates: number;
  readonly seconds: number;
  readonly points: readonly Point[];
}

/** The runs of an environment so far. */
export interface Comparison {
  readonly environment: string;
  /** Sentences under its heading. */
  readonly about?: string;
  /** Prints the same. */
  readonly command: string;
  /** Environment steps after which a run ends. */
  readonly budget: number;
  /** Episodes of each validation. */
  readonly episodes: number;
  readonly runs: readonly BranchingRun[];
}

type Axis = 'envSteps' | 'tokens';
const AXES: readonly (readonly [Axis, unit: string])[] = [
  ['envSteps', 'environment step'],
  ['tokens', 'sampled token'],
];

/**
 * Writes page, data and curves, with an environment's comparison in place of the one that the data had of it.
 * @param out folder that has docs/results
 * @returns the section of the environment
 */
export function writeComparison(out: string, comparison: Comparison): string {
  const results = join(out, 'docs/results');
  const pictures = join(out, 'docs/pictures');
  mkdirSync(join(results, 'data'), { recursive: true });
  mkdirSync(pictures, { recursive: true });
  const file = join(results, 'data/branching.json');
  const before = existsSync(file)
    ? (JSON.parse(readFileSync(file, 'utf8')) as { comparisons: Comparison[] }).comparisons
    : [];
  const isSame = ({ environment }: Comparison) => environment === comparison.environment;
  const comparisons = before.some(isSame)
    ? before.map(one => (isSame(one) ? comparison : one))
    : [...before, comparison];
  writeFileSync(file, `${JSON.stringify({ title: TITLE, comparisons }, null, 2)}\n`);
  writeFileSync(join(results, 'branching.md'), page(comparisons));
  for (const [name, figure] of figures(comparison)) writeFileSync(join(pictures, name), figure);
  return section(comparison).join('\n');
}

function page(comparisons: readonly Comparison[]): string {
  return [
    `# ${TITLE}`,
    '',
    '_Reference._ Written from [its data](./data/branching.json) by the command of each section. All arms of a seed share',
    'the imitated policy, the learning rate and the validation levels, which never occur in training. Success is',
    'interpolated at the budget that every run reached: mean over the seeds, Wilson’s 95 % interval.',
    '[What is counted](../how-to/branch-rollouts.md#count-the-budget).',
    'Countdown has one turn: there is no later turn to branch at or to credit apart, so it is not compared.',
    '',
    ...comparisons.flatMap(section),
  ].join('\n');
}

function section(comparison: Comparison): string[] {
  const { environment, about, command, runs } = comparison;
  const steps = commonBudget(runs, 'envSteps');
  const tokens = commonBudget(runs, 'tokens');
  const seeds = [...new Set(runs.map(({ seed }) => seed))].sort((a, b) => a - b);
  return [
    `## ${environment}`,
    '',
    ...(about === undefined ? [] : [about, '']),
    '```sh',
    command,
    '```',
    '',
    `Before: ${success(mean(runs.map(({ points }) => points[0].success)))} % with seeds ${seeds.join(', ')}.`,
    '',
    `| arm | after ${steps} environment steps % | after ${tokens} sampled tokens % | iterations |`,
    '|---|---|---|---|',
    ...armsOf(runs).map(arm => row(comparison, arm, { envSteps: steps, tokens })),
    '',
    ...AXES.flatMap(([axis, unit]) => [
      `![Success on ${environment} by ${unit}](../pictures/${pictureOf(environment, axis)})`,
      '',
    ]),
  ];
}

const success = (share: number) => (100 * share).toFixed(1);

function row(
  { runs, episodes }: Comparison,
  arm: string,
  budgets: { readonly [axis in Axis]: number },
): string {
  const own = runs.filter(run => run.arm === arm);
  const cell = (axis: Axis) => {
    const shares = own.flatMap(({ points }) => successAt(points, axis, budgets[axis]) ?? []);
    const share = mean(shares);
    const count = episodes * shares.length;
    const [low, high] = wilsonInterval(Math.round(share * count), count);
    return `${success(share)} (${success(low)}–${success(high)})`;
  };
  const iterations = Math.round(mean(own.map(run => run.iterations)));
  return `| ${arm} | ${cell('envSteps')} | ${cell('tokens')} | ${iterations} |`;
}

/** Curves over both budgets: means over the seeds, as far as every run went. */
function figures({ environment, runs }: Comparison): [file: string, figure: string][] {
  return AXES.map(([axis, unit]): [string, string] => {
    const last = commonBudget(runs, axis);
    const budgets = Array.from({ length: 11 }, (_, i) => (i / 10) * last);
    const curves = armsOf(runs).map(arm => ({
      name: arm,
      points: budgets.map((at): [number, number] => [
        at,
        100 * mean(runs.flatMap(run => (run.arm === arm ? (successAt(run.points, axis, at) ?? []) : []))),
      ]),
    }));
    return [pictureOf(environment, axis), curvePlot(`${environment} at equal cost`, curves, unit)];
  });
}

function pictureOf(environment: string, axis: Axis): string {
  return `branching-${environment.toLowerCase()}-${axis === 'envSteps' ? 'steps' : 'tokens'}.svg`;
}

function armsOf(runs: readonly BranchingRun[]): string[] {
  return [...new Set(runs.map(({ arm }) => arm))];
}

/** The most of a budget that every run used. */
function commonBudget(runs: readonly BranchingRun[], axis: Axis): number {
  return Math.min(...runs.map(({ points }) => points.at(-1)![axis]));
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

function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}
