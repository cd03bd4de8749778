import type { TrainingSequence } from '../../data/sequences/training-sequence.ts';
import { countTrained, type LossCounts, tokenFactor } from './aggregation.ts';
import { offPolicyWeights } from './off-policy.ts';
import type { LossScalarInput, LossTokenInput } from './policy-loss.ts';
import { policyLoss } from './registry.ts';
import type { KlEstimator, LossSettings } from './settings.ts';

/**
 * What a loss is made of. Two updates with equal structures run the same graph: coefficients, clip ranges,
 * aggregation and off-policy correction are inputs, so schedules never recompile.
 */
export interface LossStructure {
  /** Null for a critic, which learns values alone. */
  readonly policy: string | null;
  readonly dualClip: boolean;
  readonly kl: KlEstimator | null;
  readonly entropy: boolean;
  readonly value: boolean;
  readonly valueClip: boolean;
}

/** What the model and the batch offer to the loss. */
export interface AvailableLossInputs {
  /** The model has a value head and the sequences have `returns` and `values`. */
  readonly value: boolean;
  /** The graph computes entropies; without them neither the bonus nor the metric exists. */
  readonly entropy: boolean;
  /** The graph computes log-probabilities; so when absent. A critic's computes none, and its loss is the value's alone. */
  readonly policy?: boolean;
}

export function lossStructure(settings: LossSettings, offer: AvailableLossInputs): LossStructure {
  const hasAdvantages = policyLoss(settings.policy).kind === 'ratio';
  const value = offer.value && hasAdvantages;
  const policy = offer.policy ?? true;
  return {
    policy: policy ? settings.policy : null,
    dualClip: policy && settings.dualClip > 0 && hasAdvantages,
    kl: policy && settings.kl.coefficient > 0 ? settings.kl.estimator : null,
    entropy: offer.entropy,
    value,
    valueClip: value && settings.value.clip > 0,
  };
}

function hasRatios({ policy }: LossStructure): boolean {
  return policy !== null && policyLoss(policy).kind === 'ratio';
}

export function lossTokenInputs(structure: LossStructure): readonly LossTokenInput[] {
  const names: LossTokenInput[] = ['lossMask'];
  if (structure.policy !== null) names.push('policyWeights');
  if (hasRatios(structure)) names.push('oldLogProbs', 'advantages');
  if (structure.policy !== null) names.push(...(policyLoss(structure.policy).reads ?? []));
  if (structure.kl) names.push('klWeights', 'referenceLogProbs');
  if (structure.entropy) names.push('entropyMask', 'entropyWeights');
  if (structure.value) names.push('valueWeights', 'returns');
  if (structure.valueClip) names.push('oldValues');
  return names;
}

export function lossScalarInputs(structure: LossStructure): readonly LossScalarInput[] {
  const names: LossScalarInput[] = ['inverseTokens'];
  if (hasRatios(structure)) names.push('ratioLow', 'ratioHigh');
  if (structure.dualClip) names.push('dualClip');
  if (structure.kl) names.push('klCoefficient');
  if (structure.entropy) names.push('entropyCoefficient', 'inverseEntropyTokens');
  if (structure.value) names.push('valueCoefficient');
  if (structure.valueClip) names.push('valueClip');
  return names;
}

/** Values of the scalar inputs; `counts` are those of the whole optimizer step. */
export function lossScalars(
  settings: LossSettings,
  counts: LossCounts,
): Readonly<Record<LossScalarInput, number>> {
  return {
    inverseTokens: inverse(counts.tokens),
    ratioLow: 1 - settings.clipLow,
    ratioHigh: 1 + settings.clipHigh,
    dualClip: settings.dualClip,
    klCoefficient: settings.kl.coefficient,
    entropyCoefficient: settings.entropyCoefficient,
    inverseEntropyTokens: inverse(counts.entropyTokens),
    valueCoefficient: settings.value.coefficient,
    valueClip: settings.value.clip,
  };
}

export type LossInputs = Readonly<Partial<Record<LossTokenInput, Float32Array>>>;

/**
 * The token inputs of one sequence.
 * @param counts of the whole optimizer step, from `countLossTokens`
 * @throws RangeError when the sequence lacks an array that the settings need
 */
export function lossInputs(
  sequence: TrainingSequence,
  settings: LossSettings,
  structure: LossStructure,
  counts: LossCounts,
): LossInputs {
  const weight = sequence.weight ?? 1;
  if (!(weight >= 0)) throw new RangeError(`weight of a training sequence is ${weight}; it must be ≥ 0`);
  const lossMask = weight === 0 ? new Uint8Array(sequence.lossMask.length) : sequence.lossMask;
  const entropyMask = sequence.entropyMask ?? sequence.lossMask;
  const own = countTrained(lossMask);
  const factor = (tokens: number, sequences: number, ownTokens: number) =>
    weight * tokenFactor(settings.aggregation, tokens, sequences, ownTokens, settings.maxResponseLength);
  const policyFactor = own === 0 ? 0 : factor(counts.tokens, counts.sequences, own);
  const ownEntropy = countTrained(lossMask, entropyMask);
  const entropyFactor =
    ownEntropy === 0 ? 0 : factor(counts.entropyTokens, counts.entropySequences, ownEntropy);
  const rewarded = (t: number) => lossMask[t] !== 0 && entropyMask[t] !== 0;

  const makers: Record<LossTokenInput, () => Float32Array> = {
    lossMask: () => select(lossMask, () => 1),
    oldLogProbs: () => pick(lossMask, ratioDenominator(sequence, settings)),
    advantages: () => pick(lossMask, sequence.advantages),
    policyWeights: () => {
      const weights = sequenceOffPolicyWeights(sequence, settings);
      return select(lossMask, t => (weights ? policyFactor * weights[t] : policyFactor));
    },
    klWeights: () => select(lossMask, () => policyFactor),
    referenceLogProbs: () => pick(lossMask, required(sequence, 'referenceLogProbs', 'a KL term needs')),
    entropyMask: () => select(lossMask, t => (rewarded(t) ? 1 : 0)),
    entropyWeights: () => select(lossMask, t => (rewarded(t) ? entropyFactor : 0)),
    valueWeights: () => select(lossMask, () => weight * inverse(counts.tokens)),
    returns: () => pick(lossMask, required(sequence, 'returns', 'a value head needs')),
    oldValues: () => pick(lossMask, required(sequence, 'values', 'value clipping needs')),
    meanWeights: () => select(lossMask, () => 1 / own),
    preferences: () =>
      select(lossMask, () => (preferenceOf(sequence).chosen ? settings.beta : -settings.beta)),
    partnerLogRatios: () => select(lossMask, () => preferenceOf(sequence).partnerLogRatio),
  };
  return Object.fromEntries(lossTokenInputs(structure).map(name => [name, makers[name]()]));
}

function preferenceOf({ preference }: TrainingSequence): NonNullable<TrainingSequence['preference']> {
  if (!preference)
    throw new RangeError('a preference loss needs pairs, and a training sequence has no partner');
  return preference;
}

/** Whether the ratio is taken against π_prox: where the loss says so, and under any off-policy correction. */
function usesProximal({ policy, offPolicy }: LossSettings): boolean {
  return policyLoss(policy).needsProximal === true || offPolicy.kind !== 'none';
}

/** log-probabilities in the ratio's denominator: π_prox where it is used, else π_behave. */
export function ratioDenominator(sequence: TrainingSequence, settings: LossSettings): Float32Array {
  return usesProximal(settings) ? required(sequence, 'proximalLogProbs', why(settings)) : sequence.logProbs;
}

/** π_prox / π_behave after the correction of `settings.offPolicy`; null where none is applied. */
export function sequenceOffPolicyWeights(
  sequence: TrainingSequence,
  settings: LossSettings,
): Float64Array | null {
  if (!usesProximal(settings)) return null;
  const proximalLogProbs = required(sequence, 'proximalLogProbs', why(settings));
  const input = { lossMask: sequence.lossMask, proximalLogProbs, behaviorLogProbs: sequence.logProbs };
  return offPolicyWeights(input, settings.offPolicy);
}

function why({ policy, offPolicy }: LossSettings): string {
  return offPolicy.kind === 'none' ? `${policy} needs` : `off-policy correction ${offPolicy.kind} needs`;
}

function required<K extends 'referenceLogProbs' | 'returns' | 'values' | 'proximalLogProbs'>(
  sequence: TrainingSequence,
  name: K,
  reason: string,
): Float32Array {
  const array = sequence[name];
  if (!array) throw new RangeError(`${reason} "${name}", which a training sequence lacks`);
  return array;
}

function inverse(count: number): number {
  return count === 0 ? 0 : 1 / count;
}

function pick(lossMask: Uint8Array, values: ArrayLike<number>): Float32Array {
  return select(lossMask, t => values[t]);
}

function select(lossMask: Uint8Array, at: (t: number) => number): Float32Array {
  const array = new Float32Array(lossMask.length);
  for (let t = 0; t < lossMask.length; t++) if (lossMask[t]) array[t] = at(t);
  return array;
}
