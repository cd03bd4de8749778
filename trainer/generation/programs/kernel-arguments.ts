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
  type MemoryPlan,
  PANEL_OUTPUTS,
  packedSize,
  packMatrix,
  roundUp,
} from '../../tensor/runtime/wasm/kernels.ts';

/** A linear layer in the kernels' memory. */
export interface LinearArguments {
  readonly name: string;
  readonly inputs: number;
  readonly outputs: number;
  readonly weight: number;
  /** Zeros where the layer has none. */
  readonly bias: number;
  readonly biased: boolean;
}

/** A norm's weight in the kernels' memory. */
export interface NormArguments {
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
export interface KernelArguments {
  readonly layers: readonly LayerArguments[];
  readonly finalNorm: NormArguments;
  readonly logits: LinearArguments;
  readonly value: LinearArguments | null;
  /** Rows [maxRows, …] by what they hold. */
  readonly rows: { readonly [name in 'hidden' | 'normed' | 'gate' | 'up' | 'logits' | 'values']: number };
  readonly hiddenStride: number;
  readonly middleStride: number;
  readonly vocabularyStride: number;
  readonly maxRows: number;
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
export function planKernels(
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
    maxRows,
  };
}

/** Writes all weights into the memory in the kernels' layout, with adapters merged. */
export function packWeights(
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
