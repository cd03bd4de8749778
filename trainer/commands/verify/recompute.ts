import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { GroupsRow, TrajectoryRecord } from '../../../shared/run-folder/run-files.ts';
import { advantageEstimator } from '../../algorithms/advantages/registry.ts';
import {
  estimatesLater,
  hasPreferenceLoss,
  isSelfDistilled,
  needsProximal,
  needsReference,
} from '../../config/derived.ts';
import { settingsAt } from '../../config/schedules.ts';
import type { RunSettings } from '../../config/settings.ts';
import { keptSequences } from '../../data/batch.ts';
import { filterEpisodes } from '../../data/filtering.ts';
import { isBootstrapped } from '../../data/scoring.ts';
import { type Episode, episodeReturn } from '../../rollout/episode.ts';
import { readJsonLines } from '../../tracking/jsonlines.ts';
import { TrajectoryWriter } from '../../tracking/trajectories.ts';
import { runIteration } from '../../training/iteration/iteration.ts';
import { type Checkpoint, readCheckpoint } from '../../training/run-folder/checkpoint.ts';
import { type RunFolder, runFolderAt } from '../../training/run-folder/run-folder.ts';
import { openPolicy, openReference, withCritic } from '../../training/setup/open-policy.ts';
import { prepareOptimizer } from '../../training/setup/open-run.ts';
import { referenceFolder } from '../../training/setup/refreshed-reference.ts';
import type { RunContext } from '../../training/setup/run-context.ts';
import { episodeOfRecord, readRecorded } from './recorded-episodes.ts';
import type { Difference } from './replay.ts';

/** Outcome of a check: it agrees, it differs as the text says, or it was not made, for the reason in `skipped`. */
export type Verdict =
  | { readonly agrees: number }
  | { readonly agrees: number; readonly differs: string }
  | { readonly skipped: string };

/** A verdict over items of which each agrees or differs. */
export function verdictOf(
  differences: readonly (readonly [name: string, difference: Difference])[],
): Verdict {
  const first = differences.find(([, difference]) => difference !== undefined);
  const agrees = differences.filter(([, difference]) => difference === undefined).length;
  return first ? { agrees, differs: `${first[0]}: ${first[1]}` } : { agrees };
}

/** Returns of stored episodes from their rewards and penalties. */
export function checkReturns(records: readonly TrajectoryRecord[], episodes: readonly Episode[]): Verdict {
  return verdictOf(
    records.map((record, i) => {
      const found = episodeReturn(episodes[i]);
      const isSame = found === record.return;
      return [record.episode_id, isSame ? undefined : `its rewards sum to ${found}, not ${record.return}`];
    }),
  );
}

/** The filter's scores and decisions about the groups of an iteration, from stored episodes. */
export function checkFilter(
  run: RunFolder,
  whole: RunSettings,
  step: number,
  episodes: readonly Episode[],
): Verdict {
  const { settings } = settingsAt(whole, step);
  const { filter } = settings.algorithm;
  if (filter.score.startsWith('entropy')) return { skipped: `filter.score ${filter.score} needs the policy` };
  if (filter.fill === 'refill') return { skipped: 'filter.fill is refill, and rounds are not stored' };
  const row = (existsSync(run.groups) ? (readJsonLines(run.groups) as GroupsRow[]) : []).findLast(
    one => one.step === step,
  );
  if (!row) return { skipped: 'its groups are not stored' };
  const filtered = filterEpisodes(episodes, settings);
  const kept = new Set(filtered.kept.flatMap(group => group.map(({ episode }) => episode)));
  return verdictOf(
    row.groups.map((group, i) => {
      const found = filtered.scored[i];
      const name = `group ${group.group_id} of ${group.tag}`;
      if (!found) return [name, 'its episodes are not stored'];
      if (found.score !== group.score) return [name, `its score is ${found.score}, not ${group.score}`];
      if (found.std !== group.std) return [name, `its std is ${found.std}, not ${group.std}`];
      const isKept = kept.has(found.episodes[0]);
      return [name, isKept === group.kept ? undefined : isKept ? 'it is kept' : 'it is left out'];
    }),
  );
}

/** Decimal places that advantages are stored with. */
const DECIMALS = 1e4;

/** Advantages of stored episodes, where they follow from what is stored; to the four places that are. */
export function checkAdvantages(
  whole: RunSettings,
  step: number,
  records: readonly TrajectoryRecord[],
  episodes: readonly Episode[],
): Verdict {
  const { settings } = settingsAt(whole, step);
  const missing = advantageGap(settings, episodes);
  if (missing !== undefined) return { skipped: missing };
  const filtered = filterEpisodes(episodes, settings);
  const sequences = keptSequences(filtered, settings, { actionTokens: new Map() });
  const byTokens = new Map(sequences.map(sequence => [sequence.tokenIds, sequence.advantages]));
  return verdictOf(
    records.flatMap((record, i) => {
      const samples = episodes[i].samples ?? [episodes[i]];
      if (!samples.some(({ tokenIds }) => byTokens.has(tokenIds))) return [];
      return [
        [
          record.episode_id,
          firstGap(
            record,
            samples.map(({ tokenIds }) => byTokens.get(tokenIds)),
          ),
        ] as const,
      ];
    }),
  );
}

function firstGap(record: TrajectoryRecord, found: readonly (Float32Array | undefined)[]): Difference {
  for (const [s, { advantages, mask }] of record.samples.entries()) {
    const own = found[s];
    if (!advantages || !own) continue;
    const t = advantages.findIndex(
      (value, k) => mask[k] && Math.round(own[k] * DECIMALS) / DECIMALS !== value,
    );
    if (t >= 0) return `sample ${s}, token ${t}: the advantage is ${own[t]}, not ${advantages[t]}`;
  }
  return undefined;
}

/** Why advantages do not follow from stored episodes alone; undefined where they do. */
function advantageGap(settings: RunSettings, episodes: readonly Episode[]): string | undefined {
  const { algorithm } = settings;
  const { needs } = advantageEstimator(algorithm.advantage);
  if (hasPreferenceLoss(settings)) return 'pairs have no advantages';
  if (algorithm.filter.fill === 'refill') return 'filter.fill is refill, and rounds are not stored';
  if (algorithm.filter.score.startsWith('entropy')) return 'the filter needs the policy';
  if (algorithm.advantage === 'rae') return 'rae needs the baselines of earlier iterations';
  if (needsReference(settings) || isSelfDistilled(settings)) return 'a reference scores the tokens';
  if (needsProximal(settings) || needs.includes('squaredProbabilities') || estimatesLater(settings))
    return 'they need the policy';
  if (episodes.some(episode => isBootstrapped(episode, settings)))
    return 'truncated episodes go on with a value';
  return undefined;
}

/** Why the update of an iteration cannot be taken again; else the checkpoint that it began with. */
function updateStart(run: RunFolder, settings: RunSettings, step: number): Checkpoint | string {
  if (settings.rollout.asynchronous) return 'asynchronous training does not repeat';
  if (settings.generation.engine !== 'local') return `${settings.generation.engine} sampled elsewhere`;
  if (settings.training.checkpoint_dtype !== 'float32')
    return `checkpoints have ${settings.training.checkpoint_dtype} weights`;
  if (settings.algorithm.filter.fill === 'refill') return 'filter.fill is refill, and rounds are not stored';
  const folder = join(run.checkpoints, `step-${String(step - 1).padStart(6, '0')}`);
  if (!existsSync(folder))
    return `there is no checkpoint of iteration ${step - 1} (training.checkpoint_every, training.keep_checkpoints)`;
  return readCheckpoint(folder);
}

/** Metrics that depend on clocks, and on how episodes came about. */
const DEPENDENT =
  /^(timing_s|perf|training|gateway|curriculum|prefix|generation)\/|^(rollouter|trainer)\/idle_ratio$|^rollout\/validation_levels_left_out$/;
const LARGE_FILES = ['model.safetensors', 'adapter_model.safetensors', 'value_head.safetensors'];

/**
 * Takes the update of an iteration again from the checkpoint before it and the stored episodes: scores, advantages, diagnostics,
 * optimizer steps. Compares metrics, stored advantages and, where the next checkpoint is there, weights.
 */
export async function checkUpdate(
  run: RunFolder,
  settings: RunSettings,
  context: RunContext,
  step: number,
): Promise<Verdict> {
  const checkpoint = updateStart(run, settings, step);
  if (typeof checkpoint === 'string') return { skipped: checkpoint };
  const { records } = readRecorded(run, 'train', step);
  const episodes = records.map(episodeOfRecord);
  const folder = mkdtempSync(join(tmpdir(), 'ragen-verify-'));
  const copy = runFolderAt(folder);
  mkdirSync(copy.trajectories);
  const actor = await openPolicy(settings, context, checkpoint.policy);
  const policy = await withCritic(settings, actor, checkpoint.policy);
  try {
    await prepareOptimizer(settings, actor, checkpoint);
    const reference = needsReference(settings)
      ? await openReference(settings, context, actor, referenceFolder(run, settings, step - 1))
      : undefined;
    const decode = (ids: ArrayLike<number>) => context.tokenizer.decode(ids);
    const done = await runIteration(
      {
        settings,
        run: copy,
        policy,
        reference: reference && { score: reference.score.bind(reference) },
        parameterCount: actor.parameterCount,
        source: {
          position: { nextSeed: 0 },
          collect: async () => ({ episodes, metrics: {} }),
          refill: async () => ({ episodes: [], metrics: {} }),
          trained: () => {},
          close: async () => {},
        },
        actionTokens: context.actionTokens,
        decode,
        trajectories: new TrajectoryWriter(copy, decode),
        clock: () => performance.now() / 1000,
      },
      checkpoint.state,
      new Set(),
    );
    await reference?.close();
    const saved = join(folder, 'policy');
    await policy.save(saved, settings.training.checkpoint_dtype);
    return verdictOf([
      ...metricGaps(run, step, done.metrics),
      ...recordGaps(records, readRecorded(copy, 'train', step).records),
      ...weightGaps(join(run.checkpoints, `step-${String(step).padStart(6, '0')}`, 'policy'), saved),
    ]);
  } finally {
    await policy.close();
    rmSync(folder, { recursive: true, force: true });
  }
}

type Gap = readonly [name: string, difference: Difference];

function metricGaps(run: RunFolder, step: number, found: Readonly<Record<string, number>>): Gap[] {
  const rows = readJsonLines(run.metrics) as { readonly [name: string]: unknown }[];
  const stored = Object.assign({}, ...rows.filter(row => row.step === step)) as (typeof rows)[number];
  return Object.entries(found).flatMap(([name, value]): Gap[] => {
    const before = stored[name];
    if (DEPENDENT.test(name) || typeof before !== 'number') return [];
    return [[name, Object.is(before, value) ? undefined : `is ${value}, not ${before}`]];
  });
}

function recordGaps(stored: readonly TrajectoryRecord[], found: readonly TrajectoryRecord[]): Gap[] {
  return stored.map((record, i): Gap => {
    const isSame = JSON.stringify(found[i]?.samples) === JSON.stringify(record.samples);
    return [
      `tokens of ${record.episode_id}`,
      isSame ? undefined : 'their advantages or entropies are other ones',
    ];
  });
}

function weightGaps(before: string, after: string): Gap[] {
  return LARGE_FILES.filter(name => existsSync(join(before, name)) && existsSync(join(after, name))).map(
    (name): Gap => {
      const isSame = readFileSync(join(before, name)).equals(readFileSync(join(after, name)));
      return [`weights in ${name}`, isSame ? undefined : 'they are other ones'];
    },
  );
}
