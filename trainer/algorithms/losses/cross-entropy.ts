import { emptyOutput, type PolicyLossInput, type PolicyLossOutput } from './policy-loss.ts';

/** Negative log-likelihood of given tokens (supervised learning): loss = −log π_θ. Advantages are not read. */
export function crossEntropyLoss({
  mask,
  logProbs,
}: Pick<PolicyLossInput, 'mask' | 'logProbs'>): PolicyLossOutput {
  const output = emptyOutput(mask.length);
  for (let t = 0; t < mask.length; t++) {
    if (!mask[t]) continue;
    output.losses[t] = -logProbs[t];
    output.derivatives[t] = -1;
  }
  return output;
}
