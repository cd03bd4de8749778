import { mean } from '../statistics.ts';
import type { TrainingSequence } from '../training-sequence.ts';
import { sequenceOffPolicyWeights } from './inputs.ts';
import type { LossSettings } from './settings.ts';

/**
 * Metrics of an update that depend on the batch alone and need no graph:
 * `critic/{vf_explained_var,returns/mean,values/mean}` where sequences have values,
 * `actor/{mismatch_kl,off_policy_weight/mean,off_policy_weight/max,off_policy_zero_frac}` where π_prox is used.
 * `mismatch_kl` is the mean of log π_behave − log π_prox over sampled tokens, an estimate of KL(π_behave ‖ π_prox).
 */
export function batchMetrics(
  sequences: readonly TrainingSequence[],
  settings: LossSettings,
): Record<string, number> {
  const trained = sequences.filter(sequence => sequence.weight !== 0);
  return { ...valueMetrics(trained), ...offPolicyMetrics(trained, settings) };
}

function valueMetrics(sequences: readonly TrainingSequence[]): Record<string, number> {
  const values: number[] = [];
  const returns: number[] = [];
  for (const sequence of sequences) {
    if (!sequence.values || !sequence.returns) continue;
    for (let t = 0; t < sequence.lossMask.length; t++) {
      if (!sequence.lossMask[t]) continue;
      values.push(sequence.values[t]);
      returns.push(sequence.returns[t]);
    }
  }
  if (values.length === 0) return {};
  return {
    'critic/vf_explained_var': explainedVariance(values, returns),
    'critic/values/mean': mean(values),
    'critic/returns/mean': mean(returns),
  };
}

function offPolicyMetrics(
  sequences: readonly TrainingSequence[],
  settings: LossSettings,
): Record<string, number> {
  const differences: number[] = [];
  const weights: number[] = [];
  for (const sequence of sequences) {
    const own = sequenceOffPolicyWeights(sequence, settings);
    if (!own) return {};
    for (let t = 0; t < sequence.lossMask.length; t++) {
      if (!sequence.lossMask[t]) continue;
      differences.push(sequence.logProbs[t] - sequence.proximalLogProbs![t]);
      weights.push(own[t]);
    }
  }
  if (weights.length === 0) return {};
  return {
    'actor/mismatch_kl': mean(differences),
    'actor/off_policy_weight/mean': mean(weights),
    'actor/off_policy_weight/max': weights.reduce((a, b) => Math.max(a, b)),
    'actor/off_policy_zero_frac': weights.filter(weight => weight === 0).length / weights.length,
  };
}

/**
 * 1 − Var(R − V) / (Var(R) + 1e-5): how much of the returns the value head explained before the update; 1 is
 * perfect, 0 as good as a constant. Variances unbiased (verl `vf_explained_var`).
 */
export function explainedVariance(values: ArrayLike<number>, returns: ArrayLike<number>): number {
  const RETURN_VARIANCE_FLOOR = 1e-5;
  const errors = Float64Array.from(returns, (target, t) => target - values[t]);
  return 1 - variance(errors) / (variance(returns) + RETURN_VARIANCE_FLOOR);
}

function variance(values: ArrayLike<number>): number {
  let mean = 0;
  for (let i = 0; i < values.length; i++) mean += values[i] / values.length;
  let squares = 0;
  for (let i = 0; i < values.length; i++) squares += (values[i] - mean) ** 2;
  return values.length > 1 ? squares / (values.length - 1) : 0;
}
