import { scaleRows } from '../../models/adapters/dora.ts';
import {
  hasAdapter,
  type LoraConfig,
  loraNames,
  loraScale,
  magnitudeName,
  mergedWeight,
} from '../../models/adapters/lora.ts';
import type { DecoderConfig } from '../../models/config.ts';
import { layerPrefix } from '../../models/parameters.ts';
import type { ParameterSource } from '../../tensor/runtime/parameter-store.ts';
import {
  type Kernels,
  MemoryPlan,
  normalize,
  openKernels,
  PANEL_OUTPUTS,
  packedSize,
  packMatrix,
  product,
  roundUp,
} from '../../tensor/runtime/wasm/kernels.ts';
import { KvCache } from '../cache/kv-cache.ts';
import type { BlockTable } from '../cache/sequence-cache.ts';
import { type DecodeProgram, type DecodeProgramOptions, gatherRows } from './decode-program.ts';

/** Hidden size up to which ragen's kernels are faster than starting a runtime's. */
export const KERNELS_HIDDEN_SIZE = 192;

const FLOAT_BYTES = 4;

/** Rows in the memory: the address of the first, and the distance between rows in floats. */
interface RowPlace {
  readonly at: number;
  readonly stride: number;
}

/**
 * The whole decoder in WebAssembly kernels, over weights packed for them in the cache's memory. For small models, where
 * ONNX Runtime spends most of a pass on starting its kernels and on rearranging weights.
 */
export class KernelProgram implements DecodeProgram {
  readonly sampler = null;
  readonly ids: Int32Array;
  readonly logits: Float32Array;
  readonly logitsStride: number;
  readonly values: Float32Array;
  readonly valuesStride = PANEL_OUTPUTS;
  readonly #config: DecoderConfig;
  readonly #parameters: ParameterSource;
  readonly #places: KernelArguments;
  readonly #cache: KvCache;
  readonly #hidden: Float32Array;
  readonly #kernels: Kernels;
  #packed = false;

  /** @throws RangeError for a family that the kernels do not compute */
  constructor(options: Omit<DecodeProgramOptions, 'runtime'>, maxRows: number) {
    const { config, parameters, valueHead } = options;
    if (!kernelsCompute(config)) {
      throw new RangeError(
        `the kernels do not compute models of type ${config.architecture}: choose segments`,
      );
    }
    // In front of the cache, in its memory.
    const plan = new MemoryPlan();
    const places = planKernels(config, valueHead, maxRows, plan);
    const cache = new KvCache(config, { ...options, maxRows, plan });
    const { rows, hiddenStride, vocabularyStride } = places;
    const floats = (address: number, width: number) =>
      new Float32Array(cache.memory.buffer, address, maxRows * width);
    this.#config = config;
    this.#parameters = parameters;
    this.#places = places;
    this.#cache = cache;
    this.ids = new Int32Array(maxRows);
    this.logits = floats(rows.logits, vocabularyStride);
    this.logitsStride = vocabularyStride;
    this.values = floats(rows.values, PANEL_OUTPUTS);
    this.#hidden = floats(rows.hidden, hiddenStride);
    this.#kernels = openKernels(cache.memory);
  }

  weightsChanged(): void {
    this.#packed = false;
  }

  get blockTable(): BlockTable {
    return this.#cache.blockTable;
  }

  setRun(run: number, firstRow: number, rows: number, position: number, slot: number): void {
    this.#cache.setRun(run, firstRow, rows, position, slot);
  }

  async run(rows: number, runs: number, headRows: Int32Array, headCount: number): Promise<void> {
    const { layers, rows: at, hiddenStride, middleStride } = this.#places;
    if (!this.#packed) {
      packWeights(this.#places, this.#parameters, this.#config.lora, this.#cache.memory);
    }
    this.#packed = true;
    this.#embed(rows);
    const hidden = { at: at.hidden, stride: hiddenStride };
    const normed = { at: at.normed, stride: hiddenStride };
    const gated = { at: at.gate, stride: middleStride };
    let count = rows;
    for (let layer = 0; layer < layers.length; layer++) {
      const { output, attendedNorm, gate, up, down } = layers[layer];
      this.#project(rows, layer);
      this.#cache.attend(runs, layer);
      if (layer === layers.length - 1) {
        if (headCount === 0) return;
        this.#keepRows(headRows, headCount);
        count = headCount;
      }
      const { mixed } = this.#cache.places;
      this.#apply(output, count, { at: mixed, stride: output.inputs }, hidden, true);
      this.#normalize(attendedNorm, count);
      this.#apply(gate, count, normed, gated);
      this.#apply(up, count, normed, { at: at.up, stride: middleStride });
      this.#kernels.gatedSilu(at.gate, at.up, count * middleStride);
      this.#apply(down, count, gated, hidden, true);
    }
    const { finalNorm, logits, value } = this.#places;
    this.#normalize(finalNorm, count);
    this.#apply(logits, count, normed, { at: at.logits, stride: this.logitsStride });
    if (value !== null) this.#apply(value, count, normed, { at: at.values, stride: this.valuesStride });
  }

  #embed(rows: number): void {
    const { hiddenSize } = this.#config;
    const table = this.#parameters.array('model.embed_tokens.weight');
    const { hiddenStride } = this.#places;
    for (let row = 0; row < rows; row++) {
      const from = this.ids[row] * hiddenSize;
      const to = row * hiddenStride;
      for (let j = 0; j < hiddenSize; j++) this.#hidden[to + j] = table[from + j];
    }
  }

  /** Hidden states before a layer → the rows its attention reads. */
  #project(rows: number, layer: number): void {
    const { rows: at, hiddenStride } = this.#places;
    const { inputNorm, query, key, value, headNorms } = this.#places.layers[layer];
    const { queries, keys, values } = this.#cache.places;
    this.#normalize(inputNorm, rows);
    const normed = { at: at.normed, stride: hiddenStride };
    this.#apply(query, rows, normed, { at: queries, stride: query.outputs });
    this.#apply(key, rows, normed, { at: keys, stride: key.outputs });
    this.#apply(value, rows, normed, { at: values, stride: value.outputs });
    if (headNorms === null) return;
    this.#normalizeHeads(headNorms.query, rows * this.#config.heads, queries);
    this.#normalizeHeads(headNorms.key, rows * this.#config.keyValueHeads, keys);
  }

  /** Keeps the rows that the layers after the last attention compute. */
  #keepRows(headRows: Int32Array, headCount: number): void {
    const { mixed } = this.#cache.rows;
    gatherRows(this.#hidden, this.#places.hiddenStride, headRows, headCount, this.#hidden);
    gatherRows(mixed, this.#config.heads * this.#config.headDimension, headRows, headCount, mixed);
  }

  #normalize({ weight, width }: NormArguments, rows: number): void {
    const { rows: at, hiddenStride } = this.#places;
    normalize(this.#kernels, {
      rows,
      x: at.hidden,
      stride: hiddenStride * FLOAT_BYTES,
      width,
      weight,
      epsilon: this.#config.normEpsilon,
      result: at.normed,
    });
  }

  #normalizeHeads({ weight, width }: NormArguments, heads: number, x: number): void {
    const { normEpsilon: epsilon } = this.#config;
    normalize(this.#kernels, {
      rows: heads,
      x,
      stride: width * FLOAT_BYTES,
      width,
      weight,
      epsilon,
      result: x,
    });
  }

  #apply(
    { weight, bias, inputs, outputs }: LinearArguments,
    rows: number,
    x: RowPlace,
    result: RowPlace,
    accumulate = false,
  ): void {
    product(this.#kernels, {
      rows,
      x: x.at,
      xStride: x.stride * FLOAT_BYTES,
      weight,
      inputs,
      outputs,
      bias,
      result: result.at,
      resultStride: result.stride * FLOAT_BYTES,
      accumulate,
    });
  }
}

/** A linear layer in the kernels' memory. */
interface LinearArguments {
  readonly name: string;
  readonly inputs: number;
  readonly outputs: number;
  readonly weight: number;
  /** Zeros where the layer has none. */
  readonly bias: number;
  readonly biased: boolean;
}

/** A norm's weight in the kernels' memory. */
interface NormArguments {
  readonly name: string;
  readonly width: number;
  readonly weight: number;
}

interface LayerArguments {
  readonly inputNorm: NormArguments;
  readonly query: LinearArguments;
  readonly key: LinearArguments;
  readonly value: LinearArguments;
  /** Null where heads are not normalized. */
  readonly headNorms: { readonly query: NormArguments; readonly key: NormArguments } | null;
  readonly output: LinearArguments;
  readonly attendedNorm: NormArguments;
  readonly gate: LinearArguments;
  readonly up: LinearArguments;
  readonly down: LinearArguments;
}

/** Addresses of a decoder's weights and of the rows between its kernels. */
interface KernelArguments {
  readonly layers: readonly LayerArguments[];
  readonly finalNorm: NormArguments;
  readonly logits: LinearArguments;
  readonly value: LinearArguments | null;
  /** Rows [maxRows, …] by what they hold. */
  readonly rows: { readonly [name in 'hidden' | 'normed' | 'gate' | 'up' | 'logits' | 'values']: number };
  readonly hiddenStride: number;
  readonly middleStride: number;
  readonly vocabularyStride: number;
}

/** True if the kernels support a decoder: they have one kind of norm, activation and projection. */
export function kernelsCompute(config: DecoderConfig): boolean {
  return (
    config.activation === 'silu' &&
    config.blockNorms === 'before' &&
    config.queryKeyNorm !== 'width' &&
    config.rotaryDimension === config.headDimension &&
    config.embeddingScale === 1 &&
    config.logitSoftcap === null &&
    config.experts === null &&
    !config.normsAddOne &&
    !config.fusedProjections &&
    config.quantization === undefined &&
    config.blocks === undefined
  );
}

/** Plans the memory of a KernelProgram. */
function planKernels(
  config: DecoderConfig,
  valueHead: boolean,
  maxRows: number,
  plan: MemoryPlan,
): KernelArguments {
  const { hiddenSize, intermediateSize, headDimension, vocabularySize } = config;
  const queries = config.heads * headDimension;
  const keys = config.keyValueHeads * headDimension;
  const linear = (name: string, outputs: number, inputs: number, biased: boolean): LinearArguments => ({
    name,
    inputs,
    outputs,
    weight: plan.place(packedSize(outputs, inputs)),
    bias: plan.place(roundUp(outputs, PANEL_OUTPUTS)),
    biased,
  });
  const norm = (name: string, width: number): NormArguments => ({
    name,
    width,
    weight: plan.place(roundUp(width, PANEL_OUTPUTS)),
  });
  const layers = Array.from({ length: config.layers }, (_, layer): LayerArguments => {
    const prefix = layerPrefix(layer);
    const [attention, mlp] = [`${prefix}.self_attn`, `${prefix}.mlp`];
    return {
      inputNorm: norm(`${prefix}.input_layernorm.weight`, hiddenSize),
      query: linear(`${attention}.q_proj`, queries, hiddenSize, config.queryKeyValueBias),
      key: linear(`${attention}.k_proj`, keys, hiddenSize, config.queryKeyValueBias),
      value: linear(`${attention}.v_proj`, keys, hiddenSize, config.queryKeyValueBias),
      headNorms:
        config.queryKeyNorm === 'head'
          ? {
              query: norm(`${attention}.q_norm.weight`, headDimension),
              key: norm(`${attention}.k_norm.weight`, headDimension),
            }
          : null,
      output: linear(`${attention}.o_proj`, hiddenSize, queries, config.outputBias),
      attendedNorm: norm(`${prefix}.post_attention_layernorm.weight`, hiddenSize),
      gate: linear(`${mlp}.gate_proj`, intermediateSize, hiddenSize, config.feedForwardBias),
      up: linear(`${mlp}.up_proj`, intermediateSize, hiddenSize, config.feedForwardBias),
      down: linear(`${mlp}.down_proj`, hiddenSize, intermediateSize, config.feedForwardBias),
    };
  });
  const hiddenStride = roundUp(hiddenSize, PANEL_OUTPUTS);
  const middleStride = roundUp(intermediateSize, PANEL_OUTPUTS);
  const vocabularyStride = roundUp(vocabularySize, PANEL_OUTPUTS);
  return {
    layers,
    finalNorm: norm('model.norm.weight', hiddenSize),
    logits: linear(
      config.tiedEmbeddings ? 'model.embed_tokens' : 'lm_head',
      vocabularySize,
      hiddenSize,
      false,
    ),
    value: valueHead ? linear('value_head', 1, hiddenSize, true) : null,
    rows: {
      hidden: plan.place(maxRows * hiddenStride),
      normed: plan.place(maxRows * hiddenStride),
      gate: plan.place(maxRows * middleStride),
      up: plan.place(maxRows * middleStride),
      logits: plan.place(maxRows * vocabularyStride),
      values: plan.place(maxRows * PANEL_OUTPUTS),
    },
    hiddenStride,
    middleStride,
    vocabularyStride,
  };
}

/** Writes all weights into the memory in the kernels' layout, with adapters merged. */
function packWeights(
  places: KernelArguments,
  parameters: ParameterSource,
  lora: LoraConfig | undefined,
  memory: WebAssembly.Memory,
): void {
  const floats = (address: number, count: number) => new Float32Array(memory.buffer, address, count);
  const linear = ({ name, inputs, outputs, weight, bias, biased }: LinearArguments): void => {
    const array = parameters.array(`${name}.weight`, [outputs, inputs]);
    packMatrix(
      adapted(array, name, parameters, lora),
      outputs,
      inputs,
      floats(weight, packedSize(outputs, inputs)),
    );
    if (biased) floats(bias, outputs).set(parameters.array(`${name}.bias`, [outputs]));
  };
  const norm = ({ name, width, weight }: NormArguments): void => {
    floats(weight, width).set(parameters.array(name, [width]));
  };
  for (const layer of places.layers) {
    norm(layer.inputNorm);
    for (const each of [layer.query, layer.key, layer.value, layer.output]) linear(each);
    if (layer.headNorms !== null) {
      norm(layer.headNorms.query);
      norm(layer.headNorms.key);
    }
    norm(layer.attendedNorm);
    for (const each of [layer.gate, layer.up, layer.down]) linear(each);
  }
  norm(places.finalNorm);
  linear(places.logits);
  if (places.value !== null) linear(places.value);
}

/** A layer's weight, merged with its adapter if it has one. */
function adapted(
  weight: Float32Array,
  name: string,
  parameters: ParameterSource,
  lora: LoraConfig | undefined,
): Float32Array {
  if (!hasAdapter(lora, name)) return weight;
  const { a, b } = loraNames(name);
  const matrices = { a: parameters.array(a), b: parameters.array(b) };
  const merged = mergedWeight(weight, { ...matrices, rank: lora.rank, scale: loraScale(lora) });
  return lora.dora ? scaleRows(merged, parameters.array(magnitudeName(name))) : merged;
}
