import type { DecoderConfig } from '../../models/config.ts';
import type { ParameterSource } from '../../tensor/runtime/parameter-store.ts';
import {
  type Kernels,
  MemoryPlan,
  normalize,
  openKernels,
  PANEL_OUTPUTS,
  product,
} from '../../tensor/runtime/wasm/kernels.ts';
import { KvCache } from '../cache/kv-cache.ts';
import type { BlockTable } from '../cache/sequence-cache.ts';
import { type DecodeProgram, gatherRows } from './decode-program.ts';
import { DeviceProgram, type DeviceProgramOptions } from './device-program.ts';
import {
  type KernelArguments,
  kernelsCompute,
  type LinearArguments,
  type NormArguments,
  packWeights,
  planKernels,
} from './kernel-arguments.ts';
import { roundedRows, SegmentProgram } from './segment-program.ts';

const FLOAT_BYTES = 4;

interface KernelProgramOptions {
  readonly config: DecoderConfig;
  readonly parameters: ParameterSource;
  /** Placed in front of the cache, in its memory. */
  readonly places: KernelArguments;
  readonly cache: KvCache;
}

/** Rows in the memory: the address of the first, and the distance between rows in floats. */
interface RowPlace {
  readonly at: number;
  readonly stride: number;
}

/**
 * The whole decoder in WebAssembly kernels, over weights packed for them in the cache's memory. For small models, where
 * ONNX Runtime spends most of a pass on starting its kernels and on rearranging weights.
 */
class KernelProgram implements DecodeProgram {
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

  constructor({ config, parameters, places, cache }: KernelProgramOptions) {
    const { maxRows, rows, hiddenStride, vocabularyStride } = places;
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

/**
 * `kernels`: ragen's WebAssembly; `segments`: programs of the runtime between the attentions; `device`: everything on a
 * device with its own memory.
 */
export type DecodeProgramKind = 'kernels' | 'segments' | 'device';

/** Hidden size up to which ragen's kernels are faster than starting a runtime's. */
export const KERNELS_HIDDEN_SIZE = 192;

export interface ProgramChoiceOptions extends DeviceProgramOptions {
  /** Kind of the model's program; by its size when absent. */
  readonly program?: DecodeProgramKind;
}

/**
 * The program and the cache of a model for an engine.
 * @throws RangeError for `device` on a runtime without device memory, and `kernels` for a family that they do not
 * support
 */
export function createProgram(options: ProgramChoiceOptions, maxRows: number): DecodeProgram {
  const { config, valueHead, runtime } = options;
  const small = config.hiddenSize <= KERNELS_HIDDEN_SIZE;
  const onProcessor = small && kernelsCompute(config) ? 'kernels' : 'segments';
  const { program = runtime.memory === undefined ? onProcessor : 'device' } = options;
  if (program === 'device') {
    if (runtime.memory === undefined) {
      throw new RangeError(`the runtime ${runtime.name} has no device memory: choose kernels or segments`);
    }
    return new DeviceProgram(options, runtime.memory, maxRows);
  }
  if (program === 'segments') {
    const rounded = { ...options, maxRows: roundedRows(maxRows) };
    return new SegmentProgram({ ...rounded, cache: new KvCache(config, rounded) });
  }
  if (!kernelsCompute(config)) {
    throw new RangeError(`the kernels do not compute models of type ${config.architecture}: choose segments`);
  }
  const plan = new MemoryPlan();
  const places = planKernels(config, valueHead, maxRows, plan);
  const cache = new KvCache(config, { ...options, maxRows, plan });
  return new KernelProgram({ ...options, places, cache });
}
