import { existsSync, mkdirSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { parseOverride } from '../../shared/config.ts';
import { loadRunSettings, RESUMABLE } from '../config/load.ts';
import type { RunSettings } from '../config/settings.ts';
import { writeAtomically } from '../tracking/atomic-file.ts';
import type { RunSummary } from '../training/report.ts';
import { openRunFolder, runFolderAt } from '../training/run-folder.ts';
import type { ChildProgram } from './child-process.ts';
import { withoutRevisions } from './hub/local-models.ts';
import { INTERRUPTED_STATUS, stopSignal } from './stop-signal.ts';
import { readSweep, type SweepPlan, type SweepRun } from './sweep-plan.ts';
import { type SweepOutcome, sweepReport } from './sweep-report.ts';
import { startTrainer } from './trainer-process.ts';

export interface SweepOptions {
  /** Prints the runs and starts none. */
  readonly dryRun?: boolean;
  readonly quiet?: boolean;
}

/**
 * The command `sweep`: runs of a list, one after another, each in a separate process. Runs that are done are skipped and
 * unfinished ones go on, so a sweep that was stopped or killed is continued by the same command.
 * @returns the exit status: 0 when all runs are done
 * @throws ConfigError for a file or settings that are wrong, before anything runs
 */
export async function sweep(
  file: string,
  overrides: readonly string[],
  options: SweepOptions,
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
  mkdirSync(folder, { recursive: true });
  const stop = stopping();
  for (const [i, run] of plan.runs.entries()) {
    writeResults(folder, plan, outcomes);
    if (outcomes[i].status === 'done') continue;
    console.log(`run ${i + 1} of ${plan.runs.length}: ${run.name}`);
    const status = await stop.during(startTrainer(trainerArguments(folder, plan, run, options)));
    outcomes[i] = outcomeOf(folder, run, settings[i], status !== 0 && !stop.asked);
    if (stop.asked) break;
  }
  writeResults(folder, plan, outcomes);
  console.log(`\n${sweepReport(plan, outcomes)}\nresults: ${join(folder, 'sweep.md')}`);
  if (stop.asked) {
    console.log('stopped; the same command goes on');
    return INTERRUPTED_STATUS;
  }
  return outcomes.every(({ status }) => status === 'done') ? 0 : 1;
}

function trainerArguments(
  folder: string,
  { config }: SweepPlan,
  { name, overrides }: SweepRun,
  { quiet }: SweepOptions,
): string[] {
  const path = join(folder, name);
  const what = existsSync(runFolderAt(path).config)
    ? ['--resume', path, ...overrides.filter(canChange)]
    : [config, ...overrides, `run.folder=${folder}`, `run.name=${name}`];
  return quiet ? [...what, '--quiet'] : what;
}

/**
 * How far a run is, as its folder says.
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
  const over =
    summary.ended !== 'stopped' && (summary.ended !== 'finished' || summary.step >= wanted.training.steps);
  return { ...run, status: over ? 'done' : waiting.status, summary };
}

function writeResults(folder: string, plan: SweepPlan, outcomes: readonly SweepOutcome[]): void {
  writeAtomically(join(folder, 'sweep.json'), `${JSON.stringify(outcomes, null, 1)}\n`);
  writeAtomically(join(folder, 'sweep.md'), sweepReport(plan, outcomes));
}

function canChange(override: string): boolean {
  return RESUMABLE.includes(parseOverride(override).path[0]);
}

/** Passes requests to stop on to the run that is going on: the first asks it for a checkpoint, the second ends it. */
function stopping() {
  let child: ChildProgram | undefined;
  const signal = stopSignal(() => child?.stop());
  process.on('exit', () => child?.kill());
  return {
    get asked(): boolean {
      return signal.aborted;
    },
    async during(running: ChildProgram): Promise<number> {
      child = running;
      const status = await running.ended;
      child = undefined;
      return status;
    },
  };
}
