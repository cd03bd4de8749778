import type { TensorBuilder } from '../../builder.ts';
import { describe, GraphError, sameShape, type Tensor } from '../../tensor.ts';
import { expectFloat, type Operation } from '../operation.ts';

/**
 * Numbers a row is sampled by: 1 / temperature, top-k (0: off), top-p (1: off), one uniform in [0, 1) (below 0 takes the
 * largest), and min-p (0: off).
 */
export const SAMPLE_SETTINGS = 5;
/** Numbers a row gives: the token (−1 where a number that counts is NaN), its weight, the sum of the kept weights. */
export const SAMPLE_RESULTS = 3;

/**
 * Adds the sample of a token of each row of logits [rows, width], for runtimes with separate memory: [rows, 3] with token,
 * weight and sum of weights.
 * @param settings [rows, {@link SAMPLE_SETTINGS}]
 */
export function sample(g: TensorBuilder, logits: Tensor, settings: Tensor): Tensor {
  return g.apply('sample', [logits, settings]);
}

/**
 * Samples a token of each row: logits [rows, width], settings float32 [rows, 5] → [rows, 3]. Weights are
 * exp((logit − largest) · settings[0]). Top-k keeps the largest, the first of equals; top-p of those the fewest with weights
 * that add up to that share; min-p of those the ones of at least that share of the largest. The kept weights lie side by
 * side; the token is the one in which the uniform number falls. Without gradient.
 */
export const sampleOperation: Operation = {
  name: 'sample',
  infer([logits, settings]) {
    expectFloat('sample', logits, settings);
    const [rows] = logits.shape;
    if (logits.shape.length !== 2 || !sameShape(settings.shape, [rows, SAMPLE_SETTINGS])) {
      throw new GraphError(
        `sample needs logits [rows,width] and settings [rows,${SAMPLE_SETTINGS}]; got ${describe(logits)}, ${describe(settings)}`,
      );
    }
    return { dtype: 'float32', shape: [rows, SAMPLE_RESULTS] };
  },
  evaluate([logits, settings]) {
    const [rows, width] = logits.shape;
    const out = new Float64Array(rows * SAMPLE_RESULTS);
    for (let row = 0; row < rows; row++) {
      const own = logits.data.subarray(row * width, (row + 1) * width);
      const numbers = settings.data.subarray(row * SAMPLE_SETTINGS, (row + 1) * SAMPLE_SETTINGS);
      out.set(sampleRow(own, numbers), row * SAMPLE_RESULTS);
    }
    return out;
  },
};

function sampleRow(logits: Float64Array, [scale, topK, topP, uniform, minP]: Float64Array): number[] {
  if (logits.some(Number.isNaN)) return [-1, 0, 1];
  const largest = logits.reduce((most, x) => Math.max(most, x), -Infinity);
  if (uniform < 0) return [logits.indexOf(largest), 1, 1];
  const weights = logits.map(x => Math.exp((x - largest) * scale));
  const ranked = Array.from(weights, (_, token) => token).sort((a, b) => weights[b] - weights[a] || a - b);
  const candidates = topK > 0 ? ranked.slice(0, topK) : ranked;
  const target = topP * candidates.reduce((sum, token) => sum + weights[token], 0);
  let reached = 0;
  const kept = candidates.filter((token, rank) => {
    if (topP < 1 && rank > 0 && reached >= target) return false;
    reached += weights[token];
    return weights[token] >= minP;
  });
  const mass = kept.reduce((sum, token) => sum + weights[token], 0);
  let rest = uniform * mass;
  let sampled = kept[0];
  for (const token of kept.sort((a, b) => a - b)) {
    if (weights[token] === 0) continue;
    sampled = token;
    if (rest < weights[token]) break;
    rest -= weights[token];
  }
  return [sampled, weights[sampled], mass];
}
