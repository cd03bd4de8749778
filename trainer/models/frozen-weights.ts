import type { GraphBuilder, Tensor } from '../tensor/graph/graph.ts';
import {
  type BlockStorage,
  blockLayout,
  dequantize,
  type Quantization,
  quantize,
  quantizedLayout,
  unpackBlocks,
} from '../tensor/graph/operations/blocks.ts';
import type { ParameterInfo, ParameterStore } from '../tensor/runtime/parameter-store.ts';
import { LORA_MODULES } from './adapters/lora.ts';
import type { DecoderConfig } from './config.ts';
import type { ParameterSpec } from './parameters.ts';

export { QUANTIZATIONS } from '../tensor/graph/operations/blocks.ts';

/** Memory and arithmetic of frozen weights: `float32`; `blocks`, as a GGUF file has them; `auto`, blocks where nothing is learned. */
export const BASE_PRECISIONS = ['auto', 'float32', 'blocks'] as const;
export type BasePrecision = (typeof BASE_PRECISIONS)[number];

/**
 * Precision for a model that plays: blocks where its file has some, because its file may differ from that of the
 * settings.
 */
export function playedPrecision(precision: BasePrecision): BasePrecision {
  return precision === 'float32' ? precision : 'auto';
}

/** Names of the parameters that store a weight in blocks, or quantized. */
export function blockNames(weight: string) {
  return { codes: `${weight}.codes`, scales: `${weight}.scales`, minimums: `${weight}.minimums` };
}

/** True if a weight is quantized where the base is: those of all linear layers, as in QLoRA. */
export function isQuantizable(name: string): boolean {
  return LORA_MODULES.some(module => name.endsWith(`.${module}.weight`));
}

/** Storage of a frozen base. */
type Storage = Pick<DecoderConfig, 'quantization' | 'blocks'>;

/** A weight's own storage: its blocks, or how it is quantized; undefined where it is float32. */
function storageOf(
  { quantization, blocks }: Storage,
  weight: string,
): BlockStorage | Quantization | undefined {
  return blocks?.[weight] ?? (isQuantizable(weight) ? quantization : undefined);
}

/** Stored parameters of a weight: codes, scales, and minimums where its blocks have them. */
function partsOf(
  storage: BlockStorage | Quantization,
  weight: string,
  shape: readonly number[],
): ParameterInfo[] {
  const names = blockNames(weight);
  if (typeof storage === 'string') {
    const { codes, scales } = quantizedLayout(storage, shape);
    return [
      { name: names.codes, ...codes },
      { name: names.scales, ...scales },
    ];
  }
  const { codes, scales } = blockLayout(storage, shape);
  return [
    { name: names.codes, shape: codes, dtype: 'uint8' },
    { name: names.scales, shape: scales },
    ...(storage.minimums ? [{ name: names.minimums, shape: scales }] : []),
  ];
}

/** Stored parameters of a frozen base: weights in blocks or quantized as their parts. */
export function storedParameters(specs: readonly ParameterSpec[], config: Storage): ParameterInfo[] {
  return specs.flatMap(({ name, shape }): ParameterInfo[] => {
    const storage = storageOf(config, name);
    return storage === undefined ? [{ name, shape }] : partsOf(storage, name, shape);
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
  const names = blockNames(name);
  const codes = store.data(names.codes);
  if (codes instanceof Float32Array) throw new RangeError(`${names.codes} is not an array of codes`);
  quantize(quantization, weights, shape[1], codes, store.array(names.scales));
}

/** x·Wᵀ [rows, outputs] with a weight [outputs, inputs], stored as the config says. */
export function weightProduct(
  g: GraphBuilder,
  config: Storage,
  x: Tensor,
  weight: string,
  outputs: number,
): Tensor {
  const inputs = x.shape[x.shape.length - 1];
  const storage = storageOf(config, weight);
  if (storage === undefined) return g.matmul(x, g.parameter(weight, [outputs, inputs]), { transposeB: true });
  const parts = tensorsOf(g, partsOf(storage, weight, [outputs, inputs]));
  const sizes = { outputs, inputs, transposed: false };
  return typeof storage === 'string'
    ? g.apply('quantizedMatmul', [x, ...parts], { kind: storage, ...sizes })
    : g.apply('blockMatmul', [x, ...parts], { ...storage, ...sizes });
}

/** Rows ids [n] of a weight that is float32 or in blocks, [n, inputs]. */
export function weightRows(
  g: GraphBuilder,
  { blocks }: Storage,
  ids: Tensor,
  weight: string,
  shape: readonly [outputs: number, inputs: number],
): Tensor {
  const storage = blocks?.[weight];
  if (storage === undefined) return g.gather(g.parameter(weight, shape), ids);
  const [outputs, inputs] = shape;
  const parts = tensorsOf(g, partsOf(storage, weight, shape));
  return g.apply('blockRows', [ids, ...parts], { ...storage, outputs, inputs });
}

function tensorsOf(g: GraphBuilder, parts: readonly ParameterInfo[]): Tensor[] {
  return parts.map(({ name, shape, dtype }) => g.parameter(name, shape, dtype));
}

/** A weight [outputs, inputs] of a frozen base as float32, row-major. */
export function storedWeight(
  base: ParameterStore,
  config: Storage,
  name: string,
  shape: ParameterSpec['shape'],
): Float32Array {
  const storage = storageOf(config, name);
  if (storage === undefined) return base.array(name);
  const parts = partsOf(storage, name, shape).map(part => base.data(part.name));
  return typeof storage === 'string'
    ? dequantize(storage, parts[0], parts[1], shape)
    : unpackBlocks(storage, parts, new Float32Array(shape[0] * shape[1]));
}
