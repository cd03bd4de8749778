import { existsSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { atEnd } from '../../../shared/closing.ts';
import { parseOverride } from '../../../shared/config.ts';
import { makeFolder, replaceFileSync } from '../../../shared/replace-file.ts';
import { mapConcurrently } from '../../../shared/scheduling/queues.ts';
import { mean, pairedBootstrap, unbiasedStd } from '../../algorithms/statistics.ts';
import { loadRunSettings, RESUMABLE } from '../../config/load.ts';
import type { RunSettings } from '../../config/settings.ts';
import { shownDuration, shownShare } from '../../tracking/progress.ts';
import { markdownText } from '../../tracking/text-table.ts';
import { latestCheckpoint, type ValidationRecord } from '../../training/run-folder/checkpoint.ts';
import type { RunSummary } from '../../training/run-folder/report.ts';
import { openRunFolder, runFolderAt } from '../../training/run-folder/run-folder.ts';
import { withoutRevisions } from '../hub/local-models.ts';
import type { OptionsOf } from '../options.ts';
import {
  type ChildProgram,
  INTERRUPTED_STATUS,
  startTrainer,
  stopRequests,
} from '../processes/child-program.ts';
import { commandOf } from '../processes/trainer-process.ts';
import { type Halving, readSweep, type SweepPlan, type SweepRun } from './sweep-plan.ts';

/** A run of a sweep with its progress. */
export interface SweepOutcome extends SweepRun {
  /** `dropped` by successive halving. */
  readonly status: 'waiting' | 'done' | 'failed' | 'dropped';
  readonly summary?: RunSummary;
}

/** Success of the variants over their seeds, as a Markdown table. */
export function sweepReport(plan: SweepPlan, outcomes: readonly SweepOutcome[]): string {
  const done = outcomes.filter(({ status }) => status === 'done').length;
  const failed = outcomes.filter(({ status }) => status === 'failed').length;
  const dropped = outcomes.filter(({ status }) => status === 'dropped').length;
  const variants = [...new Set(outcomes.map(({ variant }) => variant))];
  const rows = variants.flatMap(variant => variantRows(variant, outcomes));
  return [
    `# ${plan.name}`,
    '',
    `${done} of ${outcomes.length} runs done${failed > 0 ? `, ${failed} failed` : ''}${dropped > 0 ? `, ${dropped} dropped` : ''}.`,
    '',
    '| variant | tag | success before | success after | of each seed | time |',
    '|---|---|---|---|---|---|',
    ...rows,
    '',
    'Success on the validation levels at the last validation of each run: mean ± standard deviation over the seeds. A run that is not done has its iteration next to it.',
    '',
    ...pairedRows(plan, outcomes),
  ].join('\n');
}

/** Each variant against the baseline, over the seeds that both have finished. */
function pairedRows({ baseline }: SweepPlan, outcomes: readonly SweepOutcome[]): string[] {
  const success = (variant: string, seed: number) =>
    outcomes.find(one => one.variant === variant && one.seed === seed && one.status === 'done')?.summary
      ?.after?.success;
  const seeds = [...new Set(outcomes.map(({ seed }) => seed))];
  const rows = [...new Set(outcomes.map(({ variant }) => variant))].flatMap(variant => {
    const pairs = seeds.flatMap(seed => {
      const [a, b] = [success(baseline, seed), success(variant, seed)];
      return variant !== baseline && a !== undefined && b !== undefined ? [[a, b] as const] : [];
    });
    if (pairs.length < 2) return [];
    const { difference, low, high, p } = pairedBootstrap(
      pairs.map(([a]) => a),
      pairs.map(([, b]) => b),
    );
    const points = (share: number) => (100 * share).toFixed(1);
    return [
      `| ${variant} | ${pairs.length} | ${points(difference)} | ${points(low)} to ${points(high)} | ${p.toFixed(3)} |`,
    ];
  });
  if (rows.length === 0) return [];
  return [
    `| against ${baseline} | seeds | points of success | 95 % interval | p |`,
    '|---|---|---|---|---|',
    ...rows,
    '',
    'Differences seed by seed: percentile bootstrap over the seeds, and the p-value of the sign-flip test, which with n seeds is at least 2^(1 − n).',
    '',
  ];
}

function variantRows(variant: string, outcomes: readonly SweepOutcome[]): string[] {
  const own = outcomes.filter(outcome => outcome.variant === variant);
  const summaries = own.flatMap(({ summary }) => (summary?.after ? [summary] : []));
  if (summaries.length === 0) return [`| ${variant} |  |  |  | ${seedCells(own, undefined)} |  |`];
  const seconds = mean(summaries.map(summary => summary.seconds));
  return Object.keys(summaries[0].after!.tags).map(tag => {
    const of = (when: 'before' | 'after') =>
      summaries.flatMap(summary => summary[when]?.tags[tag]?.success ?? []);
    return `| ${variant} | ${tag} | ${spread(of('before'))} | ${spread(of('after'))} | ${seedCells(own, tag)} | ${shownDuration(seconds)} |`;
  });
}

function seedCells(outcomes: readonly SweepOutcome[], tag: string | undefined): string {
  return outcomes
    .map(({ status, summary }) => {
      const success = tag === undefined ? undefined : summary?.after?.tags[tag]?.success;
      if (success === undefined) return status;
      const at = status === 'done' ? '' : ` (${status} at step ${summary!.step})`;
      return `${shownShare(success)}${at}`;
    })
    .join(', ');
}

function spread(values: readonly number[]): string {
  if (values.length === 0) return '';
  const std = values.length > 1 ? ` ± ${shownShare(unbiasedStd(values))}` : '';
  return shownShare(mean(values)) + std;
}

/** Iterations at which runs are compared, ascending; the last round goes to the end and is not among them. */
export function halvingRounds({ first_steps, factor }: Halving, steps: number): number[] {
  const rounds: number[] = [];
  for (let step = first_steps; step < steps; step *= factor) rounds.push(step);
  return rounds;
}

/** A run at the end of a round. */
interface RoundResult {
  readonly variant: string;
  /** The monitored metric there, or at an earlier end of the run; undefined for a failed run. */
  readonly value: number | undefined;
}

/** The metric of a run at the end of a round, or of its last validation if it ended sooner, e.g. at its target. */
export function roundValue(
  validations: readonly ValidationRecord[],
  { step, metric, isOver }: { readonly step: number; readonly metric: string; readonly isOver: boolean },
): number | undefined {
  const there = validations.find(record => record.step === step);
  const last = isOver ? validations.filter(record => record.step < step).at(-1) : undefined;
  return (there ?? last)?.metrics[metric];
}

/**
 * The variants that continue (successive halving, Jamieson and Talwalkar, 2016): one in `factor`, at least one, by the
 * mean of the metric over their runs; ties go to the first. A variant with a failed run ranks last.
 */
export function survivors(results: readonly RoundResult[], factor: number, mode: 'max' | 'min'): string[] {
  const variants = [...new Set(results.map(({ variant }) => variant))];
  const scores = variants.map(variant => {
    const values = results.filter(result => result.variant === variant).map(({ value }) => value);
    const known = values.filter(value => value !== undefined);
    if (known.length < values.length) return Number.NEGATIVE_INFINITY;
    return mode === 'max' ? mean(known) : -mean(known);
  });
  const order = variants.map((_, i) => i).sort((a, b) => scores[b] - scores[a] || a - b);
  const kept = new Set(order.slice(0, Math.max(1, Math.floor(variants.length / factor))));
  return variants.filter((_, i) => kept.has(i));
}

/**
 * The command `sweep`: runs of a plan, each in a separate process, one after another or in parallel. It skips finished
 * runs and continues unfinished ones, so the same command continues a sweep that was stopped or killed.
 * @returns the exit status: 0 when all runs are done
 * @throws ConfigError for a faulty file or settings, before anything runs
 */
export async function sweep(
  file: string,
  overrides: readonly string[],
  options: OptionsOf<'sweep'>,
): Promise<number> {
  const plan = readSweep(file, overrides);
  const settings = plan.runs.map(run => loadRunSettings(plan.config, run.overrides));
  const folder = join(resolve(settings[0].run.folder), plan.name);
  const outcomes = plan.runs.map((run, i) => outcomeOf(folder, run, settings[i]));
  if (options.dryRun) {
    for (const outcome of outcomes)
      console.log(`${outcome.status}  ${outcome.name}  ${outcome.overrides.join(' ')}`);
    return 0;
  }
  makeFolder(folder);
  using stop = stopping();
  const command = commandOf('sweep', [file, ...overrides]);
  const state: SweepState = { folder, plan, settings, outcomes, options, stop, command };
  for (const step of plan.halving ? halvingRounds(plan.halving, settings[0].training.steps) : []) {
    await runAll(state, step);
    if (stop.asked) break;
    dropLosers(state, step);
  }
  if (!stop.asked) await runAll(state, null);
  writeResults(folder, plan, outcomes);
  const report = markdownText(sweepReport(plan, outcomes), process.stdout.columns);
  console.log(`\n${report}\nresults: ${join(folder, 'sweep.md')}`);
  if (stop.asked) {
    console.log(`stopped; continue with: ${command}`);
    return INTERRUPTED_STATUS;
  }
  return outcomes.every(({ status }) => status === 'done' || status === 'dropped') ? 0 : 1;
}

interface SweepState {
  readonly folder: string;
  readonly plan: SweepPlan;
  readonly settings: readonly RunSettings[];
  readonly outcomes: SweepOutcome[];
  readonly options: OptionsOf<'sweep'>;
  readonly stop: ReturnType<typeof stopping>;
  /** The user's command; it continues where the sweep stopped. */
  readonly command: string;
}

/** Brings all runs that are not dropped to an iteration, or to their end, `parallel` at once. */
async function runAll(state: SweepState, until: number | null): Promise<void> {
  const { folder, plan, settings, outcomes, stop } = state;
  const left = plan.runs.map((_, i) => i).filter(i => outcomes[i].status !== 'dropped');
  await mapConcurrently(left, plan.parallel, async i => {
    if (stop.asked) return;
    writeResults(folder, plan, outcomes);
    const run = plan.runs[i];
    if (outcomes[i].status === 'done' || (until !== null && reached(folder, run, until))) return;
    console.log(
      `run ${i + 1} of ${plan.runs.length}: ${run.name}${until === null ? '' : ` to step ${until}`}`,
    );
    const status = await stop.during(startTrainer(trainerArguments(state, run, until), state.command));
    outcomes[i] = outcomeOf(folder, run, settings[i], status !== 0 && !stop.asked);
  });
}

/** Drops the runs of variants that do not continue after a round. */
function dropLosers({ folder, plan, settings, outcomes }: SweepState, step: number): void {
  const running = plan.runs.map((_, i) => i).filter(i => outcomes[i].status !== 'dropped');
  const { metric, mode } = settings[0].training.monitor;
  const results = running.map(i => ({
    variant: plan.runs[i].variant,
    value: roundValue(validationsOf(folder, plan.runs[i]), {
      step,
      metric,
      isOver: outcomes[i].status === 'done',
    }),
  }));
  const kept = survivors(results, plan.halving!.factor, mode);
  for (const i of running) {
    if (!kept.includes(plan.runs[i].variant)) outcomes[i] = { ...outcomes[i], status: 'dropped' };
  }
  console.log(`after step ${step} continue: ${kept.join(', ')}`);
}

/** True if a run has reached an iteration and been validated there. */
function reached(folder: string, run: SweepRun, step: number): boolean {
  return validationsOf(folder, run).some(record => record.step >= step);
}

function validationsOf(folder: string, { name }: SweepRun): readonly ValidationRecord[] {
  return latestCheckpoint(runFolderAt(join(folder, name)))?.state.validations ?? [];
}

function trainerArguments(
  { folder, plan, options }: SweepState,
  { name, overrides }: SweepRun,
  until: number | null,
): string[] {
  const path = join(folder, name);
  const length = plan.halving ? [`training.stop_after=${until}`] : [];
  const what = existsSync(runFolderAt(path).config)
    ? ['--resume', path, ...overrides.filter(canChange), ...length]
    : [plan.config, ...overrides, ...length, `run.folder=${folder}`, `run.name=${name}`];
  return options.quiet ? [...what, '--quiet'] : what;
}

/**
 * The progress of a run, from its folder.
 * @throws Error when the folder holds a run with other settings
 */
function outcomeOf(folder: string, run: SweepRun, wanted: RunSettings, failed = false): SweepOutcome {
  const files = runFolderAt(join(folder, run.name));
  const waiting: SweepOutcome = { ...run, status: failed ? 'failed' : 'waiting' };
  if (!existsSync(files.config)) return waiting;
  const { settings } = openRunFolder(files.path);
  const fixed = (some: RunSettings) =>
    Object.entries(withoutRevisions(some)).filter(([key]) => key !== 'run' && !RESUMABLE.includes(key));
  if (!isDeepStrictEqual(fixed(settings), fixed(wanted))) {
    throw new Error(
      `${files.path} holds a run with other settings than the sweep now asks for: give the sweep another name, or remove the folder`,
    );
  }
  if (!existsSync(files.summary)) return waiting;
  const summary = JSON.parse(readFileSync(files.summary, 'utf8')) as RunSummary;
  const paused = summary.ended === 'stopped' || summary.ended === 'stop_after';
  const over = !paused && (summary.ended !== 'finished' || summary.step >= wanted.training.steps);
  return { ...run, status: over ? 'done' : waiting.status, summary };
}

function writeResults(folder: string, plan: SweepPlan, outcomes: readonly SweepOutcome[]): void {
  replaceFileSync(join(folder, 'sweep.json'), `${JSON.stringify(outcomes, null, 1)}\n`);
  replaceFileSync(join(folder, 'sweep.md'), sweepReport(plan, outcomes));
}

function canChange(override: string): boolean {
  return RESUMABLE.includes(parseOverride(override).path[0]);
}

/** Passes stop requests to the active runs: the first asks for a checkpoint, the second ends them. */
function stopping() {
  const children = new Set<ChildProgram>();
  const requests = stopRequests(() => {
    for (const child of children) child.stop();
  });
  const killAll = () => {
    for (const child of children) child.kill();
  };
  process.on('exit', killAll);
  return {
    get asked(): boolean {
      return requests.signal.aborted;
    },
    [Symbol.dispose]() {
      requests[Symbol.dispose]();
      process.off('exit', killAll);
    },
    async during(running: ChildProgram): Promise<number> {
      children.add(running);
      using _running = atEnd(() => children.delete(running));
      return await running.ended;
    },
  };
}
