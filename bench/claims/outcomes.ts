import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { RunSettings } from '../../trainer/config/settings.ts';
import type { Metrics } from '../../trainer/data/episode-metrics.ts';
import { readJsonLines } from '../../trainer/tracking/jsonlines.ts';
import { latestCheckpoint } from '../../trainer/training/run-folder/checkpoint.ts';
import type { RunSummary } from '../../trainer/training/run-folder/report.ts';
import { openRunFolder, runFolderAt } from '../../trainer/training/run-folder/run-folder.ts';
import { type ValidationPlan, validationPlan, validationSets } from '../../trainer/training/validation.ts';

const FIRST_TURN = 'collapse_first_turn_sample';

/** One validation of a run; shares from 0 to 1. */
export interface ClaimPoint {
  readonly step: number;
  readonly seconds: number;
  readonly success: number;
  /** By environment, those of the further validation sets included. */
  readonly tags: { readonly [tag: string]: number };
  /** Counts of the further validation sets. */
  readonly sets: { readonly [set: string]: number };
}

/** The measurements of a run's thoughts in an iteration. */
export interface ReasoningPoint {
  readonly step: number;
  readonly miShare: number;
  /** Nats per token. */
  readonly entropy: number;
  /** Mean standard deviation of returns within a group. */
  readonly spread: number;
}

/** Episodes of each validation: of all tags, of each further set, and of each tag, those of the sets included. */
export interface ValidationCounts {
  readonly episodes: number;
  readonly sets: { readonly [set: string]: number };
  readonly tags: { readonly [tag: string]: number };
}

/** A run that is over, as the data file keeps it. */
export interface ClaimOutcome {
  readonly variant: string;
  readonly seed: number;
  readonly ended: string;
  readonly episodes: number;
  readonly seconds: number;
  /** Absent in data of runs from before it was kept. */
  readonly workers?: number;
  readonly points: readonly ClaimPoint[];
  readonly validated: ValidationCounts;
  /** Measurements of runs with thoughts. */
  readonly reasoning?: readonly ReasoningPoint[];
}

/** Outcome in a run's folder; undefined until the run is over. */
export function readOutcome(folder: string, variant: string, seed: number): ClaimOutcome | undefined {
  const run = runFolderAt(folder);
  if (!existsSync(run.summary)) return undefined;
  const summary = JSON.parse(readFileSync(run.summary, 'utf8')) as RunSummary;
  const checkpoint = latestCheckpoint(run);
  if (summary.ended === 'stopped' || !checkpoint) return undefined;
  const reasoning = readReasoning(run.metrics);
  const { settings } = openRunFolder(folder);
  const { workers } = settings.policy;
  return {
    variant,
    seed,
    ...(reasoning.length > 0 ? { reasoning } : {}),
    ended: summary.ended,
    episodes: summary.episodes,
    seconds: summary.seconds,
    ...(workers === null ? {} : { workers }),
    validated: countsOf(settings),
    points: checkpoint.state.validations.map(({ step, seconds, metrics }) => ({
      step,
      seconds,
      success: metrics['val-env/success'],
      tags: tagSuccess(metrics),
      sets: Object.fromEntries(
        Object.entries(metrics).flatMap(([name, value]) => {
          const set = /^val-env\/([^/]+)\/success$/.exec(name)?.[1];
          return set !== undefined && `val-env/${set}/return` in metrics ? [[set, value]] : [];
        }),
      ),
    })),
  };
}

function countsOf(settings: RunSettings): ValidationCounts {
  const main = validationPlan(settings);
  const sets = validationSets(settings);
  const total = ({ tags }: ValidationPlan) => tags.reduce((sum, { groups }) => sum + groups, 0);
  return {
    episodes: total(main),
    sets: Object.fromEntries(sets.map(({ name, plan }) => [name, total(plan)])),
    tags: Object.fromEntries(
      [...sets.map(({ plan }) => plan), main].flatMap(({ tags }) =>
        tags.map(({ tag, groups }) => [tag, groups]),
      ),
    ),
  };
}

/** A tag that is validated in a further set as well has its own success. */
function tagSuccess(metrics: Metrics): { [tag: string]: number } {
  const depth = (name: string) => name.split('/').length;
  const names = Object.keys(metrics).sort((a, b) => depth(b) - depth(a));
  return Object.fromEntries(
    names.flatMap(name => {
      const tag = /^val-env\/(?:[^/]+\/)?([^/]+)\/success_low$/.exec(name)?.[1];
      const success = tag === undefined ? undefined : metrics[name.replace(/_low$/, '')];
      return tag === undefined || success === undefined ? [] : [[tag, success]];
    }),
  );
}

function readReasoning(metrics: string): ReasoningPoint[] {
  const rows = readJsonLines(metrics) as readonly { readonly [name: string]: number }[];
  return rows.flatMap(row => {
    const miShare = row[`${FIRST_TURN}/mi_seq_share`];
    const entropy = row[`${FIRST_TURN}/conditional_entropy_est`];
    return miShare === undefined || entropy === undefined
      ? []
      : [{ step: row.step, miShare, entropy, spread: row['rollout/in_group_std'] }];
  });
}

/** Name of a run's folder. */
export function runName(variant: string, seed: number): string {
  return `${variant.toLowerCase().replace(/[^a-z0-9]+/g, '-')}-seed-${seed}`;
}

/** Folder of a claim's runs. */
export function claimFolder(runs: string, name: string): string {
  return join(runs, `claim-${name}`);
}

/** Success after this many seconds, between two validations on the line between them; undefined before the first and after the last. */
export function successAt(
  points: readonly ClaimPoint[],
  at: number,
  of: (point: ClaimPoint) => number,
): number | undefined {
  const next = points.findIndex(point => of(point) >= at);
  if (next === -1) return undefined;
  const after = points[next];
  if (of(after) === at) return after.success;
  if (next === 0) return undefined;
  const before = points[next - 1];
  const share = (at - of(before)) / (of(after) - of(before));
  return before.success + share * (after.success - before.success);
}
