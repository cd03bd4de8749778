export type Regime = 'diverse' | 'template_collapse' | 'compressed' | 'low_entropy_collapse';

/** Where high ends and low begins; a run's own choice, because both depend on the task and the tokenizer. */
export interface RegimeThresholds {
  /** H(Z|X) in nats per token. */
  readonly entropy: number;
  /** Mutual information as a share of its upper bound log N. */
  readonly informationShare: number;
}

export const DEFAULT_REGIME_THRESHOLDS: RegimeThresholds = { entropy: 0.1, informationShare: 0.1 };

/**
 * Names the state of a policy's reasoning:
 *
 * | | high mutual information | low mutual information |
 * |---|---|---|
 * | high entropy | diverse | template collapse: varied words that ignore the prompt |
 * | low entropy | compressed: short and to the point | low-entropy collapse |
 *
 * @param entropy conditional_entropy_est
 * @param information mi_estimate
 * @param bound mi_upper_bound
 */
export function classifyRegime(
  entropy: number,
  information: number,
  bound: number,
  thresholds: RegimeThresholds = DEFAULT_REGIME_THRESHOLDS,
): Regime {
  const informed = information >= thresholds.informationShare * bound;
  if (entropy >= thresholds.entropy) return informed ? 'diverse' : 'template_collapse';
  return informed ? 'compressed' : 'low_entropy_collapse';
}
