import type { TrainingSequence } from '../../data/sequences/training-sequence.ts';
import { countTrained, type LossCounts, tokenFactor } from './aggregation.ts';
import { type LossStructure, ratioDenominator, sequenceOffPolicyWeights } from './inputs.ts';
import { klDerivative, klEstimate } from './kl.ts';
import { clampLogRatio } from './policy-loss.ts';
import { policyLoss } from './registry.ts';
import type { LossSettings } from './settings.ts';
import { valueLoss } from './value.ts';

/** What the model says about one sequence under the weights being trained. */
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
 * The whole loss of an update in float64 on plain arrays, with its derivatives by hand: what the graph form is
 * tested against.
 *
 * loss = policy − entropyCoefficient · entropy + klCoefficient · KL + valueCoefficient · value
 *
 * @param counts of the whole optimiser step
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
  const blank = () => sequences.map(sequence => new Float64Array(sequence.mask.length));
  const gradients = { logProbs: blank(), entropies: blank(), values: blank() };
  let loss = 0;
  sequences.forEach((sequence, i) => {
    const weight = sequence.weight ?? 1;
    if (weight === 0) return;
    const { mask } = sequence;
    const { logProbs, entropies, values } = outputs[i];
    const factor = (tokens: number, count: number, own: number) =>
      weight * tokenFactor(settings.aggregation, tokens, count, own, settings.maxResponseLength);
    const aggregation = factor(counts.tokens, counts.sequences, countTrained(mask));
    const oldLogProbs = ratioDenominator(sequence, settings);
    const offPolicy = sequenceOffPolicyWeights(sequence, settings);
    const policy = policyLoss(settings.policy)(
      { mask, logProbs, oldLogProbs, advantages: sequence.advantages },
      settings,
    );
    const supervised = settings.policy === 'cross_entropy';
    const entropyMask = sequence.entropyMask ?? mask;
    const ownEntropy = countTrained(mask, entropyMask);
    const entropyFactor = factor(counts.entropyTokens, counts.entropySequences, ownEntropy);

    for (let t = 0; t < mask.length; t++) {
      if (!mask[t]) continue;
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
        const term = aggregation * klEstimate(structure.kl, d);
        loss += settings.kl.coefficient * term;
        gradients.logProbs[i][t] += settings.kl.coefficient * aggregation * klDerivative(structure.kl, d);
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
