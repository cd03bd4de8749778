import { Random } from '../../shared/random.ts';
import { hasAdapter, type LoraConfig, loraNames, magnitudeName } from './adapters/lora.ts';
import type { DecoderConfig } from './config.ts';

/** Names of the value head's weights, kept in a separate file. */
export const VALUE_HEAD_WEIGHT = 'value_head.weight';
export const VALUE_HEAD_BIAS = 'value_head.bias';

/** One weight tensor under its Hugging Face name; linear weights are [out, in]. */
export interface ParameterSpec {
  readonly name: string;
  readonly shape: readonly number[];
  /** Initial values; `uniform` is ± 1 / √inputs. */
  readonly start: 'normal' | 'uniform' | 'zeros' | 'ones';
}

/** Prefix of a layer's weights: `model.layers.3`. */
export function layerPrefix(layer: number): string {
  return `model.layers.${layer}`;
}

/** Prefix of an expert's weights. */
export function expertPrefix(layer: number, index: number): string {
  return `${layerPrefix(layer)}.mlp.experts.${index}`;
}

/** The linear layer that weighs the experts of a layer. */
export function routerName(layer: number): string {
  return `${layerPrefix(layer)}.mlp.gate`;
}

export const EMBEDDINGS = 'model.embed_tokens.weight';
export const OUTPUT_LAYER = 'lm_head.weight';

/**
 * Weight names of a layer's norms by position in the layer; null where the family has none. `post_attention_layernorm` is
 * before the feed-forward layer if that has no norm behind it, otherwise after attention.
 */
export function normNames({ blockNorms }: DecoderConfig, layer: number) {
  const name = (which: string) => `${layerPrefix(layer)}.${which}_layernorm.weight`;
  return {
    beforeAttention: blockNorms === 'after' ? null : name('input'),
    afterAttention: blockNorms === 'before' ? null : name('post_attention'),
    beforeFeedForward: { before: name('post_attention'), after: null, both: name('pre_feedforward') }[
      blockNorms
    ],
    afterFeedForward: blockNorms === 'before' ? null : name('post_feedforward'),
  };
}

/** Weights of a decoder in the order of computation, and of its value head if it has one. */
export function parameterSpecs(config: DecoderConfig, valueHead: boolean): ParameterSpec[] {
  const { hiddenSize } = config;
  const normStart = config.normsAddOne ? 'zeros' : 'ones';
  const specs: ParameterSpec[] = [
    { name: EMBEDDINGS, shape: [config.vocabularySize, hiddenSize], start: 'normal' },
  ];
  const norm = (name: string | null, size: number) => {
    if (name !== null) specs.push({ name, shape: [size], start: normStart });
  };
  const linear = (name: string, output: number, input: number, bias: boolean) => {
    specs.push({ name: `${name}.weight`, shape: [output, input], start: 'normal' });
    if (bias) specs.push({ name: `${name}.bias`, shape: [output], start: 'zeros' });
  };
  for (let layer = 0; layer < config.layers; layer++) {
    const names = normNames(config, layer);
    norm(names.beforeAttention, hiddenSize);
    addAttention(config, `${layerPrefix(layer)}.self_attn`, linear, norm);
    norm(names.afterAttention, hiddenSize);
    norm(names.beforeFeedForward, hiddenSize);
    addFeedForward(config, layer, linear);
    norm(names.afterFeedForward, hiddenSize);
  }
  norm('model.norm.weight', hiddenSize);
  if (!config.tiedEmbeddings) linear('lm_head', config.vocabularySize, hiddenSize, false);
  return valueHead ? [...specs, ...valueHeadSpecs(config)] : specs;
}

type AddLinear = (name: string, output: number, input: number, bias: boolean) => void;
type AddNorm = (name: string | null, size: number) => void;

function addAttention(config: DecoderConfig, prefix: string, linear: AddLinear, norm: AddNorm): void {
  const { hiddenSize, headDimension, queryKeyNorm, queryKeyValueBias: bias } = config;
  const queries = config.heads * headDimension;
  const keys = config.keyValueHeads * headDimension;
  if (config.fusedProjections) {
    linear(`${prefix}.qkv_proj`, queries + 2 * keys, hiddenSize, bias);
  } else {
    linear(`${prefix}.q_proj`, queries, hiddenSize, bias);
    linear(`${prefix}.k_proj`, keys, hiddenSize, bias);
    linear(`${prefix}.v_proj`, keys, hiddenSize, bias);
  }
  if (queryKeyNorm !== 'none') {
    norm(`${prefix}.q_norm.weight`, queryKeyNorm === 'head' ? headDimension : queries);
    norm(`${prefix}.k_norm.weight`, queryKeyNorm === 'head' ? headDimension : keys);
  }
  linear(`${prefix}.o_proj`, hiddenSize, queries, config.outputBias);
}

function addFeedForward(config: DecoderConfig, layer: number, linear: AddLinear): void {
  const { hiddenSize, experts, feedForwardBias: bias } = config;
  const one = (prefix: string, width: number) => {
    if (config.fusedProjections) {
      linear(`${prefix}.gate_up_proj`, 2 * width, hiddenSize, bias);
    } else {
      linear(`${prefix}.gate_proj`, width, hiddenSize, bias);
      linear(`${prefix}.up_proj`, width, hiddenSize, bias);
    }
    linear(`${prefix}.down_proj`, hiddenSize, width, bias);
  };
  if (!experts?.layers[layer]) {
    one(`${layerPrefix(layer)}.mlp`, config.intermediateSize);
    return;
  }
  linear(routerName(layer), experts.count, hiddenSize, false);
  for (let index = 0; index < experts.count; index++)
    one(expertPrefix(layer, index), experts.intermediateSize);
}

/** Number of weights. */
export function countWeights(specs: readonly ParameterSpec[]): number {
  return specs.reduce((sum, { shape }) => sum + shape.reduce((a, b) => a * b, 1), 0);
}

/** Weights of the value head. */
function valueHeadSpecs({ hiddenSize }: DecoderConfig): ParameterSpec[] {
  return [
    { name: VALUE_HEAD_WEIGHT, shape: [1, hiddenSize], start: 'zeros' },
    { name: VALUE_HEAD_BIAS, shape: [1], start: 'zeros' },
  ];
}

/** True if the model's own weights are frozen: next to adapters, or because they are kept in blocks. */
export function isFrozen({ lora, blocks }: DecoderConfig): boolean {
  return lora !== undefined || blocks !== undefined;
}

/** Learned parameters of a model: all, or if it is frozen its adapters and the value head. */
export function trainedSpecs(config: DecoderConfig, valueHead: boolean): ParameterSpec[] {
  if (!isFrozen(config)) return parameterSpecs(config, valueHead);
  const adapters = config.lora === undefined ? [] : loraSpecs(config, config.lora);
  return [...adapters, ...(valueHead ? valueHeadSpecs(config) : [])];
}

/** A linear layer with an adapter, and the shape [outputs, inputs] of its weight. */
export interface AdaptedWeight {
  readonly linear: string;
  readonly shape: ParameterSpec['shape'];
}

/** The linear layers that have adapters. */
export function adaptedWeights(config: DecoderConfig, lora: LoraConfig): AdaptedWeight[] {
  return parameterSpecs(config, false).flatMap(({ name, shape }) => {
    const linear = name.slice(0, -'.weight'.length);
    return name.endsWith('.weight') && hasAdapter(lora, linear) ? [{ linear, shape }] : [];
  });
}

/**
 * Weights of all adapters in the order of computation. B starts at 0, so a fresh adapter changes nothing; {@link
 * startMagnitudes} sets magnitudes.
 */
export function loraSpecs(config: DecoderConfig, lora: LoraConfig): ParameterSpec[] {
  return adaptedWeights(config, lora).flatMap(({ linear, shape: [outputs, inputs] }): ParameterSpec[] => {
    const { a, b } = loraNames(linear);
    return [
      { name: a, shape: [lora.rank, inputs], start: 'uniform' },
      { name: b, shape: [outputs, lora.rank], start: 'zeros' },
      ...(lora.dora ? [{ name: magnitudeName(linear), shape: [outputs], start: 'ones' as const }] : []),
    ];
  });
}

/**
 * Fresh weights as Hugging Face models start: normal with the config's standard deviation, biases 0, norms 1, and the
 * value head 0 so that first estimates are 0.
 */
export function initialize(
  weights: { array(name: string): Float32Array },
  specs: readonly ParameterSpec[],
  standardDeviation: number,
  seed: number,
): void {
  const rng = Random.fromSeed(seed);
  for (const { name, shape, start } of specs) {
    const array = weights.array(name);
    if (start === 'zeros' || start === 'ones') {
      array.fill(start === 'ones' ? 1 : 0);
    } else if (start === 'normal') {
      for (let i = 0; i < array.length; i++) array[i] = standardDeviation * rng.normal();
    } else {
      const bound = 1 / Math.sqrt(shape[shape.length - 1]);
      for (let i = 0; i < array.length; i++) array[i] = bound * (2 * rng.float() - 1);
    }
  }
}
