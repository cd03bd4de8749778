import type { TrainingSequence } from '../training-sequence.ts';
import {
  countStream,
  countTrained,
  type LossCounts,
  type LossStream,
  streamWeight,
  tokenFactor,
} from './aggregation.ts';
import { offPolicyWeights } from './off-policy.ts';
import type { LossScalarInput, LossTokenInput } from './policy-loss.ts';
import { policyLoss } from './registry.ts';
import type { LossKlEstimator, LossSettings } from './settings.ts';

/**
 * Structure of a loss. Updates with equal structures run the same graph: coefficients, clip ranges, aggregation and
 * off-policy correction are inputs, so schedules never recompile.
 */
export interface LossStructure {
  /** Null without a policy gradient: for a critic, which only learns values, and in supervised learning. */
  readonly policy: string | null;
  /** Variant of the policy loss, where it has several. */
  readonly variant?: string;
  /** The cross-entropy's part in the loss: next to a policy gradient, or all of it in supervised learning. */
  readonly crossEntropy?: 'auxiliary' | 'supervised';
  readonly dualClip: boolean;
  readonly kl: LossKlEstimator | null;
  readonly entropy: boolean;
  readonly value: boolean;
  readonly valueClip: boolean;
}

/** Inputs of the loss that the model and the batch provide. */
export interface AvailableLossInputs {
  /** The model has a value head and the sequences have `returns` and `values`. */
  readonly value: boolean;
  /** The graph computes entropies; without them neither the bonus nor the metric exists. */
  readonly entropy: boolean;
  /**
   * The graph computes log-probabilities; true when absent. A critic's graph computes none, and its loss only has the
   * value term.
   */
  readonly policy?: boolean;
  /** The sequences have `crossEntropyWeights`. */
  readonly crossEntropy?: boolean;
}

export function lossStructure(settings: LossSettings, offer: AvailableLossInputs): LossStructure {
  const loss = policyLoss(settings.policy);
  const hasAdvantages = loss.kind === 'ratio';
  const value = offer.value && hasAdvantages;
  const predicts = offer.policy ?? true;
  const supervised = loss.kind === 'likelihood';
  const policy = predicts && !supervised;
  return {
    policy: policy ? settings.policy : null,
    ...(policy && loss.variant ? { variant: loss.variant(settings) } : {}),
    ...(predicts && supervised ? { crossEntropy: 'supervised' as const } : {}),
    ...(predicts && !supervised && offer.crossEntropy ? { crossEntropy: 'auxiliary' as const } : {}),
    dualClip: policy && settings.dualClip > 0 && hasAdvantages,
    kl: predicts && settings.kl.coefficient > 0 ? settings.kl.estimator : null,
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
  if (hasRatios(structure)) names.push('advantages');
  if (hasRatios(structure) || structure.kl === 'reverse') names.push('oldLogProbs');
  if (structure.policy !== null) names.push(...(policyLoss(structure.policy).reads ?? []));
  if (structure.crossEntropy) names.push('crossEntropyWeights');
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
  if (structure.policy !== null) {
    names.push(...Object.keys(policyLoss(structure.policy).scalars ?? {}).map(ownScalar));
  }
  if (structure.kl) names.push('klCoefficient');
  if (structure.kl === 'reverse') names.push('klRatioCap', 'klKeepLow', 'klTau');
  if (structure.entropy) names.push('entropyCoefficient', 'inverseEntropyTokens');
  if (structure.value) names.push('valueCoefficient');
  if (structure.valueClip) names.push('valueClip');
  return names;
}

function ownScalar(name: string): `policy.${string}` {
  return `policy.${name}`;
}

/** Values of the scalar inputs; `counts` are those of the whole optimizer step. */
export function lossScalars(
  settings: LossSettings,
  counts: LossCounts,
): Readonly<Record<LossScalarInput, number>> {
  const own = Object.entries(policyLoss(settings.policy).scalars ?? {});
  return {
    ...Object.fromEntries(own.map(([name, of]) => [ownScalar(name), of(settings)])),
    inverseTokens: inverse(counts.tokens),
    ratioLow: 1 - settings.clipLow,
    ratioHigh: 1 + settings.clipHigh,
    dualClip: settings.dualClip,
    klCoefficient: settings.kl.coefficient,
    entropyCoefficient: settings.entropyCoefficient,
    inverseEntropyTokens: inverse(counts.entropyTokens),
    valueCoefficient: settings.value.coefficient,
    valueClip: settings.value.clip,
    klRatioCap: settings.kl.ratioCap ?? Number.POSITIVE_INFINITY,
    klKeepLow: settings.kl.keepLow ?? Number.POSITIVE_INFINITY,
    klTau: settings.kl.tau ?? 0,
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
  // Every stream is averaged over the tokens that have a weight in it, so that none dilutes another.
  const streamFactor = (stream: LossStream) => {
    const tokens = weight === 0 ? 0 : countStream(sequence, stream);
    const all = counts.streams?.[stream] ?? counts;
    return tokens === 0 ? 0 : factor(all.tokens, all.sequences, tokens);
  };
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
      const factor = streamFactor('policy');
      return select(lossMask, t => {
        const own = factor * streamWeight(sequence, 'policy', t);
        return weights ? own * weights[t] : own;
      });
    },
    crossEntropyWeights: () => {
      const factor = streamFactor('crossEntropy');
      return Float32Array.from(lossMask, (_, t) => factor * streamWeight(sequence, 'crossEntropy', t));
    },
    klWeights: () => {
      const factor = streamFactor('kl');
      return select(lossMask, t => factor * streamWeight(sequence, 'kl', t));
    },
    selected: () => pick(lossMask, required(sequence, 'selected', `${settings.policy} needs`)),
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

/** True if an update reads log-probabilities under the weights it starts from (π_prox), with either anchor. */
export function usesProximal({ anchor, policy, offPolicy }: LossSettings): boolean {
  return anchor === 'old' || correctsForRollout({ policy, offPolicy });
}

/** True if tokens are weighed by π_prox / π_behave: where the loss says so, and under any off-policy correction. */
function correctsForRollout({ policy, offPolicy }: Pick<LossSettings, 'policy' | 'offPolicy'>): boolean {
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
  if (!correctsForRollout(settings)) return null;
  const proximalLogProbs = required(sequence, 'proximalLogProbs', why(settings));
  const input = { lossMask: sequence.lossMask, proximalLogProbs, behaviorLogProbs: sequence.logProbs };
  const weights = offPolicyWeights(input, settings.offPolicy);
  return policyLoss(settings.policy).sequenceLevel ? geometricMeans(weights, sequence.lossMask) : weights;
}

/** The geometric mean of the weights of trained tokens, at each of them. */
function geometricMeans(weights: Float64Array, lossMask: Uint8Array): Float64Array {
  const logs = weights.reduce((sum, weight, t) => (lossMask[t] ? sum + Math.log(weight) : sum), 0);
  const mean = Math.exp(logs / Math.max(1, countTrained(lossMask)));
  return weights.map((_, t) => (lossMask[t] ? mean : 0));
}

function why({ anchor, policy, offPolicy }: LossSettings): string {
  if (anchor === 'old') return 'loss.anchor old needs';
  return offPolicy.kind === 'none' ? `${policy} needs` : `off-policy correction ${offPolicy.kind} needs`;
}

function required<K extends 'referenceLogProbs' | 'returns' | 'values' | 'proximalLogProbs' | 'selected'>(
  sequence: TrainingSequence,
  name: K,
  reason: string,
): NonNullable<TrainingSequence[K]> {
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
