import { hasPreferenceLoss, needsReference } from '../../config/derived.ts';
import type { RunSettings } from '../../config/settings.ts';
import { keptSequences } from '../../data/batch.ts';
import { filterEpisodes, keptEpisodes } from '../../data/filtering.ts';
import type { Metrics } from '../../data/metrics.ts';
import { laterScores, scoreEpisodes } from '../../data/scoring.ts';
import { diagnoseCollapse, diagnoseGradients } from '../../diagnostics/diagnosing.ts';
import type { MetricTable } from '../../tracking/tracker.ts';
import { openPolicy, openReference, withCritic } from '../setup/open-policy.ts';
import { referenceFolder } from '../setup/refreshed-reference.ts';
import { agentRollouts, openRunContext, sampledAgent } from '../setup/run-context.ts';
import { PlannedSource } from '../sources/planned-source.ts';
import type { Checkpoint } from './checkpoint.ts';
import type { RunFolder } from './run-folder.ts';

export interface CheckpointDiagnosis {
  readonly step: number;
  readonly metrics: Metrics;
  readonly tables: { readonly [name: string]: MetricTable };
}

/**
 * Plays the groups that training would play next and measures collapse and gradients on them. Nothing is trained and nothing is
 * written. The regime uses the thresholds of the settings, or those that the run had found. Gradients need groups
 * of at least 2 and a loss over single episodes, and are left out otherwise.
 */
export async function diagnoseCheckpoint(
  { run, checkpoint }: { readonly run: RunFolder; readonly checkpoint: Checkpoint },
  settings: RunSettings,
  warn: (text: string) => void,
  stop: AbortSignal,
): Promise<CheckpointDiagnosis> {
  const { state } = checkpoint;
  const context = await openRunContext(settings, checkpoint.policy, warn, stop);
  try {
    const actor = await openPolicy(settings, context, checkpoint.policy);
    const policy = await withCritic(settings, actor, checkpoint.policy).catch(async error => {
      await actor.close();
      throw error;
    });
    try {
      const reference = needsReference(settings)
        ? await openReference(settings, context, actor, referenceFolder(run, settings, state.step))
        : undefined;
      try {
        const rollouts = agentRollouts(context, sampledAgent(context, actor), warn);
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
        const collapse = await diagnoseCollapse(parts, episodes, step, memory);
        if (settings.rollout.group_size < 2 || hasPreferenceLoss(settings)) {
          return {
            step: state.step,
            metrics: { ...filtered.metrics, ...collapse.metrics, ...EXITED },
            tables: {},
          };
        }
        const later = await laterScores(parts, keptEpisodes(filtered), scores);
        const sequences = keptSequences(filtered, settings, { actionTokens, ...later });
        const gradients = await diagnoseGradients(parts, { episodes, filtered, sequences });
        return {
          step: state.step,
          metrics: { ...filtered.metrics, ...collapse.metrics, ...gradients.metrics, ...EXITED },
          tables: gradients.tables,
        };
      } finally {
        await reference?.close();
      }
    } finally {
      await policy.close();
    }
  } finally {
    await context.close();
  }
}

/** Says, as in RAGEN, that nothing was trained after the measurement. */
const EXITED = { 'trainer/exited_after_gradient_analysis': 1 };

function withThresholds(
  settings: RunSettings,
  found: RunSettings['diagnostics']['collapse']['thresholds'] | undefined,
): RunSettings {
  const { collapse } = settings.diagnostics;
  const thresholds = collapse.thresholds ?? found ?? null;
  return { ...settings, diagnostics: { ...settings.diagnostics, collapse: { ...collapse, thresholds } } };
}
