import { Random } from '../../shared/random.ts';
import type { DecoderConfig } from './config.ts';
import { hasAdapter, type LoraConfig, loraNames } from './lora.ts';

/** Names of the value head's weights, kept in a file of their own. */
export const VALUE_HEAD_WEIGHT = 'value_head.weight';
export const VALUE_HEAD_BIAS = 'value_head.bias';

/** One weight tensor under its Hugging Face name; linear weights are [out, in]. */
export interface ParameterSpec {
  readonly name: string;
  readonly shape: readonly number[];
  /** How it begins; `uniform` is ± 1 / √inputs. */
  readonly start: 'normal' | 'uniform' | 'zeros' | 'ones';
}

/** Prefix of a layer's weights: `model.layers.3`. */
export function layerPrefix(layer: number): string {
  return `model.layers.${layer}`;
}

/** Weights of a decoder in the order they are computed, and of its value head when it has one. */
export function parameterSpecs(config: DecoderConfig, valueHead: boolean): ParameterSpec[] {
  const specs: ParameterSpec[] = [];
  const add = (name: string, shape: readonly number[], start: ParameterSpec['start'] = 'normal') => {
    specs.push({ name, shape, start });
  };
  const linear = (name: string, output: number, input: number, bias: boolean) => {
    add(`${name}.weight`, [output, input]);
    if (bias) add(`${name}.bias`, [output], 'zeros');
  };
  const { hiddenSize, headDimension, intermediateSize } = config;
  const queries = config.heads * headDimension;
  const keys = config.keyValueHeads * headDimension;
  add('model.embed_tokens.weight', [config.vocabularySize, hiddenSize]);
  for (let layer = 0; layer < config.layers; layer++) {
    const prefix = layerPrefix(layer);
    add(`${prefix}.input_layernorm.weight`, [hiddenSize], 'ones');
    linear(`${prefix}.self_attn.q_proj`, queries, hiddenSize, config.queryKeyValueBias);
    linear(`${prefix}.self_attn.k_proj`, keys, hiddenSize, config.queryKeyValueBias);
    linear(`${prefix}.self_attn.v_proj`, keys, hiddenSize, config.queryKeyValueBias);
    if (config.queryKeyNorm) {
      add(`${prefix}.self_attn.q_norm.weight`, [headDimension], 'ones');
      add(`${prefix}.self_attn.k_norm.weight`, [headDimension], 'ones');
    }
    linear(`${prefix}.self_attn.o_proj`, hiddenSize, queries, config.outputBias);
    add(`${prefix}.post_attention_layernorm.weight`, [hiddenSize], 'ones');
    linear(`${prefix}.mlp.gate_proj`, intermediateSize, hiddenSize, config.feedForwardBias);
    linear(`${prefix}.mlp.up_proj`, intermediateSize, hiddenSize, config.feedForwardBias);
    linear(`${prefix}.mlp.down_proj`, hiddenSize, intermediateSize, config.feedForwardBias);
  }
  add('model.norm.weight', [hiddenSize], 'ones');
  if (!config.tiedEmbeddings) add('lm_head.weight', [config.vocabularySize, hiddenSize]);
  return valueHead ? [...specs, ...valueHeadSpecs(config)] : specs;
}

/** Number of weights. */
export function countWeights(specs: readonly ParameterSpec[]): number {
  return specs.reduce((sum, { shape }) => sum + shape.reduce((a, b) => a * b, 1), 0);
}

/** Weights of the value head. */
export function valueHeadSpecs({ hiddenSize }: DecoderConfig): ParameterSpec[] {
  return [
    { name: VALUE_HEAD_WEIGHT, shape: [1, hiddenSize], start: 'zeros' },
    { name: VALUE_HEAD_BIAS, shape: [1], start: 'zeros' },
  ];
}

/** What is learned of a model: all of it, or where it has adapters those and the value head. */
export function trainedSpecs(config: DecoderConfig, valueHead: boolean): ParameterSpec[] {
  if (config.lora === undefined) return parameterSpecs(config, valueHead);
  return [...loraSpecs(config, config.lora), ...(valueHead ? valueHeadSpecs(config) : [])];
}

/** Weights of all adapters in the order they are computed. B starts at 0, so that a fresh adapter changes nothing. */
export function loraSpecs(config: DecoderConfig, lora: LoraConfig): ParameterSpec[] {
  return parameterSpecs(config, false).flatMap(({ name, shape }): ParameterSpec[] => {
    const linear = name.slice(0, -'.weight'.length);
    if (!name.endsWith('.weight') || !hasAdapter(lora, linear)) return [];
    const [outputs, inputs] = shape;
    const { a, b } = loraNames(linear);
    return [
      { name: a, shape: [lora.rank, inputs], start: 'uniform' },
      { name: b, shape: [outputs, lora.rank], start: 'zeros' },
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
