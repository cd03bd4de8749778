import type { AdamwFactors, MuonFactors } from '../../tensor/runtime/runtime.ts';
import type { OptimizerSettings } from '../policy.ts';

/** As in torch.nn.utils.clip_grad_norm_. */
const CLIP_EPSILON = 1e-6;

/**
 * Sums of squares are taken over blocks of this many elements, so a norm does not depend on how the vector is split
 * among threads, as long as splits are on block borders.
 */
export const NORM_BLOCK = 4096;

/** Factor on all gradients that brings their global norm down to `clipNorm`; 1 where it is below, or clipping is off. */
export function clipFactor(norm: number, clipNorm: number): number {
  return clipNorm > 0 ? Math.min(1, clipNorm / (norm + CLIP_EPSILON)) : 1;
}

/** Σ x² of each block of [start, end), written to `blocks` at the block's number. */
export function blockSquares(x: Float32Array, start: number, end: number, blocks: Float64Array): void {
  for (let from = start; from < end; from += NORM_BLOCK) {
    const to = Math.min(from + NORM_BLOCK, end);
    let sum = 0;
    for (let i = from; i < to; i++) sum += x[i] * x[i];
    blocks[from / NORM_BLOCK] = sum;
  }
}

/**
 * Factors of a step of AdamW.
 * @param step counts from 1
 * @param scale factor on the gradients, from {@link clipFactor}
 */
export function adamwFactors(step: number, scale: number, settings: OptimizerSettings): AdamwFactors {
  const { beta1, beta2, epsilon, learningRate, weightDecay } = settings;
  return {
    scale,
    beta1,
    beta2,
    keep: 1 - learningRate * weightDecay,
    stepSize: learningRate / (1 - beta1 ** step),
    inverseRoot: 1 / Math.sqrt(1 - beta2 ** step),
    epsilon,
  };
}

/**
 * Factors of a step of Muon; undefined where AdamW learns all weights.
 * @param scale factor on the gradients, from {@link clipFactor}
 */
export function muonFactors(
  scale: number,
  { muon, learningRate, weightDecay }: OptimizerSettings,
): MuonFactors | undefined {
  if (!muon) return undefined;
  return { scale, momentum: muon.momentum, learningRate: learningRate * muon.scale, weightDecay };
}
