import type { Json, JsonObject } from '../../../shared/json.ts';
import { GgufError, type GgufHeader } from './gguf-file.ts';

/** A family of models as llama.cpp's converter writes it. */
interface Architecture {
  /** `model_type` in Hugging Face's config. */
  readonly type: string;
  /** Rows of the query and key projections are stored in the order of interleaved rotary pairs. */
  readonly permuted?: boolean;
  /** Norm weights are stored as 1 + weight. */
  readonly normsPlusOne?: boolean;
  /** `ffn_norm` comes before the feed-forward layer of a block that has norms on both sides. */
  readonly normsOnBothSides?: boolean;
  /** Queries, keys and values are one tensor, and so are gate and up. */
  readonly fused?: boolean;
  /** Keys of metadata behind the architecture's name that only it has. */
  readonly keys?: readonly string[];
  /** Keys of the config besides the common ones. @param get the number of a key, or null */
  config?(get: (key: string) => number | null, header: GgufHeader): JsonObject;
}

/** Norm of scores of Gemma's largest models, by layers: hidden size per head instead of the head's size, as llama.cpp has it. */
const gemma =
  (largest: number): Architecture['config'] =>
  get => ({
    sliding_window: get('attention.sliding_window'),
    query_pre_attn_scalar:
      get('block_count') === largest
        ? get('embedding_length')! / get('attention.head_count')!
        : get('attention.key_length'),
    attn_logit_softcapping: get('attn_logit_softcapping'),
    final_logit_softcapping: get('final_logit_softcapping'),
  });

/** Families by `general.architecture`. */
const ARCHITECTURES: Readonly<Record<string, Architecture>> = {
  // Mistral's models too.
  llama: { type: 'llama', permuted: true },
  qwen2: { type: 'qwen2' },
  qwen3: { type: 'qwen3' },
  qwen3moe: {
    type: 'qwen3_moe',
    keys: ['expert_count', 'expert_used_count', 'expert_feed_forward_length'],
    config: get => ({
      num_experts: get('expert_count'),
      num_experts_per_tok: get('expert_used_count'),
      moe_intermediate_size: get('expert_feed_forward_length'),
      norm_topk_prob: true,
    }),
  },
  gemma2: {
    type: 'gemma2',
    normsPlusOne: true,
    normsOnBothSides: true,
    keys: ['attention.sliding_window', 'attn_logit_softcapping', 'final_logit_softcapping'],
    config: gemma(46),
  },
  gemma3: {
    type: 'gemma3_text',
    normsPlusOne: true,
    normsOnBothSides: true,
    keys: ['attention.sliding_window', 'final_logit_softcapping'],
    config: gemma(62),
  },
  phi3: {
    type: 'phi3',
    fused: true,
    keys: ['attention.sliding_window', 'rope.scaling.attn_factor', 'rope.scaling.original_context_length'],
    config: (get, header) => {
      const [head, turned] = [
        get('embedding_length')! / get('attention.head_count')!,
        get('rope.dimension_count'),
      ];
      const both: JsonObject = {
        ...(turned === null || turned === head ? {} : { partial_rotary_factor: turned / head }),
        sliding_window: get('attention.sliding_window'),
        original_max_position_embeddings:
          get('rope.scaling.original_context_length') ?? get('context_length'),
      };
      const short = header.tensors.get('rope_factors_short.weight');
      return short === undefined ? both : { ...both, rope_scaling: { rope_type: 'longrope' } };
    },
  },
  smollm3: { type: 'smollm3', permuted: true },
  olmo2: { type: 'olmo2' },
};

/** Tensors with rotary factors, and the key of a `longrope` scaling that holds them. */
export const ROPE_TENSORS: Readonly<Record<string, readonly string[]>> = {
  'rope_factors_short.weight': ['short_factor'],
  'rope_factors_long.weight': ['long_factor'],
  // Llama 3's frequencies are divided by these at every length.
  'rope_freqs.weight': ['short_factor', 'long_factor'],
};

/** Keys behind the architecture's name that are read, or that repeat the tensors' shapes. */
const COMMON_KEYS = new Set([
  ...['vocab_size', 'context_length', 'embedding_length', 'block_count', 'feed_forward_length'],
  ...['attention.head_count', 'attention.head_count_kv', 'attention.layer_norm_rms_epsilon'],
  ...['attention.key_length', 'attention.value_length', 'rope.dimension_count', 'rope.freq_base'],
  ...['rope.scaling.type', 'rope.scaling.factor', 'rope.scaling.original_context_length'],
  'rope.scaling.finetuned',
]);

/**
 * The family of a file.
 * @throws GgufError naming the supported ones
 */
export function architectureOf({ path, metadata }: GgufHeader): Architecture {
  const name = metadata.get('general.architecture');
  if (typeof name === 'string' && Object.hasOwn(ARCHITECTURES, name)) return ARCHITECTURES[name];
  throw new GgufError(
    `${path}: the architecture ${JSON.stringify(name)} is not supported; supported: ${Object.keys(ARCHITECTURES).join(', ')}`,
  );
}

/**
 * Hugging Face's `config.json` of a file.
 * @param ropeFactors numbers of {@link ROPE_TENSORS} by name
 * @throws GgufError naming a key that is missing or would change the result
 */
export function configOf(
  header: GgufHeader,
  ropeFactors: ReadonlyMap<string, readonly number[]>,
): JsonObject {
  const { path, metadata, tensors } = header;
  const architecture = architectureOf(header);
  const prefix = `${metadata.get('general.architecture')}.`;
  refuseUnknownKeys(header, prefix, new Set([...COMMON_KEYS, ...(architecture.keys ?? [])]));
  const get = (key: string): number | null => numberOf(header, prefix + key);
  const wanted = (key: string): number => {
    const value = get(key);
    if (value === null) throw new GgufError(`${path}: the metadata ${prefix}${key} is missing`);
    return value;
  };
  const [vocabulary] = tensors.get('token_embd.weight')?.shape ?? [];
  if (vocabulary === undefined) throw new GgufError(`${path}: the tensor token_embd.weight is missing`);
  const [heads, hidden] = [wanted('attention.head_count'), wanted('embedding_length')];
  const token = (key: string) => numberOf(header, `tokenizer.ggml.${key}`);
  const theta = get('rope.freq_base');
  const scaling = scalingOf(header, prefix, ropeFactors);
  const own = architecture.config?.(get, header) ?? {};
  return {
    model_type: architecture.type,
    vocab_size: vocabulary,
    hidden_size: hidden,
    intermediate_size: wanted('feed_forward_length'),
    num_hidden_layers: wanted('block_count'),
    num_attention_heads: heads,
    num_key_value_heads: get('attention.head_count_kv') ?? heads,
    head_dim: get('attention.key_length') ?? hidden / heads,
    max_position_embeddings: wanted('context_length'),
    rms_norm_eps: wanted('attention.layer_norm_rms_epsilon'),
    ...(theta === null ? {} : { rope_theta: theta }),
    tie_word_embeddings: !tensors.has('output.weight'),
    bos_token_id: token('bos_token_id'),
    eos_token_id: token('eos_token_id'),
    pad_token_id: token('padding_token_id'),
    ...(architecture.type === 'llama' ? { attention_bias: tensors.has('blk.0.attn_q.bias') } : {}),
    ...own,
    ...(scaling === null ? {} : { rope_scaling: { ...(own.rope_scaling as JsonObject), ...scaling } }),
  };
}

/** Settings of stretched rotary frequencies; null where there are none. */
function scalingOf(
  header: GgufHeader,
  prefix: string,
  ropeFactors: ReadonlyMap<string, readonly number[]>,
): JsonObject | null {
  const key = `${prefix}rope.scaling.`;
  const kind = header.metadata.get(`${key}type`) ?? 'none';
  const original = numberOf(header, `${key}original_context_length`);
  if (ropeFactors.size > 0) {
    const factors: { [key: string]: Json } = {};
    for (const [name, numbers] of ropeFactors)
      for (const target of ROPE_TENSORS[name]) factors[target] = [...numbers];
    return {
      rope_type: 'longrope',
      ...factors,
      attention_factor: numberOf(header, `${key}attn_factor`) ?? 1,
      original_max_position_embeddings: original ?? numberOf(header, `${prefix}context_length`),
    };
  }
  if (kind === 'none') return null;
  if (kind !== 'linear' && kind !== 'yarn') {
    throw new GgufError(`${header.path}: ${key}type ${JSON.stringify(kind)} is not supported`);
  }
  const factor = numberOf(header, `${key}factor`);
  if (kind === 'linear' && (factor === null || factor === 1)) return null;
  return {
    rope_type: kind,
    factor,
    ...(original === null ? {} : { original_max_position_embeddings: original }),
  };
}

/** The number of a key; a list of the same number for each layer counts as that number; null where the key is missing. */
function numberOf({ path, metadata }: GgufHeader, key: string): number | null {
  const value = metadata.get(key);
  if (value === undefined) return null;
  const numbers = typeof value === 'object' ? Array.from(value as ArrayLike<unknown>) : [value];
  if (numbers.length > 0 && numbers.every(entry => entry === numbers[0] && typeof entry === 'number')) {
    return numbers[0] as number;
  }
  throw new GgufError(`${path}: ${key} must be a number, the same for each layer`);
}

/** @throws GgufError for a key that this family does not have: it might change the result */
function refuseUnknownKeys({ path, metadata }: GgufHeader, prefix: string, known: ReadonlySet<string>): void {
  if (Number(metadata.get('split.count') ?? 1) > 1) {
    throw new GgufError(`${path} is one of several files: merge them with llama-gguf-split --merge`);
  }
  for (const [key, value] of metadata) {
    if (!key.startsWith(prefix) || known.has(key.slice(prefix.length)) || value === 0) continue;
    throw new GgufError(`${path}: the metadata ${key} is not supported for this architecture`);
  }
}
