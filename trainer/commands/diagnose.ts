import { join, resolve } from 'node:path';
import { closing } from '../../shared/closing.ts';
import { readLogLevel } from '../../shared/log.ts';
import { hasPreferenceLoss, needsReference } from '../config/derived.ts';
import { overriddenSettings } from '../config/load.ts';
import type { RunSettings } from '../config/settings.ts';
import type { Metrics } from '../data/episode-metrics.ts';
import { filterEpisodes, keptEpisodes, keptSequences } from '../data/filtering.ts';
import { laterScores, scoreEpisodes } from '../data/scoring.ts';
import { measureCollapse, SERIES } from '../diagnostics/collapse/collapse.ts';
import { REGIMES } from '../diagnostics/collapse/collapse-metrics.ts';
import { diagnoseGradients } from '../diagnostics/diagnosing.ts';
import { openProgress } from '../tracking/progress.ts';
import { textTable } from '../tracking/text-table.ts';
import type { MetricTable } from '../tracking/tracker.ts';
import { type Checkpoint, latestCheckpoint, readCheckpoint } from '../training/run-folder/checkpoint.ts';
import { openRunFolder, type RunFolder } from '../training/run-folder/run-folder.ts';
import { findServerSoon } from '../training/setup/find-server.ts';
import { attachCritic, openPolicy, openReference, referenceFolder } from '../training/setup/open-policy.ts';
import { agentRollouts, openRunContext, sampledAgent } from '../training/setup/run-context.ts';
import { PlannedSource } from '../training/sources/episode-source.ts';
import { localSettings } from './hub/local-models.ts';
import type { OptionsOf } from './options.ts';
import { stopRequests } from './processes/child-program.ts';

/**
 * The command `diagnose`: collapse metrics and gradients of a checkpoint, on the groups that training would play next.
 * @param target a run folder, its folder of checkpoints (for the newest one), or one checkpoint
 * @returns the exit status
 */
export async function diagnose(
  target: string,
  overrides: readonly string[],
  options: OptionsOf<'diagnose'>,
): Promise<number> {
  const progress = openProgress(process.stderr, options.quiet ? 'silent' : readLogLevel());
  const { run, settings: trained, checkpoint } = readTarget(target);
  const settings = overriddenSettings(trained, overrides, run.config);
  const { env_groups, group_size } = settings.rollout;
  progress.note(`${checkpoint.folder}: ${env_groups} groups of ${group_size}`);
  if (group_size < 2) {
    progress.warn('gradients are grouped by the spread within groups: add rollout.group_size=8 to see them');
  }
  using requests = stopRequests(() => progress.note('stopping'));
  const { signal: stop } = requests;
  const { local } = await localSettings(settings, { progress, signal: stop });
  const diagnosis = await diagnoseCheckpoint({ run, checkpoint }, local, progress.warn, stop);
  console.log(
    options.json
      ? JSON.stringify(diagnosis, null, 1)
      : diagnosisText(diagnosis.metrics, process.stdout.columns),
  );
  return 0;
}

/** A run with its newest checkpoint, or the one in the path. */
function readTarget(target: string) {
  const path = resolve(target);
  const [, folder, step] = /^(.+)\/checkpoints(?:\/(step-\d+)(?:\/.*)?)?$/.exec(path) ?? [];
  const { run, settings } = openRunFolder(folder ?? path);
  const checkpoint: Checkpoint | undefined =
    step === undefined ? latestCheckpoint(run) : readCheckpoint(join(run.checkpoints, step));
  if (checkpoint === undefined) throw new Error(`${run.path} has no checkpoint yet`);
  return { run, settings, checkpoint };
}

const COLLAPSE_ROWS = [
  'mi_seq_share',
  'mi_seq_estimate',
  'mi_upper_bound',
  'mi_club_seq_estimate',
  'mi_estimate',
  'conditional_entropy_est',
  'reasoning_entropy_est',
  'retrieval_accuracy',
  'retrieval_chance_level',
  'mi_zscore',
  'rows',
  'columns',
  'prompt_mismatch',
  'too_long',
  'scored_tokens',
];

const GRADIENT_COLUMNS = [
  'group_rv_count',
  'reward_std_mean',
  'zero_std_share',
  'task',
  'entropy',
  'kl',
  'task_to_reg',
  'share/task',
  'cosine/task',
  'snr',
];

/**
 * The most important metrics, as plain-text tables.
 * @param columns width of the terminal; unlimited when absent
 */
function diagnosisText(metrics: Metrics, columns?: number): string {
  const layout = { columns, numbers: true };
  const part = Object.keys(metrics).some(name => name.startsWith(`${SERIES.actions[0]}/`))
    ? 'actions'
    : 'thought';
  const collapse = textTable(
    [part === 'thought' ? 'reasoning' : 'actions', 'first turns', 'any turns'],
    COLLAPSE_ROWS.map(row => [row, ...SERIES[part].map(series => shown(metrics[`${series}/${row}`]))]),
    layout,
  );
  const regime = metrics['collapse/regime'];
  const lines = [collapse];
  if (part === 'thought') {
    lines.push(
      '',
      `valid thinking rate ${shown(metrics['collapse/valid_thinking_rate'])}; regime: ` +
        (regime === undefined
          ? 'no thresholds known; give diagnostics.collapse.thresholds={entropy: 0.5, mi_share: 0.2}'
          : REGIMES[regime].replaceAll('_', ' ')),
    );
  }
  for (const prefix of ['grad_norm_prefilter', 'grad_norm']) {
    const buckets = Object.keys(metrics).flatMap(name => {
      const [first, bucket, metric] = name.split('/');
      return first === prefix && metric === 'sample_count' ? [bucket] : [];
    });
    if (buckets.length === 0) continue;
    lines.push(
      '',
      textTable(
        [prefix, ...GRADIENT_COLUMNS],
        buckets.map(bucket => [
          bucket,
          ...GRADIENT_COLUMNS.map(column => shown(metrics[`${prefix}/${bucket}/${column}`])),
        ]),
        layout,
      ),
    );
  }
  return lines.join('\n');
}

function shown(value: number | undefined): string {
  if (value === undefined) return '';
  return Number.isInteger(value) ? String(value) : value.toPrecision(4);
}

interface CheckpointDiagnosis {
  readonly step: number;
  readonly metrics: Metrics;
  readonly tables: { readonly [name: string]: MetricTable };
}

/**
 * Plays the groups that training would play next and measures collapse and gradients on them. Nothing is trained or
 * written. The regime uses the thresholds of the settings, or those that the run had found. Gradients need groups of at
 * least 2 and a loss over single episodes, and are left out otherwise.
 */
export async function diagnoseCheckpoint(
  { run, checkpoint }: { readonly run: RunFolder; readonly checkpoint: Checkpoint },
  settings: RunSettings,
  warn: (text: string) => void,
  stop: AbortSignal,
): Promise<CheckpointDiagnosis> {
  const { state } = checkpoint;
  await findServerSoon(settings, warn, stop);
  await using context = closing(await openRunContext(settings, checkpoint.policy, warn, stop));
  await using policy = closing(await openPolicy(settings, context, checkpoint.policy));
  await attachCritic(settings, policy, checkpoint.policy);
  await using reference = needsReference(settings)
    ? closing(await openReference(settings, context, policy, referenceFolder(run, settings, state.step)))
    : undefined;
  const rollouts = agentRollouts(context, sampledAgent(context, policy), warn);
  const source = new PlannedSource(settings, rollouts, { nextSeed: state.nextSeed }, stop);
  const step = state.step + 1;
  const { episodes } = await source.collect(step);
  const byEntropy = settings.algorithm.filter.score.startsWith('entropy');
  const scores = byEntropy ? await scoreEpisodes(policy, episodes, settings) : undefined;
  const filtered = filterEpisodes(episodes, settings, scores);
  const { actionTokens, tokenizer } = context;
  const parts = {
    settings: withThresholds(settings, state.collapse?.watch?.thresholds),
    policy,
    reference,
    actionTokens,
    decode: (ids: ArrayLike<number>) => tokenizer.decode(ids),
    clock: () => performance.now() / 1000,
  };
  const memory = state.collapse && { series: state.collapse.series };
  const collapse = await measureCollapse(parts, episodes, step, memory);
  const report = (metrics: Metrics, tables: CheckpointDiagnosis['tables']) => ({
    step: state.step,
    metrics: { ...filtered.metrics, ...collapse.metrics, ...metrics, ...EXITED },
    tables,
  });
  if (settings.rollout.group_size < 2 || hasPreferenceLoss(settings)) return report({}, {});
  const later = await laterScores(parts, keptEpisodes(filtered), scores);
  const sequences = keptSequences(filtered, settings, { actionTokens, ...later });
  const gradients = await diagnoseGradients(parts, { episodes, filtered, sequences });
  return report(gradients.metrics, gradients.tables);
}

/** Reports, as RAGEN does, that nothing was trained after the measurement. */
const EXITED = { 'trainer/exited_after_gradient_analysis': 1 };

function withThresholds(
  settings: RunSettings,
  found: RunSettings['diagnostics']['collapse']['thresholds'] | undefined,
): RunSettings {
  const { collapse } = settings.diagnostics;
  const thresholds = collapse.thresholds ?? found ?? null;
  return { ...settings, diagnostics: { ...settings.diagnostics, collapse: { ...collapse, thresholds } } };
}
