import type { TrainingSequence } from '../algorithms/training-sequence.ts';
import { experienceSettings, trainingSequences } from '../data/experience.ts';
import { allEpisodes, type Filtered, keptEpisodes } from '../data/filtering.ts';
import { laterScores } from '../data/scoring.ts';
import type { Policy } from '../policy/policy.ts';
import type { Episode } from '../rollout/episode.ts';
import { type CollapseMemory, type CollapseParts, measureCollapse } from './collapse/collapse.ts';
import { type DecompositionResult, decomposeGradients } from './gradients/gradient-decomposition.ts';

export interface DiagnosingParts extends CollapseParts {
  readonly policy: Pick<Policy, 'score' | 'scoreContinuations' | 'decomposeGradients' | 'estimate'>;
  readonly reference?: Pick<Policy, 'score'>;
  /** Ids of the tokens that actions are made of, per tag. */
  readonly actionTokens: ReadonlyMap<string, ReadonlySet<number>>;
}

/** The batch of an iteration. */
export interface DiagnosedBatch {
  /** Before the filter. */
  readonly episodes: readonly Episode[];
  readonly filtered: Filtered;
  /** The kept episodes as they are trained on, in their order. */
  readonly sequences: readonly TrainingSequence[];
}

export interface Diagnosis extends DecompositionResult {
  readonly memory: CollapseMemory | undefined;
  /** Readable warnings about the policy's health. */
  readonly alarms: readonly string[];
}

/**
 * The measurements due at an iteration, counted from 1, under the weights before its update. They do not change the
 * run's draws and weights.
 */
export async function diagnose(
  parts: DiagnosingParts,
  batch: DiagnosedBatch,
  step: number,
  memory: CollapseMemory | undefined,
): Promise<Diagnosis> {
  const { collapse, gradients } = parts.settings.diagnostics;
  const present = batch.episodes.length > 0;
  const collapseDue = collapse.every > 0 && (step === 1 || step % collapse.every === 0);
  const gradientsDue = gradients.every > 0 && (step - 1) % gradients.every === 0;
  const measured =
    present && collapseDue ? await measureCollapse(parts, batch.episodes, step, memory) : undefined;
  const decomposed = present && gradientsDue ? await diagnoseGradients(parts, batch) : undefined;
  return {
    metrics: { ...measured?.metrics, ...decomposed?.metrics },
    tables: decomposed?.tables ?? {},
    memory: measured?.memory ?? memory,
    alarms: measured?.alarms ?? [],
  };
}

const AFTER_FILTER = 'grad_norm';
const BEFORE_FILTER = 'grad_norm_prefilter';

/**
 * The gradient decomposition after the filter, and also before it under a separate prefix if the settings ask for it.
 */
export async function diagnoseGradients(
  parts: DiagnosingParts,
  { episodes, filtered, sequences }: DiagnosedBatch,
): Promise<DecompositionResult> {
  const { settings, actionTokens } = parts;
  const after = await decomposeGradients(
    parts,
    { episodes: keptEpisodes(filtered), sequences },
    AFTER_FILTER,
  );
  if (!settings.diagnostics.gradients.prefilter) return after;
  const before =
    filtered.kept.length === filtered.groups
      ? renamed(after)
      : await decomposeGradients(
          parts,
          {
            episodes,
            sequences: trainingSequences(
              allEpisodes(episodes, settings),
              experienceSettings(settings, actionTokens),
              await laterScores(parts, episodes),
            ),
          },
          BEFORE_FILTER,
        );
  return {
    metrics: { ...after.metrics, ...before.metrics },
    tables: { ...after.tables, ...before.tables },
  };
}

/** A filter that keeps everything leaves the gradients unchanged. */
function renamed({ metrics, tables }: DecompositionResult): DecompositionResult {
  const rename = <T>(values: { readonly [name: string]: T }): { [name: string]: T } =>
    Object.fromEntries(
      Object.entries(values).map(([name, value]) => [name.replace(AFTER_FILTER, BEFORE_FILTER), value]),
    );
  return { metrics: rename(metrics), tables: rename(tables) };
}
