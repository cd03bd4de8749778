/** How token losses become one number; counts run over the whole optimiser step (SPEC names as in verl). */
export type Aggregation = 'token_mean' | 'seq_mean_token_mean' | 'seq_mean_token_sum' | 'dr_grpo';

export type KlEstimator = 'k1' | 'k2' | 'k3' | 'abs';

/** Everything the loss of one update depends on, besides the batch. */
export interface LossSettings {
  readonly policy: 'ppo' | 'gspo' | 'cispo' | 'decoupled_ppo' | 'cross_entropy';
  /** Lower and upper clip range of the ratio: 1 − clipLow … 1 + clipHigh. */
  readonly clipLow: number;
  readonly clipHigh: number;
  /** Dual clip constant c for negative advantages (Ye et al., 2020); 0 turns it off. */
  readonly dualClip: number;
  readonly aggregation: Aggregation;
  /** L of `dr_grpo`: the longest response in tokens. */
  readonly maxResponseLength: number;
  readonly entropyCoefficient: number;
  readonly kl: { readonly estimator: KlEstimator; readonly coefficient: number };
  readonly value: { readonly coefficient: number; readonly clip: number };
  readonly offPolicy:
    | { readonly kind: 'none' }
    | { readonly kind: 'tis'; readonly cap: number }
    | { readonly kind: 'icepop'; readonly low: number; readonly high: number }
    | { readonly kind: 'geometric_mask'; readonly low: number; readonly high: number };
}
