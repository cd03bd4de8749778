import type { GraphBuilder, Tensor } from '../../tensor/graph/graph.ts';
import { ParameterStore } from '../../tensor/runtime/parameter-store.ts';
import type { DecoderConfig } from '../config.ts';
import { storedWeight, weightProduct } from '../frozen-weights.ts';
import { type AdaptedWeight, adaptedWeights } from '../parameters.ts';
import { type LoraConfig, loraNames, loraScale, magnitudeName } from './lora.ts';

/**
 * Weight-decomposed adapters (DoRA; Liu et al., 2024): y = m ∘ (x·Vᵀ) / ‖V‖ with V = W + scale · B·A, a learned
 * magnitude m [out] and the norms ‖V‖ [out] of V's rows, without gradient, as in PEFT. ‖V‖² = ‖W‖² + rows of B ∘ (2
 * scale · W·Aᵀ + scale² · B·A·Aᵀ): with ‖W‖² known, V is never computed, and W may be quantized.
 */

/** Smallest squared norm, which keeps rows of zeros finite. */
const LEAST_SQUARE = 1e-30;

/** Name of the squared norms [out] of a frozen linear layer's rows. */
function squaredNormsName(linear: string): string {
  return `${linear}.squared_norms`;
}

/**
 * Squared norms of the rows of all weights that DoRA adapts, as stored; null without DoRA.
 * @param base frozen weights next to the adapters
 */
export function squaredNorms(config: DecoderConfig, base: ParameterStore | null): ParameterStore | null {
  if (!config.lora?.dora || base === null) return null;
  const adapted = adaptedWeights(config, config.lora);
  const store = new ParameterStore(
    adapted.map(({ linear, shape }) => ({ name: squaredNormsName(linear), shape: [shape[0]] })),
  );
  for (const { linear, shape } of adapted) {
    const norms = store.array(squaredNormsName(linear));
    const weight = storedWeight(base, config, `${linear}.weight`, shape);
    const inputs = shape[1];
    for (let output = 0; output < norms.length; output++) {
      let sum = 0;
      for (let i = output * inputs; i < (output + 1) * inputs; i++) sum += weight[i] * weight[i];
      norms[output] = sum;
    }
  }
  return store;
}

/** Sets magnitudes to the norms of the weights, so a fresh adapter changes nothing. */
export function startMagnitudes(
  config: DecoderConfig,
  norms: ParameterStore,
  adapters: ParameterStore,
): void {
  for (const { linear } of adaptedWeights(config, config.lora!)) {
    const squares = norms.array(squaredNormsName(linear));
    adapters.array(magnitudeName(linear)).set(squares.map(Math.sqrt));
  }
}

/** Name of a linear layer's factor [out], where it is a parameter. */
export function doraFactorName(linear: string): string {
  return `${linear}.dora_factor`;
}

/** DoRA's factors of linear layers, as outputs by their names. */
export function outputFactors(
  g: GraphBuilder,
  config: DecoderConfig,
  linears: readonly AdaptedWeight[],
): void {
  const lora = config.lora!;
  for (const { linear, shape } of linears) {
    const [outputs, inputs] = shape;
    const names = loraNames(linear);
    const a = g.parameter(names.a, [lora.rank, inputs]);
    const b = g.parameter(names.b, [outputs, lora.rank]);
    const projected = weightProduct(g, config, a, `${linear}.weight`, outputs);
    g.output(doraFactorName(linear), doraFactor(g, lora, linear, { a, b, projected }));
  }
}

/**
 * m / ‖V‖ [out]: the factor on the sum of a linear layer and its adapter, before the bias.
 * @param projected A·Wᵀ [rank, out]: the layer without adapter and bias on the rows of A
 */
export function doraFactor(
  g: GraphBuilder,
  lora: LoraConfig,
  linear: string,
  { a, b, projected }: Readonly<Record<'a' | 'b' | 'projected', Tensor>>,
): Tensor {
  const [outputs] = b.shape;
  const scale = loraScale(lora);
  const gram = g.matmul(a, a, { transposeB: true });
  const cross = g.add(g.mul(g.transpose(projected, [1, 0]), 2 * scale), g.mul(g.matmul(b, gram), scale ** 2));
  const squares = g.add(g.parameter(squaredNormsName(linear), [outputs]), g.sum(g.mul(b, cross), [1]));
  const inverse = g.stopGradient(g.rsqrt(g.maximum(squares, LEAST_SQUARE)));
  return g.mul(g.parameter(magnitudeName(linear), [outputs]), inverse);
}

/** Scales each row of a merged weight [outputs, inputs], V, to its magnitude; in place. */
export function scaleRows(merged: Float32Array, magnitudes: Float32Array): Float32Array {
  const inputs = merged.length / magnitudes.length;
  magnitudes.forEach((magnitude, output) => {
    const row = merged.subarray(output * inputs, (output + 1) * inputs);
    let square = 0;
    for (const x of row) square += x * x;
    const factor = magnitude / Math.sqrt(Math.max(square, LEAST_SQUARE));
    for (let i = 0; i < row.length; i++) row[i] *= factor;
  });
  return merged;
}
