import { readLogLevel } from '../../../shared/log.ts';
import { overriddenSettings } from '../../config/load.ts';
import type { RunSettings } from '../../config/settings.ts';
import { openProgress } from '../../tracking/progress.ts';
import { textTable } from '../../tracking/text-table.ts';
import { latestCheckpoint } from '../../training/run-folder/checkpoint.ts';
import { openRunFolder, type RunFolder } from '../../training/run-folder/run-folder.ts';
import { openRunContext, type RunContext } from '../../training/setup/run-context.ts';
import { localSettings } from '../hub/local-models.ts';
import { stopRequests } from '../processes/stop-signal.ts';
import {
  checkAdvantages,
  checkFilter,
  checkReturns,
  checkUpdate,
  type Verdict,
  verdictOf,
} from './recompute.ts';
import { episodeOfRecord, readRecorded, recordedSteps } from './recorded-episodes.ts';
import { checkActions, replayEpisodes } from './replay.ts';

export const CHECKS = ['replay', 'actions', 'returns', 'filter', 'advantages', 'update'] as const;
export type Check = (typeof CHECKS)[number];

/** Verdicts about the stored episodes of an iteration or validation. */
export interface StepReport {
  readonly kind: 'train' | 'validation';
  readonly step: number;
  readonly episodes: number;
  readonly checks: Readonly<Partial<Record<Check, Verdict>>>;
}

export interface VerifyOptions {
  readonly json?: boolean;
  readonly quiet?: boolean;
}

/**
 * The command `verify-run`: plays the stored episodes of a run again on its servers, computes from them what training made of them,
 * and reports what agrees.
 * @returns the exit status: 0 where everything that was checked agrees, else 1
 */
export async function verifyRunCommand(
  target: string,
  overrides: readonly string[],
  options: VerifyOptions,
): Promise<number> {
  const progress = openProgress(process.stderr, options.quiet ? 'silent' : readLogLevel());
  const { run, settings: trained } = openRunFolder(target);
  const settings = overriddenSettings(trained, overrides, run.config);
  using requests = stopRequests(() => progress.note('stopping'));
  const { local } = await localSettings(settings, { progress, signal: requests.signal });
  const reports = await verifyRun(run, local, { note: progress.note, stop: requests.signal });
  console.log(options.json ? JSON.stringify(reports, null, 1) : reportText(reports, process.stdout.columns));
  return reports.some(({ checks }) => Object.values(checks).some(differs)) ? 1 : 0;
}

/** Checks every stored iteration and validation of a run. @throws Error for a run without stored episodes or checkpoint */
export async function verifyRun(
  run: RunFolder,
  settings: RunSettings,
  { note, stop }: { readonly note: (text: string) => void; readonly stop: AbortSignal },
): Promise<StepReport[]> {
  const steps = recordedSteps(run);
  if (steps.length === 0) {
    throw new Error(
      `${run.path} has no stored episodes to verify: train with tracking.trajectories_every=1, or any number above 0`,
    );
  }
  const checkpoint = latestCheckpoint(run);
  if (!checkpoint) throw new Error(`${run.path} has no checkpoint yet, and its tokenizer lies there`);
  const context = await openRunContext(settings, checkpoint.policy, note, stop);
  const reports: StepReport[] = [];
  try {
    for (const { kind, step } of steps) {
      stop.throwIfAborted();
      note(`${kind} ${step}`);
      reports.push(await verifyStep(run, settings, context, { kind, step }));
    }
  } finally {
    await context.close();
  }
  return reports;
}

async function verifyStep(
  run: RunFolder,
  settings: RunSettings,
  context: RunContext,
  { kind, step }: Pick<StepReport, 'kind' | 'step'>,
): Promise<StepReport> {
  const { records } = readRecorded(run, kind, step);
  const episodes = records.map(episodeOfRecord);
  const named = <T>(values: readonly T[]) =>
    values.map((value, i) => [records[i].episode_id, value] as const);
  const byName = new Map(context.tags.map(tag => [tag.tag.name, tag]));
  const checks: { [check in Check]?: Verdict } = {
    replay: verdictOf(named(await replayEpisodes(records, settings, context))),
    actions: settings.rollout.agent
      ? { skipped: 'a program chose the actions' }
      : verdictOf(
          named(
            records.map(record => {
              const tag = byName.get(record.tag);
              return tag && checkActions(record, tag, context.collector.prompt(record.tag).format);
            }),
          ),
        ),
    returns: checkReturns(records, episodes),
  };
  if (kind === 'train') {
    checks.filter = checkFilter(run, settings, step, episodes);
    checks.advantages = checkAdvantages(settings, step, records, episodes);
    checks.update = await checkUpdate(run, settings, context, step);
  }
  return { kind, step, episodes: records.length, checks };
}

const differs = (verdict: Verdict | undefined): boolean => verdict !== undefined && 'differs' in verdict;

/** The verdicts as a table, what differs first, what was not checked, and the share that agrees. */
export function reportText(reports: readonly StepReport[], columns?: number): string {
  const cell = (verdict: Verdict | undefined): string =>
    verdict === undefined
      ? ''
      : 'skipped' in verdict
        ? '–'
        : differs(verdict)
          ? 'differs'
          : `${verdict.agrees} ok`;
  const table = textTable(
    ['', 'iteration', 'episodes', ...CHECKS],
    reports.map(({ kind, step, episodes, checks }) => [
      kind,
      String(step),
      String(episodes),
      ...CHECKS.map(check => cell(checks[check])),
    ]),
    { columns },
  );
  const all = reports.flatMap(({ kind, step, checks }) =>
    CHECKS.flatMap(check =>
      checks[check] ? [{ where: `${check} of ${kind} ${step}`, verdict: checks[check] }] : [],
    ),
  );
  const bad = all.filter(({ verdict }) => differs(verdict));
  const made = all.filter(({ verdict }) => !('skipped' in verdict));
  const reasons = new Map<string, number>();
  for (const { where, verdict } of all) {
    if (!('skipped' in verdict)) continue;
    const reason = `${where.split(' ')[0]}: ${verdict.skipped}`;
    reasons.set(reason, (reasons.get(reason) ?? 0) + 1);
  }
  const share = made.length === 0 ? 0 : (100 * (made.length - bad.length)) / made.length;
  const [first] = bad;
  return [
    table,
    '',
    `${share === 100 ? '100' : share.toFixed(1)} % of ${made.length} checks agree bit for bit (advantages to the four places that are stored)`,
    ...(first ? [`first difference, ${first.where}: ${(first.verdict as { differs: string }).differs}`] : []),
    ...[...reasons].map(([reason, count]) => `not checked ${count} times, ${reason}`),
  ].join('\n');
}
