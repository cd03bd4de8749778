import type { EarlyStoppingSettings } from '../algorithms/filters/early-stopping.ts';
import type { FilterSettings } from '../algorithms/filters/settings.ts';
import type { LossSettings } from '../algorithms/losses/settings.ts';
import type { OptimizerSettings } from '../policy/policy.ts';
import { learningRateAt } from './schedule.ts';
import type { RunSettings } from './settings.ts';
import type { ValidationPlan } from './validation.ts';

/** Groups of each training tag in an iteration. */
export function groupsPerTag(settings: RunSettings): { readonly tag: string; readonly groups: number }[] {
  const { env_groups, n_groups } = settings.rollout;
  const tags = settings.train_tags;
  if (Object.keys(n_groups).length > 0) {
    return tags.map(tag => ({ tag, groups: n_groups[tag] }));
  }
  return splitGroups(tags, env_groups);
}

/** Splits groups over tags as evenly as they go; the first tags get the remainder. */
export function splitGroups(
  tags: readonly string[],
  groups: number,
): { readonly tag: string; readonly groups: number }[] {
  const base = Math.floor(groups / tags.length);
  return tags.map((tag, i) => ({ tag, groups: base + (i < groups % tags.length ? 1 : 0) }));
}

/** The loss as the policy's update takes it. */
export function lossSettings(settings: RunSettings): LossSettings {
  const { loss } = settings;
  return {
    policy: loss.policy,
    clipLow: loss.clip_low,
    clipHigh: loss.clip_high,
    dualClip: loss.dual_clip,
    aggregation: loss.aggregation,
    maxResponseLength: settings.policy.context,
    entropyCoefficient: loss.entropy_coefficient,
    kl: { estimator: 'k3', coefficient: 0 },
    value: {
      coefficient: settings.policy.value_head ? loss.value_coefficient : 0,
      clip: loss.value_clip,
    },
    offPolicy: { kind: 'none' },
  };
}

/** The optimiser of an iteration, counted from 0. */
export function optimizerSettings(
  { optimizer, training }: RunSettings,
  iteration: number,
): OptimizerSettings {
  return {
    learningRate: learningRateAt(
      {
        peak: optimizer.learning_rate,
        warmup: optimizer.warmup_iterations,
        total: training.steps,
        decay: optimizer.decay,
        finalShare: optimizer.final_share,
      },
      iteration,
    ),
    beta1: optimizer.beta1,
    beta2: optimizer.beta2,
    epsilon: optimizer.epsilon,
    weightDecay: optimizer.weight_decay,
    clipNorm: optimizer.clip_norm,
  };
}

export function filterSettings({ algorithm: { filter } }: RunSettings): FilterSettings {
  return {
    strategy: filter.strategy,
    value: filter.value,
    score: filter.score,
    order: filter.order,
    mass: filter.mass,
    includeZero: filter.include_zero,
  };
}

export function earlyStoppingSettings({
  training: { early_stopping: rules },
}: RunSettings): EarlyStoppingSettings {
  return {
    emptyBatches: rules.empty_batches,
    stdShare: rules.std_share,
    stdSteps: rules.std_steps,
    successFloor: rules.success_floor,
    successValidations: rules.success_validations,
  };
}

export function validationPlan(settings: RunSettings): ValidationPlan {
  const { validation } = settings;
  return {
    tags: splitGroups(validation.tags ?? settings.train_tags, validation.episodes),
    seed: validation.seed,
    temperature: validation.temperature,
    topK: validation.top_k,
    topP: validation.top_p,
  };
}
