import type { DecoderConfig } from '../../trainer/models/config.ts';
import { parseConfig } from '../../trainer/models/config-json.ts';

/** Shapes of published models, as their `config.json` has them; only the weights are missing. */
const CONFIGS = {
  'qwen2.5-0.5b': {
    model_type: 'qwen2',
    vocab_size: 151_936,
    hidden_size: 896,
    intermediate_size: 4864,
    num_hidden_layers: 24,
    num_attention_heads: 14,
    num_key_value_heads: 2,
    max_position_embeddings: 32_768,
    rope_theta: 1e6,
    tie_word_embeddings: true,
  },
  'qwen2.5-1.5b': {
    model_type: 'qwen2',
    vocab_size: 151_936,
    hidden_size: 1536,
    intermediate_size: 8960,
    num_hidden_layers: 28,
    num_attention_heads: 12,
    num_key_value_heads: 2,
    max_position_embeddings: 32_768,
    rope_theta: 1e6,
    tie_word_embeddings: true,
  },
  'qwen2.5-3b': {
    model_type: 'qwen2',
    vocab_size: 151_936,
    hidden_size: 2048,
    intermediate_size: 11_008,
    num_hidden_layers: 36,
    num_attention_heads: 16,
    num_key_value_heads: 2,
    max_position_embeddings: 32_768,
    rope_theta: 1e6,
    tie_word_embeddings: true,
  },
  'qwen3-0.6b': {
    model_type: 'qwen3',
    vocab_size: 151_936,
    hidden_size: 1024,
    intermediate_size: 3072,
    num_hidden_layers: 28,
    num_attention_heads: 16,
    num_key_value_heads: 8,
    head_dim: 128,
    max_position_embeddings: 40_960,
    rope_theta: 1e6,
    tie_word_embeddings: true,
  },
  'llama-3.2-1b': {
    model_type: 'llama',
    vocab_size: 128_256,
    hidden_size: 2048,
    intermediate_size: 8192,
    num_hidden_layers: 16,
    num_attention_heads: 32,
    num_key_value_heads: 8,
    head_dim: 64,
    max_position_embeddings: 131_072,
    rms_norm_eps: 1e-5,
    rope_theta: 5e5,
    rope_scaling: {
      rope_type: 'llama3',
      factor: 32,
      low_freq_factor: 1,
      high_freq_factor: 4,
      original_max_position_embeddings: 8192,
    },
    tie_word_embeddings: true,
  },
} as const;

export const PUBLISHED_SHAPES = Object.keys(CONFIGS);

/** @throws RangeError listing the shapes when the name is not one of them */
export function publishedConfig(name: string): DecoderConfig {
  const json = (CONFIGS as { readonly [name: string]: (typeof CONFIGS)[keyof typeof CONFIGS] | undefined })[
    name
  ];
  if (json === undefined)
    throw new RangeError(`no shape is named ${name}; choose ${PUBLISHED_SHAPES.join(', ')}`);
  return parseConfig(json);
}
