import { Random } from '../../shared/random.ts';
import type { DecoderConfig } from './config.ts';

/** Names of the value head's weights, kept in a file of their own. */
export const VALUE_HEAD_WEIGHT = 'value_head.weight';
export const VALUE_HEAD_BIAS = 'value_head.bias';

/** One weight tensor under its Hugging Face name; linear weights are [out, in]. */
export interface ParameterSpec {
  readonly name: string;
  readonly shape: readonly number[];
  readonly start: 'normal' | 'zeros' | 'ones';
}

/** Where a parameter stands in the flat vector of all weights. */
export interface ParameterPlace extends ParameterSpec {
  readonly offset: number;
  readonly size: number;
}

/** All weights of a policy as one flat float32 vector: gradients, moments and updates run over it in this order. */
export interface ParameterLayout {
  readonly size: number;
  readonly places: readonly ParameterPlace[];
  readonly byName: ReadonlyMap<string, ParameterPlace>;
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
  if (valueHead) {
    add(VALUE_HEAD_WEIGHT, [1, hiddenSize], 'zeros');
    add(VALUE_HEAD_BIAS, [1], 'zeros');
  }
  return specs;
}

export function parameterLayout(specs: readonly ParameterSpec[]): ParameterLayout {
  let offset = 0;
  const places = specs.map(spec => {
    const size = spec.shape.reduce((a, b) => a * b, 1);
    const place = { ...spec, offset, size };
    offset += size;
    return place;
  });
  return { size: offset, places, byName: new Map(places.map(place => [place.name, place])) };
}

/** View of one parameter in a flat vector. */
export function viewOf(flat: Float32Array, place: ParameterPlace): Float32Array {
  return flat.subarray(place.offset, place.offset + place.size);
}

/**
 * Fresh weights as Hugging Face models start: normal with the config's standard deviation, biases 0, norms 1, and the
 * value head 0 so that first estimates are 0.
 */
export function initialize(
  flat: Float32Array,
  layout: ParameterLayout,
  standardDeviation: number,
  seed: number,
): void {
  const rng = Random.fromSeed(seed);
  for (const place of layout.places) {
    const view = viewOf(flat, place);
    if (place.start !== 'normal') view.fill(place.start === 'ones' ? 1 : 0);
    else for (let i = 0; i < view.length; i++) view[i] = standardDeviation * rng.normal();
  }
}
