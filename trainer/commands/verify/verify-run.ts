import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { closing } from '../../../shared/closing.ts';
import { readLogLevel } from '../../../shared/log.ts';
import type { GroupsRow, TrajectoryRecord } from '../../../shared/run-folder/run-files.ts';
import { counted } from '../../../shared/text.ts';
import { advantageEstimator } from '../../algorithms/advantages/registry.ts';
import {
  estimatesLater,
  hasPreferenceLoss,
  isSelfDistilled,
  needsProximal,
  needsReference,
} from '../../config/derived.ts';
import { overriddenSettings } from '../../config/load.ts';
import { settingsAt } from '../../config/schedules.ts';
import type { RunSettings } from '../../config/settings.ts';
import { filterEpisodes, keptSequences } from '../../data/filtering.ts';
import { isBootstrapped } from '../../data/scoring.ts';
import { type Episode, episodeReturn } from '../../rollout/episode.ts';
import { readJsonLines } from '../../tracking/jsonlines.ts';
import { openProgress } from '../../tracking/progress.ts';
import { textTable } from '../../tracking/text-table.ts';
import {
  episodeOfRecord,
  readRecorded,
  recordedSteps,
  TrajectoryWriter,
} from '../../tracking/trajectories.ts';
import { runIteration } from '../../training/iteration/iteration.ts';
import { type Checkpoint, latestCheckpoint, readCheckpoint } from '../../training/run-folder/checkpoint.ts';
import { openRunFolder, type RunFolder, runFolderAt } from '../../training/run-folder/run-folder.ts';
import { findServerSoon } from '../../training/setup/find-server.ts';
import {
  attachCritic,
  openPolicy,
  openReference,
  referenceFolder,
} from '../../training/setup/open-policy.ts';
import { prepareOptimizer } from '../../training/setup/open-run.ts';
import { openRunContext, type RunContext } from '../../training/setup/run-context.ts';
import { localSettings } from '../hub/local-models.ts';
import type { OptionsOf } from '../options.ts';
import { stopRequests } from '../processes/child-program.ts';
import { checkActions, type Difference, replayEpisodes } from './replay.ts';

const CHECKS = ['replay', 'actions', 'returns', 'filter', 'advantages', 'update'] as const;
type Check = (typeof CHECKS)[number];

/** Verdicts on the stored episodes of an iteration or validation. */
export interface StepReport {
  readonly kind: 'train' | 'validation';
  readonly step: number;
  readonly episodes: number;
  readonly checks: Readonly<Partial<Record<Check, Verdict>>>;
}

/**
 * The command `verify-run`: replays the stored episodes of a run on its servers, recomputes what training derived from
 * them, and reports what agrees.
 * @returns the exit status: 0 where everything that was checked agrees, else 1
 */
export async function verifyRunCommand(
  target: string,
  overrides: readonly string[],
  options: OptionsOf<'verify-run'>,
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
  if (!checkpoint) throw new Error(`${run.path} has no checkpoint yet, which would hold its tokenizer`);
  await findServerSoon(settings, note, stop);
  await using context = closing(await openRunContext(settings, checkpoint.policy, note, stop));
  const reports: StepReport[] = [];
  for (const { kind, step } of steps) {
    stop.throwIfAborted();
    note(`${kind} ${step}`);
    reports.push(await verifyStep(run, settings, context, { kind, step }));
  }
  return reports;
}

async function verifyStep(
  run: RunFolder,
  settings: RunSettings,
  context: RunContext,
  { kind, step }: Pick<StepReport, 'kind' | 'step'>,
): Promise<StepReport> {
  const records = readRecorded(run, kind, step);
  const episodes = records.map(episodeOfRecord);
  const named = <T>(values: readonly T[]) =>
    values.map((value, i) => [records[i].episode_id, value] as const);
  const byName = new Map(context.tags.map(tag => [tag.tag.name, tag]));
  const { agent, reward } = settings.rollout;
  const parties = { program: agent !== null, hook: reward !== null };
  const checks: { [check in Check]?: Verdict } = {
    replay: verdictOf(named(await replayEpisodes(records, parties, context))),
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

/** The verdicts as a table, differences first, then unchecked items, and the share that agrees. */
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
    ...[...reasons].map(
      ([reason, count]) => `${counted(count, 'step was', 'steps were')} not checked, ${reason}`,
    ),
  ].join('\n');
}

/** Result of a check: it agrees, it differs as the text says, or it was skipped for the reason in `skipped`. */
type Verdict =
  | { readonly agrees: number }
  | { readonly agrees: number; readonly differs: string }
  | { readonly skipped: string };

/** A verdict over items that each agree or differ. */
function verdictOf(differences: readonly (readonly [name: string, difference: Difference])[]): Verdict {
  const first = differences.find(([, difference]) => difference !== undefined);
  const agrees = differences.filter(([, difference]) => difference === undefined).length;
  return first ? { agrees, differs: `${first[0]}: ${first[1]}` } : { agrees };
}

/** Returns of stored episodes from their rewards and penalties. */
function checkReturns(records: readonly TrajectoryRecord[], episodes: readonly Episode[]): Verdict {
  return verdictOf(
    records.map((record, i) => {
      const found = episodeReturn(episodes[i]);
      const isSame = found === record.return;
      return [record.episode_id, isSame ? undefined : `its rewards sum to ${found}, not ${record.return}`];
    }),
  );
}

/** The filter's scores and decisions about the groups of an iteration, from stored episodes. */
function checkFilter(
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

/** Decimal places of stored advantages. */
const DECIMALS = 1e4;

/** Advantages of stored episodes, where stored data determines them; compared to four decimal places. */
function checkAdvantages(
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

/** Reason why stored episodes alone do not determine the advantages; undefined where they do. */
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
    return 'truncated episodes continue with a value';
  return undefined;
}

/** Reason why an iteration's update cannot be repeated, or the checkpoint that it began with. */
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

/** Metrics that depend on clocks, and on how episodes were collected. */
const DEPENDENT =
  /^(timing_s|perf|training|gateway|curriculum|prefix|generation)\/|^(rollouter|trainer)\/idle_ratio$|^rollout\/validation_levels_left_out$/;
const LARGE_FILES = ['model.safetensors', 'adapter_model.safetensors', 'value_head.safetensors'];

/**
 * Repeats the update of an iteration from the checkpoint before it and the stored episodes: scores, advantages,
 * diagnostics, optimizer steps. Compares metrics, stored advantages and, where the next checkpoint exists, weights.
 */
async function checkUpdate(
  run: RunFolder,
  settings: RunSettings,
  context: RunContext,
  step: number,
): Promise<Verdict> {
  const checkpoint = updateStart(run, settings, step);
  if (typeof checkpoint === 'string') return { skipped: checkpoint };
  const records = readRecorded(run, 'train', step);
  const episodes = records.map(episodeOfRecord);
  const folder = mkdtempSync(join(tmpdir(), 'ragen-verify-'));
  const copy = runFolderAt(folder);
  mkdirSync(copy.trajectories);
  const policy = await openPolicy(settings, context, checkpoint.policy);
  try {
    await attachCritic(settings, policy, checkpoint.policy);
    await prepareOptimizer(settings, policy, checkpoint);
    const reference = needsReference(settings)
      ? await openReference(settings, context, policy, referenceFolder(run, settings, step - 1))
      : undefined;
    const decode = (ids: ArrayLike<number>) => context.tokenizer.decode(ids);
    const done = await runIteration(
      {
        settings,
        run: copy,
        policy,
        reference: reference && { score: reference.score.bind(reference) },
        parameterCount: policy.parameterCount,
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
      ...recordGaps(records, readRecorded(copy, 'train', step)),
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
    const isSame = verifiedText(found[i]?.samples) === verifiedText(record.samples);
    return [
      `tokens of ${record.episode_id}`,
      isSame ? undefined : 'their advantages or entropies are other ones',
    ];
  });
}

/**
 * Samples as text, without what a replay does not reproduce: likeliest tokens, and numbers that earlier versions left
 * out.
 */
function verifiedText(samples: TrajectoryRecord['samples'] | undefined): string | undefined {
  return JSON.stringify(samples, (key, value: unknown) =>
    key === 'top_logprobs' || key === 'reference_log_probs' ? undefined : value,
  );
}

function weightGaps(before: string, after: string): Gap[] {
  return LARGE_FILES.filter(name => existsSync(join(before, name)) && existsSync(join(after, name))).map(
    (name): Gap => {
      const isSame = readFileSync(join(before, name)).equals(readFileSync(join(after, name)));
      return [`weights in ${name}`, isSame ? undefined : 'they are other ones'];
    },
  );
}
