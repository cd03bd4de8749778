import type { GraphBuilder, Tensor } from '../tensor/graph/graph.ts';
import { type BlockStorage, blockLayout, unpackBlocks } from '../tensor/graph/operations/blocks.ts';
import type { ParameterInfo, ParameterSource } from '../tensor/runtime/parameter-store.ts';

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

/** Storage of weights that are in blocks, by name. */
export type BlockedWeights = Readonly<Record<string, BlockStorage>>;

/** Names of the parameters that store a weight in blocks. */
export function blockNames(weight: string): {
  readonly codes: string;
  readonly scales: string;
  readonly minimums: string;
} {
  return { codes: `${weight}.codes`, scales: `${weight}.scales`, minimums: `${weight}.minimums` };
}

/** Stored parameters of a weight in blocks. */
export function blockParameters(
  weight: string,
  shape: readonly number[],
  storage: BlockStorage,
): ParameterInfo[] {
  const { codes, scales } = blockLayout(storage, shape);
  const names = blockNames(weight);
  return [
    { name: names.codes, shape: codes, dtype: 'uint8' },
    { name: names.scales, shape: scales },
    ...(storage.minimums ? [{ name: names.minimums, shape: scales }] : []),
  ];
}

/** Tensors and attributes of an operation with a weight [outputs, inputs] in blocks. */
function blockTensors(
  g: GraphBuilder,
  storage: BlockStorage,
  weight: string,
  [outputs, inputs]: readonly [number, number],
) {
  const { codes, scales } = blockLayout(storage, [outputs, inputs]);
  const names = blockNames(weight);
  return {
    parts: [
      g.parameter(names.codes, codes, 'uint8'),
      g.parameter(names.scales, scales),
      ...(storage.minimums ? [g.parameter(names.minimums, scales)] : []),
    ],
    attributes: { ...storage, outputs, inputs },
  };
}

/** x·Wᵀ [rows, outputs] with a weight [outputs, inputs] in blocks. */
export function blockProduct(
  g: GraphBuilder,
  storage: BlockStorage,
  x: Tensor,
  weight: string,
  outputs: number,
): Tensor {
  const { parts, attributes } = blockTensors(g, storage, weight, [outputs, x.shape[1]]);
  return g.apply('blockMatmul', [x, ...parts], { ...attributes, transposed: false });
}

/** Rows ids [n] of a weight in blocks, [n, inputs]. */
export function blockRowsOf(
  g: GraphBuilder,
  storage: BlockStorage,
  ids: Tensor,
  weight: string,
  shape: readonly [outputs: number, inputs: number],
): Tensor {
  const { parts, attributes } = blockTensors(g, storage, weight, shape);
  return g.apply('blockRows', [ids, ...parts], attributes);
}

/** A stored weight as float32, row-major. */
export function unpackedWeight(
  parameters: Pick<ParameterSource, 'data' | 'array'>,
  weight: string,
  shape: readonly number[],
  storage: BlockStorage,
): Float32Array {
  const names = blockNames(weight);
  const parts = [parameters.data(names.codes), parameters.array(names.scales)];
  if (storage.minimums) parts.push(parameters.array(names.minimums));
  return unpackBlocks(storage, parts, new Float32Array(shape[0] * shape[1]));
}
