import { compared, groupEstimator } from './groups.ts';

/**
 * GRPO without its two biases: A = R − mean over the group, not divided by the std. The other half is the loss:
 * aggregate with `dr_grpo`, Σ / (B·L), so that long answers are not favored.
 *
 * Source: Liu et al., 2025 (Understanding R1-Zero-Like Training).
 */
export const drGrpo = groupEstimator(groups => groups.map(group => compared(group, false)));
