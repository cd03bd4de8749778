/** How token losses become one number; counts run over the whole optimizer step (SPEC names as in verl). */
export type Aggregation = (typeof AGGREGATIONS)[number];
export const AGGREGATIONS = ['token_mean', 'seq_mean_token_mean', 'seq_mean_token_sum', 'dr_grpo'] as const;

export type KlEstimator = (typeof KL_ESTIMATORS)[number];
export const KL_ESTIMATORS = ['k1', 'k2', 'k3', 'abs'] as const;

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
  readonly kl: { readonly estimator: KlEstimator; readonly coefficient: number };
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
  clipLow: 0.2,
  clipHigh: 0.28,
  dualClip: 3,
  aggregation: 'token_mean',
  maxResponseLength: 400,
  entropyCoefficient: 0.001,
  beta: 0.1,
  kl: { estimator: 'k3', coefficient: 0 },
  value: { coefficient: 1, clip: 0.5 },
  offPolicy: { kind: 'none' },
};
