import type { RunSettings } from '../config/settings.ts';
import type { Metrics } from '../data/metrics.ts';
import { laterScores } from '../data/scoring.ts';
import type { Policy } from '../policy/policy.ts';
import type { Episode } from '../rollout/episode.ts';
import { mixSeed, PURPOSE } from '../rollout/seeds.ts';
import { type CollapseMemory, measureCollapse } from './collapse.ts';
import { decomposeGradients } from './gradient-decomposition.ts';

export interface DiagnosingParts {
  readonly settings: RunSettings;
  readonly policy: Pick<Policy, 'score' | 'measure' | 'estimate'>;
  readonly reference?: Pick<Policy, 'score'>;
  /** Ids of the tokens that actions are made of, per tag. */
  readonly actionTokens: ReadonlyMap<string, ReadonlySet<number>>;
  /** Text of tokens, as the policy's tokenizer writes it. */
  readonly decode: (ids: ArrayLike<number>) => string;
}

/**
 * What is due of the measurements at an iteration, counted from 1: on its episodes before the filter, with the weights they
 * are about to change. Draws and weights of the run stay what they would be without.
 */
export async function diagnose(
  parts: DiagnosingParts,
  episodes: readonly Episode[],
  step: number,
  memory: CollapseMemory | undefined,
): Promise<{ readonly metrics: Metrics; readonly memory: CollapseMemory | undefined }> {
  const { settings, policy, actionTokens, decode } = parts;
  const { diagnostics, rollout } = settings;
  const due = (every: number) => every > 0 && step % every === 0 && episodes.length > 0;
  const collapse =
    rollout.think && due(diagnostics.collapse.every)
      ? await measureCollapse(
          {
            policy,
            decode,
            samples: diagnostics.collapse.samples,
            seed: mixSeed(settings.seed, PURPOSE.diagnostics, step),
            temperature: rollout.temperature,
            maxSequenceLength: settings.policy.context,
          },
          episodes,
          step,
          memory,
        )
      : { metrics: {}, memory };
  const gradients = due(diagnostics.gradients.every)
    ? await decomposeGradients(
        { policy, settings, actionTokens, later: await laterScores(parts, episodes) },
        episodes,
      )
    : {};
  return { metrics: { ...collapse.metrics, ...gradients }, memory: collapse.memory };
}
