import type { GraphBuilder, Tensor } from '../tensor/graph/graph.ts';
import {
  dequantize,
  type Quantization,
  quantize,
  quantizedLayout,
} from '../tensor/graph/operations/blockwise.ts';
import type { ParameterInfo, ParameterStore } from '../tensor/runtime/parameter-store.ts';
import { LORA_MODULES } from './adapters/lora.ts';
import { blockParameters, blockProduct, unpackedWeight } from './blocks.ts';
import type { DecoderConfig } from './config.ts';
import type { ParameterSpec } from './parameters.ts';

export { QUANTIZATIONS } from '../tensor/graph/operations/blockwise.ts';

/** Names of the two parameters that store a quantized weight. */
function quantizedNames(weight: string): { readonly codes: string; readonly scales: string } {
  return { codes: `${weight}.codes`, scales: `${weight}.scales` };
}

/** True if a weight is quantized where the base is: those of all linear layers, as in QLoRA. */
export function isQuantizable(name: string): boolean {
  return LORA_MODULES.some(module => name.endsWith(`.${module}.weight`));
}

/** Storage of a frozen base. */
type Storage = Pick<DecoderConfig, 'quantization' | 'blocks'>;

/** Stored parameters of a frozen base: quantized weights as codes and scales. */
export function storedParameters(
  specs: readonly ParameterSpec[],
  { quantization, blocks }: Storage,
): ParameterInfo[] {
  return specs.flatMap(({ name, shape }): ParameterInfo[] => {
    const storage = blocks?.[name];
    if (storage !== undefined) return blockParameters(name, shape, storage);
    if (quantization === undefined || !isQuantizable(name)) return [{ name, shape }];
    const { codes, scales } = quantizedLayout(quantization, shape);
    const names = quantizedNames(name);
    return [
      { name: names.codes, ...codes },
      { name: names.scales, ...scales },
    ];
  });
}

/** Bytes of a frozen base as it is stored. */
export function storedBytes(specs: readonly ParameterSpec[], config: Storage): number {
  return storedParameters(specs, config).reduce(
    (sum, { shape, dtype }) => sum + shape.reduce((a, b) => a * b, dtype === undefined ? 4 : 1),
    0,
  );
}

/** Writes a weight's codes and scales into a store that has them. */
export function storeQuantized(
  store: ParameterStore,
  { name, shape }: ParameterSpec,
  weights: Float32Array,
  quantization: Quantization,
): void {
  const names = quantizedNames(name);
  const codes = store.data(names.codes);
  if (codes instanceof Float32Array) throw new RangeError(`${names.codes} is not an array of codes`);
  quantize(quantization, weights, shape[1], codes, store.array(names.scales));
}

/** x·Wᵀ [rows, outputs] with a weight [outputs, inputs], stored as the config says. */
export function weightProduct(
  g: GraphBuilder,
  { quantization, blocks }: Storage,
  x: Tensor,
  weight: string,
  outputs: number,
): Tensor {
  const inputs = x.shape[x.shape.length - 1];
  const storage = blocks?.[weight];
  if (storage !== undefined) return blockProduct(g, storage, x, weight, outputs);
  return quantization === undefined || !isQuantizable(weight)
    ? g.matmul(x, g.parameter(weight, [outputs, inputs]), { transposeB: true })
    : quantizedLinear(g, quantization, x, weight, outputs);
}

/** A weight [outputs, inputs] of a frozen base as float32. */
export function storedWeight(
  base: ParameterStore,
  { quantization, blocks }: Storage,
  name: string,
  shape: ParameterSpec['shape'],
): Float32Array {
  const storage = blocks?.[name];
  if (storage !== undefined) return unpackedWeight(base, name, shape, storage);
  if (quantization === undefined || !isQuantizable(name)) return base.array(name);
  const { codes, scales } = quantizedNames(name);
  return dequantize(quantization, base.data(codes), base.array(scales), shape);
}

/** x·Wᵀ with a quantized weight [outputs, inputs]. */
function quantizedLinear(
  g: GraphBuilder,
  quantization: Quantization,
  x: Tensor,
  weight: string,
  outputs: number,
): Tensor {
  const inputs = x.shape[x.shape.length - 1];
  const layout = quantizedLayout(quantization, [outputs, inputs]);
  const names = quantizedNames(weight);
  const codes = g.parameter(names.codes, layout.codes.shape, layout.codes.dtype);
  const scales = g.parameter(names.scales, layout.scales.shape);
  const attributes = { kind: quantization, outputs, inputs, transposed: false };
  return g.apply('quantizedMatmul', [x, codes, scales], attributes);
}
