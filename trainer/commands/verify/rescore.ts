import { resolve } from 'node:path';
import { closing } from '../../../shared/closing.ts';
import { checkReplaceable } from '../../../shared/replace-file.ts';
import { correlation, mean } from '../../algorithms/statistics.ts';
import { settingsAt } from '../../config/schedules.ts';
import { trainedReturn } from '../../data/episode-metrics.ts';
import { filterEpisodes } from '../../data/filtering.ts';
import type { Episode } from '../../rollout/episode.ts';
import {
  FileReward,
  RewardFault,
  RewardTimeout,
  withHookRewards,
} from '../../rollout/rewards/reward-hook.ts';
import { writeJsonLines } from '../../tracking/jsonlines.ts';
import { textTable } from '../../tracking/text-table.ts';
import { episodeOfRecord, readRecorded, recordedSteps } from '../../tracking/trajectories.ts';
import { openRunFolder } from '../../training/run-folder/run-folder.ts';
import type { OptionsOf } from '../options.ts';

/** New rewards of an iteration's stored episodes, next to the old ones. */
interface RescoredStep {
  readonly kind: 'train' | 'validation';
  readonly step: number;
  readonly episodes: number;
  /** Episodes at which the function failed; the means leave them out. */
  readonly failed: number;
  readonly before: number;
  readonly after: number;
  /** Pearson correlation of old and new returns; null where one of them is constant. */
  readonly correlation: number | null;
  /** Groups that the rollout filter would keep by the old and the new rewards; null in validations. */
  readonly keptBefore: number | null;
  readonly keptAfter: number | null;
}

/**
 * The command `rescore`: a function's rewards for the stored episodes of a run, without playing or sampling. The run
 * does not change.
 * @returns the exit status
 * @throws Error at the first episode for which the function takes too long, or where it fails for all
 */
export async function rescoreCommand(target: string, options: OptionsOf<'rescore'>): Promise<number> {
  const { run, settings } = openRunFolder(target);
  const steps = recordedSteps(run);
  if (steps.length === 0)
    throw new Error(
      `${run.path} has no stored episodes: train with tracking.trajectories_every=1, or any number above 0`,
    );
  if (options.out !== undefined) checkReplaceable(options.out);
  await using hook = closing(
    new FileReward({
      file: resolve(options.reward),
      mode: options.mode ?? 'replace',
      timeoutMs: 1000 * (settings.rollout.reward?.timeout_s ?? 30),
      memoryMb: settings.rollout.reward?.memory_mb ?? 256,
    }),
  );
  const rows: RescoredStep[] = [];
  const lines: object[] = [];
  let fault: Error | undefined;
  for (const { kind, step } of steps) {
    const records = readRecorded(run, kind, step);
    const before = records.map(episodeOfRecord);
    const after: (Episode | undefined)[] = [];
    for (const episode of before) {
      try {
        after.push(await withHookRewards(episode, hook));
      } catch (error) {
        if (!(error instanceof RewardFault) || error instanceof RewardTimeout) throw error;
        if (!fault) console.error(`${episode.episodeId} has no reward: ${error.message}`);
        fault ??= error;
        after.push(undefined);
      }
    }
    const known = before.flatMap((episode, i) => (after[i] ? [{ old: episode, now: after[i] }] : []));
    const { settings: scheduled } = settingsAt(settings, Math.max(1, step));
    const weights = scheduled.algorithm.reward_components;
    const olds = known.map(({ old }) => trainedReturn(old, weights));
    const news = known.map(({ now }) => trainedReturn(now, weights));
    const related = correlation(olds, news);
    const canFilter = kind === 'train' && !scheduled.algorithm.filter.score.startsWith('entropy');
    const kept = (episodes: readonly Episode[]) =>
      canFilter && episodes.length > 0 ? filterEpisodes(episodes, scheduled).kept.length : null;
    rows.push({
      kind,
      step,
      episodes: records.length,
      failed: records.length - known.length,
      before: meanOf(olds),
      after: meanOf(news),
      correlation: Number.isFinite(related) ? related : null,
      keptBefore: kept(known.map(({ old }) => old)),
      keptAfter: kept(known.map(({ now }) => now)),
    });
    known.forEach(({ old }, i) => {
      lines.push({
        kind,
        step,
        episode_id: old.episodeId,
        group_id: old.groupId,
        success: old.success,
        return: olds[i],
        rescored: news[i],
      });
    });
  }
  if (lines.length === 0 && fault) throw fault;
  if (options.out !== undefined) writeJsonLines(resolve(options.out), lines);
  console.log(options.json ? JSON.stringify(rows, null, 1) : rescoredText(rows, process.stdout.columns));
  return 0;
}

function rescoredText(rows: readonly RescoredStep[], columns?: number): string {
  const number = (value: number | null) => (value === null ? '' : value.toFixed(3));
  return textTable(
    ['', 'iteration', 'episodes', 'failed', 'return', 'rescored', 'correlation', 'groups kept', 'rescored'],
    rows.map(row => [
      row.kind,
      String(row.step),
      String(row.episodes),
      String(row.failed),
      number(row.before),
      number(row.after),
      number(row.correlation),
      row.keptBefore === null ? '' : String(row.keptBefore),
      row.keptAfter === null ? '' : String(row.keptAfter),
    ]),
    { columns, numbers: true },
  );
}

const meanOf = (values: readonly number[]): number => (values.length === 0 ? 0 : mean(values));
