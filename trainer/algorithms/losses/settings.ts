/** Reduction of token losses to one number; counts run over the whole optimizer step (names as in verl). */
export type Aggregation = (typeof AGGREGATIONS)[number];
export const AGGREGATIONS = ['token_mean', 'seq_mean_token_mean', 'seq_mean_token_sum', 'dr_grpo'] as const;

export type KlEstimator = (typeof KL_ESTIMATORS)[number];
export const KL_ESTIMATORS = ['k1', 'k2', 'k3', 'abs'] as const;

/** KL term of the loss: an estimate, or the policy gradient of the reverse KL. */
export type LossKlEstimator = (typeof LOSS_KL_ESTIMATORS)[number];
export const LOSS_KL_ESTIMATORS = [...KL_ESTIMATORS, 'reverse'] as const;

/**
 * Which log-probabilities are in the ratio's denominator: those the tokens were sampled with (`rollout`), or those of the weights that
 * the update starts from (`old`). `auto`: `old` where the loss or an off-policy correction needs it, else `rollout`.
 */
type Anchor = (typeof ANCHORS)[number];
export const ANCHORS = ['auto', 'old', 'rollout'] as const;

export const DIVERGENCES = ['tv', 'kl'] as const;

/** Limits of null are the divergence's usual ones; see dppo.ts. */
export interface DppoSettings {
  readonly divergence: (typeof DIVERGENCES)[number];
  readonly low: number | null;
  readonly high: number | null;
  /** Largest weight of a token. */
  readonly ratioCap: number;
  /** Coefficient of the squared log-ratio; 0 turns it off. */
  readonly klTau: number;
}

export const OFF_POLICY_KINDS = ['none', 'tis', 'sequence_tis', 'icepop', 'geometric_mask'] as const;

/** Correction for tokens sampled by an older policy; see off-policy.ts. */
export type OffPolicySettings =
  | { readonly kind: 'none' }
  | { readonly kind: 'tis'; readonly cap: number }
  | { readonly kind: 'sequence_tis'; readonly cap: number }
  | { readonly kind: 'icepop'; readonly low: number; readonly high: number }
  | { readonly kind: 'geometric_mask'; readonly low: number; readonly high: number };

/** Everything the loss of one update depends on, besides the batch. */
export interface LossSettings {
  /** Name in the registry. */
  readonly policy: string;
  readonly anchor: Anchor;
  /** Lower and upper clip range of the ratio: 1 − clipLow … 1 + clipHigh. */
  readonly clipLow: number;
  readonly clipHigh: number;
  /** Dual clip constant c for negative advantages (Ye et al., 2020); 0 turns it off. */
  readonly dualClip: number;
  readonly aggregation: Aggregation;
  /** L of `dr_grpo`: the longest response in tokens. */
  readonly maxResponseLength: number;
  readonly entropyCoefficient: number;
  /** β of `dpo`: how much a distance from the reference costs. */
  readonly beta: number;
  /** The last three are of the estimator `reverse`; see kl.ts. */
  readonly kl: {
    readonly estimator: LossKlEstimator;
    readonly coefficient: number;
    readonly ratioCap?: number;
    readonly keepLow?: number;
    readonly tau?: number;
  };
  readonly dppo: DppoSettings;
  readonly ipo: { readonly threshold: number; readonly klTau: number };
  readonly sapo: { readonly tauPos: number; readonly tauNeg: number };
  /** Limits of log-ratios. */
  readonly gmpo: { readonly low: number; readonly high: number };
  /** Share of the tokens that lose their loss, and the covariances between which they are chosen. */
  readonly clipCov: { readonly ratio: number; readonly low: number; readonly high: number };
  /** Share of the tokens that are penalized, and by how much. */
  readonly klCov: { readonly ratio: number; readonly coefficient: number };
  readonly dro: { readonly beta: number | null };
  /** `clip` is the largest move of the prediction away from the behavior value; 0 turns clipping off. */
  readonly value: { readonly coefficient: number; readonly clip: number };
  readonly offPolicy: OffPolicySettings;
}

/**
 * The field's defaults, and those of the configs: clip-higher 0.2/0.28, dual clip 3, token mean, entropy 0.001, KL off.
 * Configs take `maxResponseLength` from the policy's context.
 */
export const DEFAULT_LOSS_SETTINGS: LossSettings = {
  policy: 'ppo',
  anchor: 'auto',
  clipLow: 0.2,
  clipHigh: 0.28,
  dualClip: 3,
  aggregation: 'token_mean',
  maxResponseLength: 400,
  entropyCoefficient: 0.001,
  beta: 0.1,
  kl: { estimator: 'k3', coefficient: 0, ratioCap: 20, keepLow: 0.2, tau: 1e-3 },
  dppo: { divergence: 'tv', low: null, high: null, ratioCap: 20, klTau: 1e-3 },
  ipo: { threshold: 0.1, klTau: 1e-3 },
  sapo: { tauPos: 1, tauNeg: 1.05 },
  gmpo: { low: 0.4, high: 0.4 },
  clipCov: { ratio: 2e-4, low: 1, high: 5 },
  klCov: { ratio: 2e-4, coefficient: 0.1 },
  dro: { beta: null },
  value: { coefficient: 1, clip: 0.5 },
  offPolicy: { kind: 'none' },
};

/** @throws RangeError naming the setting, its value and its minimum */
export function atLeast(name: string, value: number, minimum: number): void {
  if (!(value >= minimum)) throw new RangeError(`${name} is ${value}; it must be at least ${minimum}`);
}

/** @throws RangeError naming the setting, its value and what it must be above */
export function above(name: string, value: number, minimum: number): void {
  if (!(value > minimum)) throw new RangeError(`${name} is ${value}; it must be above ${minimum}`);
}

/** @throws RangeError naming the aggregation that a loss takes, and why */
export function requireAggregation(loss: string, found: Aggregation, wanted: Aggregation, why: string): void {
  if (found === wanted) return;
  throw new RangeError(`loss.aggregation is ${found}, but ${loss} ${why}: use ${wanted}`);
}
