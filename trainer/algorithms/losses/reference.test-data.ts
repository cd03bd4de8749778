import type { TrainingSequence } from '../training-sequence.ts';
import { countLossTokens, countTrained, type LossCounts, tokenFactor } from './aggregation.ts';
import { type LossStructure, ratioDenominator, sequenceOffPolicyWeights } from './inputs.ts';
import { K3_EXPONENT_LIMIT, K3_RESULT_LIMIT, klEstimate } from './kl.ts';
import { clampLogRatio } from './policy-loss.ts';
import { POLICY_REFERENCES } from './policy-reference.test-data.ts';
import { RECENT_REFERENCES } from './policy-reference-recent.test-data.ts';
import type { Aggregation, KlEstimator, LossSettings } from './settings.ts';

const REFERENCES = { ...POLICY_REFERENCES, ...RECENT_REFERENCES };

/** Model outputs for one sequence under the weights being trained. */
export interface CurrentOutputs {
  readonly logProbs: ArrayLike<number>;
  readonly entropies?: ArrayLike<number>;
  readonly values?: ArrayLike<number>;
}

export interface LossResult {
  readonly loss: number;
  /** Metrics by their logged names; sums over disjoint parts of a step give the metrics of the step. */
  readonly metrics: Readonly<Record<string, number>>;
  /** Derivatives of the loss, one array per sequence. */
  readonly gradients: {
    readonly logProbs: readonly Float64Array[];
    readonly entropies: readonly Float64Array[];
    readonly values: readonly Float64Array[];
  };
}

/**
 * The whole loss of an update in float64 on plain arrays, with its derivatives by hand: what `buildUpdateLoss` is tested
 * against.
 *
 * loss = policy − entropyCoefficient · entropy + klCoefficient · KL + valueCoefficient · value
 *
 * @param counts of the whole optimizer step
 */
export function numericLoss(
  sequences: readonly TrainingSequence[],
  outputs: readonly CurrentOutputs[],
  settings: LossSettings,
  structure: LossStructure,
  counts: LossCounts,
): LossResult {
  const sums = new Map<string, number>();
  const add = (name: string, amount: number) => sums.set(name, (sums.get(name) ?? 0) + amount);
  const blank = () => sequences.map(sequence => new Float64Array(sequence.lossMask.length));
  const gradients = { logProbs: blank(), entropies: blank(), values: blank() };
  let loss = 0;
  sequences.forEach((sequence, i) => {
    const weight = sequence.weight ?? 1;
    if (weight === 0) return;
    const { lossMask } = sequence;
    const { logProbs, entropies, values } = outputs[i];
    const factor = (tokens: number, count: number, own: number) =>
      weight * tokenFactor(settings.aggregation, tokens, count, own, settings.maxResponseLength);
    const aggregation = factor(counts.tokens, counts.sequences, countTrained(lossMask));
    const oldLogProbs = ratioDenominator(sequence, settings);
    const offPolicy = sequenceOffPolicyWeights(sequence, settings);
    const policy = REFERENCES[settings.policy](
      { lossMask, logProbs, oldLogProbs, advantages: sequence.advantages, selected: sequence.selected },
      settings,
    );
    const supervised = settings.policy === 'cross_entropy';
    const entropyMask = sequence.entropyMask ?? lossMask;
    const ownEntropy = countTrained(lossMask, entropyMask);
    const entropyFactor = factor(counts.entropyTokens, counts.entropySequences, ownEntropy);

    for (let t = 0; t < lossMask.length; t++) {
      if (!lossMask[t]) continue;
      const policyFactor = aggregation * (offPolicy ? offPolicy[t] : 1);
      loss += policyFactor * policy.losses[t];
      gradients.logProbs[i][t] += policyFactor * policy.derivatives[t];
      if (supervised) {
        add('sft/loss', policyFactor * policy.losses[t]);
      } else {
        add('actor/pg_loss', policyFactor * policy.losses[t]);
        add('actor/pg_clipfrac', policy.clipped[t] / counts.tokens);
        add('actor/pg_clipfrac_lower', policy.clippedLower[t] / counts.tokens);
        add('actor/ppo_kl', -clampLogRatio(logProbs[t] - oldLogProbs[t]) / counts.tokens);
      }
      if (structure.kl) {
        const d = logProbs[t] - sequence.referenceLogProbs![t];
        const [estimate, derivative] =
          structure.kl === 'reverse'
            ? reverseKlReference(logProbs[t], oldLogProbs[t], sequence.referenceLogProbs![t], settings.kl)
            : [klEstimate(structure.kl, d), klDerivative(structure.kl, d)];
        const term = aggregation * estimate;
        loss += settings.kl.coefficient * term;
        gradients.logProbs[i][t] += settings.kl.coefficient * aggregation * derivative;
        add('actor/kl_loss', term);
      }
      if (structure.entropy && entropyMask[t]) {
        const bonus = settings.entropyCoefficient * entropyFactor;
        loss -= bonus * entropies![t];
        gradients.entropies[i][t] -= bonus;
        add('actor/entropy', entropies![t] / counts.entropyTokens);
      }
      if (structure.value) {
        const oldValue = structure.valueClip ? sequence.values![t] : 0;
        const clip = structure.valueClip ? settings.value.clip : 0;
        const token = valueLoss(values![t], oldValue, sequence.returns![t], clip);
        const term = weight / counts.tokens;
        loss += settings.value.coefficient * term * token.loss;
        gradients.values[i][t] += settings.value.coefficient * term * token.derivative;
        add('critic/vf_loss', term * token.loss);
        add('critic/vf_clipfrac', (token.clipped ? 1 : 0) / counts.tokens);
        add('critic/vpred_mean', values![t] / counts.tokens);
      }
    }
  });
  return { loss, metrics: Object.fromEntries(sums), gradients };
}

/** A term of `reverseKlTerm` and its derivative. */
function reverseKlReference(
  logProb: number,
  anchor: number,
  reference: number,
  { ratioCap = 20, keepLow = 0.2, tau = 1e-3 }: LossSettings['kl'],
): [term: number, derivative: number] {
  const move = logProb - anchor;
  const kept = Math.exp(logProb) - Math.exp(anchor) >= -keepLow;
  const weight = Math.min(Math.exp(clampLogRatio(move)), ratioCap);
  const gain = kept ? (logProb - reference) * weight : 0;
  return [gain + tau * move * move, gain + 2 * tau * move];
}

/** Derivative of {@link klEstimate} with respect to log π; 0 where k3 is clamped. */
export function klDerivative(estimator: KlEstimator, d: number): number {
  switch (estimator) {
    case 'k1':
      return 1;
    case 'k2':
      return d;
    case 'k3': {
      const clamped = Math.abs(d) > K3_EXPONENT_LIMIT || Math.expm1(-d) + d > K3_RESULT_LIMIT;
      return clamped ? 0 : -Math.expm1(-d);
    }
    case 'abs':
      return Math.sign(d);
  }
}

/** One token's value loss, its derivative with respect to the prediction, and whether the clip decided it. */
export interface ValueLoss {
  readonly loss: number;
  readonly derivative: number;
  readonly clipped: boolean;
}

/**
 * Clipped value regression: ½·max((v − R)², (clip(v, v_old ± ε) − R)²); ε = 0 leaves ½·(v − R)².
 *
 * Source: Schulman et al., 2017 (baselines' implementation); verl 0.6.1 `compute_value_loss`.
 */
export function valueLoss(value: number, oldValue: number, target: number, clip: number): ValueLoss {
  const error = value - target;
  const plain = error * error;
  if (clip === 0) return { loss: plain / 2, derivative: error, clipped: false };
  const bounded = Math.min(Math.max(value, oldValue - clip), oldValue + clip);
  const boundedSquare = (bounded - target) ** 2;
  const clipped = boundedSquare > plain;
  return { loss: (clipped ? boundedSquare : plain) / 2, derivative: clipped ? 0 : error, clipped };
}

/** Aggregates token losses of whole sequences; entries outside the loss mask never count. */
export function aggregate(
  losses: readonly ArrayLike<number>[],
  lossMasks: readonly ArrayLike<number>[],
  aggregation: Aggregation,
  maxResponseLength: number,
): number {
  const counts = countLossTokens(lossMasks.map(lossMask => ({ lossMask })));
  let sum = 0;
  for (let i = 0; i < losses.length; i++) {
    const lossMask = lossMasks[i];
    const own = countTrained(lossMask);
    const factor = tokenFactor(aggregation, counts.tokens, counts.sequences, own, maxResponseLength);
    for (let t = 0; t < lossMask.length; t++) if (lossMask[t]) sum += factor * losses[i][t];
  }
  return sum;
}
