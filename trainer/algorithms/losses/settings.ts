/** How token losses become one number; counts run over the whole optimiser step (SPEC names as in verl). */
export type Aggregation = (typeof AGGREGATIONS)[number];
export const AGGREGATIONS = ['token_mean', 'seq_mean_token_mean', 'seq_mean_token_sum', 'dr_grpo'] as const;

export type KlEstimator = (typeof KL_ESTIMATORS)[number];
export const KL_ESTIMATORS = ['k1', 'k2', 'k3', 'abs'] as const;

export type PolicyLossName = (typeof POLICY_LOSSES)[number];
export const POLICY_LOSSES = ['ppo', 'gspo', 'cispo', 'decoupled_ppo', 'cross_entropy'] as const;

export type OffPolicyKind = (typeof OFF_POLICY_KINDS)[number];
export const OFF_POLICY_KINDS = ['none', 'tis', 'icepop', 'geometric_mask'] as const;

/** Correction for tokens sampled by an older policy; see off-policy.ts. */
export type OffPolicySettings =
  | { readonly kind: 'none' }
  | { readonly kind: 'tis'; readonly cap: number }
  | { readonly kind: 'icepop'; readonly low: number; readonly high: number }
  | { readonly kind: 'geometric_mask'; readonly low: number; readonly high: number };

/** Everything the loss of one update depends on, besides the batch. */
export interface LossSettings {
  readonly policy: PolicyLossName;
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
  /** `clip` is the largest move of the prediction away from the behaviour value; 0 turns clipping off. */
  readonly value: { readonly coefficient: number; readonly clip: number };
  readonly offPolicy: OffPolicySettings;
}

/** The field's defaults: clip-higher 0.2/0.28, dual clip 3, token mean, entropy 0.001, KL off. */
export const DEFAULT_LOSS_SETTINGS: LossSettings = {
  policy: 'ppo',
  clipLow: 0.2,
  clipHigh: 0.28,
  dualClip: 3,
  aggregation: 'token_mean',
  maxResponseLength: 400,
  entropyCoefficient: 0.001,
  kl: { estimator: 'k3', coefficient: 0 },
  value: { coefficient: 0.5, clip: 0.5 },
  offPolicy: { kind: 'none' },
};

/**
 * Refuses settings that have no meaning or that contradict each other.
 * @throws RangeError naming the setting, what is wrong with it and what would be right.
 */
export function checkLossSettings(settings: LossSettings): void {
  choose('loss.policy', settings.policy, POLICY_LOSSES);
  choose('loss.aggregation', settings.aggregation, AGGREGATIONS);
  choose('loss.kl.estimator', settings.kl.estimator, KL_ESTIMATORS);
  choose('loss.offPolicy.kind', settings.offPolicy.kind, OFF_POLICY_KINDS);
  atLeast('loss.clipLow', settings.clipLow, 0);
  atLeast('loss.clipHigh', settings.clipHigh, 0);
  atLeast('loss.entropyCoefficient', settings.entropyCoefficient, 0);
  atLeast('loss.kl.coefficient', settings.kl.coefficient, 0);
  atLeast('loss.value.coefficient', settings.value.coefficient, 0);
  atLeast('loss.value.clip', settings.value.clip, 0);
  if (settings.clipLow >= 1) throw new RangeError(`loss.clipLow is ${settings.clipLow}; it must be below 1`);
  if (settings.dualClip !== 0 && !(settings.dualClip > 1)) {
    throw new RangeError(`loss.dualClip is ${settings.dualClip}; it must be above 1, or 0 to turn it off`);
  }
  if (settings.aggregation === 'dr_grpo' && !(settings.maxResponseLength >= 1)) {
    throw new RangeError(
      `loss.maxResponseLength is ${settings.maxResponseLength}; aggregation dr_grpo divides by it, so it must be at least 1`,
    );
  }
  if (settings.policy === 'gspo' && settings.aggregation !== 'seq_mean_token_mean') {
    throw new RangeError(
      `loss.aggregation is ${settings.aggregation}, but gspo has one ratio per sequence and weighs sequences alike: use seq_mean_token_mean`,
    );
  }
  checkOffPolicy(settings);
}

function checkOffPolicy({ policy, offPolicy }: LossSettings): void {
  if (offPolicy.kind === 'none') return;
  if (policy === 'cross_entropy') {
    throw new RangeError(
      `loss.offPolicy.kind is ${offPolicy.kind}, but cross_entropy learns from given tokens and has no behaviour policy: use none`,
    );
  }
  if (offPolicy.kind === 'tis') {
    if (!(offPolicy.cap > 0)) {
      throw new RangeError(`loss.offPolicy.cap is ${offPolicy.cap}; it must be above 0 (2 is usual)`);
    }
    return;
  }
  if (!(offPolicy.low >= 0 && offPolicy.low < offPolicy.high)) {
    throw new RangeError(
      `loss.offPolicy.low … high is ${offPolicy.low} … ${offPolicy.high}; it must be 0 ≤ low < high`,
    );
  }
}

function choose(name: string, value: string, choices: readonly string[]): void {
  if (!choices.includes(value)) {
    throw new RangeError(`${name} is "${value}"; choose one of ${choices.join(', ')}`);
  }
}

function atLeast(name: string, value: number, minimum: number): void {
  if (!(value >= minimum)) throw new RangeError(`${name} is ${value}; it must be at least ${minimum}`);
}
