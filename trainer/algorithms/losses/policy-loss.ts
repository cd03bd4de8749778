import type { GraphBuilder, Tensor } from '../../tensor/graph/graph.ts';
import type { LossSettings } from './settings.ts';

/** Log-ratios are clamped to ±20 before the exponential, as verl does. */
export const LOG_RATIO_LIMIT = 20;

/**
 * Arrays over tokens that a loss reads. All are float32, have the length of the sequence, are 0 where not trained, and may be
 * padded with zeros or packed at will. The weights of the three streams (policy gradient, cross-entropy, KL) are separate.
 *
 * - `lossMask` 1 on trained tokens
 * - `oldLogProbs` the ratio's denominator; `advantages`; `referenceLogProbs`; `returns`; `oldValues`
 * - `policyWeights` aggregation × sequence weight × off-policy weight; `klWeights`, `entropyWeights` the same for
 *   their terms without the off-policy weight; `valueWeights` sequence weight / tokens of the step
 * - `entropyMask` 1 on tokens with an entropy bonus
 * - `meanWeights` 1 / trained tokens of the sequence
 * - `crossEntropyWeights` aggregation × sequence weight × the token's weight in the cross-entropy; observed tokens may have one, too
 * - `selected` 1 on tokens that `clip_cov` and `kl_cov` chose by their covariance
 * - `preferences` β where the sequence is the chosen one of its pair, −β where it is the rejected one; `partnerLogRatios` Σ log π −
 *   log π_ref over the other one
 */
export type LossTokenInput =
  | 'lossMask'
  | 'oldLogProbs'
  | 'advantages'
  | 'policyWeights'
  | 'klWeights'
  | 'referenceLogProbs'
  | 'entropyMask'
  | 'entropyWeights'
  | 'valueWeights'
  | 'returns'
  | 'oldValues'
  | 'meanWeights'
  | 'crossEntropyWeights'
  | 'selected'
  | 'preferences'
  | 'partnerLogRatios';

/** Scalars that a loss reads; all float32. */
export type LossScalarInput =
  | 'inverseTokens'
  | 'ratioLow'
  | 'ratioHigh'
  | 'dualClip'
  | 'klCoefficient'
  | 'entropyCoefficient'
  | 'inverseEntropyTokens'
  | 'valueCoefficient'
  | 'valueClip'
  | 'klRatioCap'
  | 'klKeepLow'
  | 'klTau'
  | `policy.${string}`;

/** Input of a policy loss in the graph. All token tensors have one shape and are 0 on masked tokens. */
export interface PolicyLossInput {
  /** log π_θ under the weights being trained. */
  readonly logProbs: Tensor;
  readonly token: (name: LossTokenInput) => Tensor;
  readonly scalar: (name: LossScalarInput) => Tensor;
  /** True if `scalar('dualClip')` exists. */
  readonly dualClip: boolean;
  /** Sum over the tokens of a sequence, given back at each of its tokens. */
  readonly sequenceSum: (x: Tensor) => Tensor;
  /** The loss's `variant`. */
  readonly variant?: string;
}

/** A metric over the trained tokens where `where` holds, over all of them when it is absent. */
export interface TokenMetric {
  readonly value: Tensor;
  readonly where?: Tensor;
  readonly by: 'mean' | 'max' | 'min';
}

/** Token losses before aggregation; flags are bool tensors. Masked entries are finite and mean nothing. */
export interface TokenLosses {
  readonly losses: Tensor;
  /** log π_θ − log π_old, clamped; only of losses over ratios. */
  readonly logRatios?: Tensor;
  /** 1 where the clip decided the loss, and where the dual clip did. */
  readonly clipped?: Tensor;
  readonly clippedLower?: Tensor;
  /** Further metrics by their logged names, at each token: they are summed with the weights of the losses. */
  readonly metrics?: ReadonlyMap<string, Tensor>;
  /** Further metrics by their logged names, averaged over all trained tokens. */
  readonly tokenMetrics?: ReadonlyMap<string, TokenMetric>;
}

/** A trainable policy loss: token losses as nodes of the graph, which differentiates them. */
export interface PolicyLoss<Name extends string = string> {
  readonly name: Name;
  /**
   * `ratio`: learns from the policy's own tokens by their advantages and the ratio π_θ / π_old. `likelihood`: no policy gradient;
   * trained tokens weigh 1 in the cross-entropy. `preference`: learns which episode of a pair is the better one.
   */
  readonly kind: 'ratio' | 'likelihood' | 'preference';
  /** The ratio is taken against π_prox for every off-policy correction. */
  readonly needsProximal?: boolean;
  /** Token inputs besides those of its kind. */
  readonly reads?: readonly LossTokenInput[];
  /** Its own settings as scalars of the graph, read as `scalar('policy.<name>')`, so that a change never recompiles. */
  readonly scalars?: Readonly<Record<string, (settings: LossSettings) => number>>;
  /** Names the form of the graph, where a setting changes it. */
  variant?(settings: LossSettings): string;
  /**
   * The loss has one ratio per sequence: off-policy weights enter as their geometric mean, and a sequence must have one
   * advantage.
   */
  readonly sequenceLevel?: boolean;
  /**
   * Before each optimizer step some tokens are selected for special treatment, by log-probabilities under the current
   * weights.
   */
  readonly selects?: boolean;
  /** @throws RangeError, in the spelling of the config, for settings that the loss cannot work with */
  check?(settings: LossSettings): void;
  tokenLosses(g: GraphBuilder, input: PolicyLossInput): TokenLosses;
}

/** A log-ratio outside the graph, within ±{@link LOG_RATIO_LIMIT}. */
export function clampLogRatio(logRatio: number): number {
  return Math.min(Math.max(logRatio, -LOG_RATIO_LIMIT), LOG_RATIO_LIMIT);
}

/** log π_θ − log π_old within ±{@link LOG_RATIO_LIMIT}. */
export function boundedLogRatios(
  g: GraphBuilder,
  { logProbs, token }: Pick<PolicyLossInput, 'logProbs' | 'token'>,
): Tensor {
  return g.clip(g.sub(logProbs, token('oldLogProbs')), -LOG_RATIO_LIMIT, LOG_RATIO_LIMIT);
}

/** clip(ρ, 1 − ε_low, 1 + ε_high) */
export function clipRatio(g: GraphBuilder, { scalar }: PolicyLossInput, ratio: Tensor): Tensor {
  return g.minimum(g.maximum(ratio, scalar('ratioLow')), scalar('ratioHigh'));
}

/** max(−A·ρ, −A·clip(ρ)), without gradient where the clipped ratio decides. */
export function clippedSurrogate(
  g: GraphBuilder,
  input: PolicyLossInput,
  ratio: Tensor,
): { losses: Tensor; clipped: Tensor } {
  const negated = g.neg(input.token('advantages'));
  const plain = g.mul(negated, ratio);
  const bounded = g.mul(negated, clipRatio(g, input, g.stopGradient(ratio)));
  const clipped = g.greater(bounded, plain);
  return { losses: g.where(clipped, bounded, plain), clipped };
}
