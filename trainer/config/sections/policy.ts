import Type, { type Static } from 'typebox';
import { closed } from '../../../shared/schema/type.ts';
import { LORA_MODULES, type LoraConfig } from '../../models/adapters/lora.ts';
import { BASE_PRECISIONS, QUANTIZATIONS } from '../../models/frozen-weights.ts';
import { DEFAULT_LOSS_SCALE } from '../../policy/learning/loss-scale.ts';
import { DEFAULT_TOKEN_BUDGET } from '../../policy/learning/micro-batches.ts';
import { TINKER_SERVERS } from '../../policy/tinker/profiles.ts';
import { PRECISIONS, RUNTIME_CHOICES } from '../../tensor/runtime/runtime.ts';
import { aboveZero, choice, flag, notNegative, orNull, positive, section, text } from './schema.ts';

/** Fields of a model behind an interface like OpenAI's. */
const endpoint = (concurrency: number) => ({
  /** Address up to the version, e.g. `http://127.0.0.1:8000/v1`. */
  url: Type.String({ pattern: '^https?://' }),
  /** Name of the model at the endpoint. */
  model: Type.String({ minLength: 1 }),
  /** Environment variable with the key; null: none. */
  api_key_env: orNull(Type.String({ minLength: 1 })),
  /** Requests in flight at once. */
  concurrency: positive(concurrency),
  /** Attempts at a request. */
  attempts: positive(6),
  /** Seconds until a request is given up. */
  timeout_s: aboveZero(120),
});

/** A model behind text completions that repeat prompts with log-probabilities (`echo`, `logprobs`): ragen, vLLM. */
const ReferenceEndpoint = closed(endpoint(16));

/** A chat model behind an OpenAI-compatible interface, to be evaluated. */
export const EndpointSection = closed({
  ...endpoint(8),
  /** Limit of the endpoint; null: none. */
  requests_per_minute: orNull(Type.Integer({ minimum: 1 })),
  /** Limit of the endpoint; null: none. */
  tokens_per_minute: orNull(Type.Integer({ minimum: 1 })),
  /** Sends `rollout.stop_strings` (vLLM, SGLang). */
  send_stop_strings: flag(false),
  /** Begins responses as rollouts do, with an open last message (ragen, vLLM). */
  continue_final_message: flag(false),
  /** Field that bounds a response. */
  max_tokens_key: choice(['max_tokens', 'max_completion_tokens'], 'max_tokens'),
  /** Price of a million tokens. */
  price_per_million: section({ prompt: notNegative(0), completion: notNegative(0) }),
  /** Further keys of every request. */
  extra: Type.Record(Type.String(), Type.Unknown(), { default: {} }),
});
export type EndpointSection = Static<typeof EndpointSection>;

/** Layers that servers of the Tinker API adapt together. */
export const ATTENTION_MODULES = ['q_proj', 'k_proj', 'v_proj', 'o_proj'] as const;
export const MLP_MODULES = ['gate_proj', 'up_proj', 'down_proj'] as const;

/** Adapters that are learned next to a model instead of the model itself. */
const LoraSection = closed({
  /** Rank of the adapters. */
  rank: positive(16),
  /** An adapter's output is multiplied by alpha / rank … */
  alpha: aboveZero(32),
  /** … or by alpha / √rank. */
  rank_stabilized: flag(false),
  /** DoRA. */
  use_dora: flag(false),
  /** Linear layers with an adapter. */
  target_modules: Type.Array(Type.Enum([...LORA_MODULES]), {
    minItems: 1,
    uniqueItems: true,
    default: [...LORA_MODULES],
  }),
  /** Dropout of adapter inputs in updates. */
  dropout: Type.Number({ minimum: 0, exclusiveMaximum: 1, default: 0 }),
  /** Storage of the frozen linear weights, in blocks of 64; null: float32. */
  quantization: orNull(Type.Enum([...QUANTIZATIONS])),
});
type LoraSection = Static<typeof LoraSection>;

export function loraConfig(section: LoraSection): LoraConfig {
  const { rank, alpha, rank_stabilized, use_dora, target_modules } = section;
  return { rank, alpha, rankStabilized: rank_stabilized, dora: use_dora, modules: target_modules };
}

/** The server of `policy.runtime: tinker`. */
const TinkerSection = closed({
  /** Address without `/api/v1`. */
  url: Type.String({ pattern: '^https?://' }),
  /** Kind of server; `skyrl` means FSDP or Megatron. */
  server: Type.Enum([...TINKER_SERVERS]),
  /** Environment variable with the key; null: none. */
  token_env: orNull(Type.String({ minLength: 1 })),
  /** Newest checkpoints that the server keeps. */
  keep_checkpoints: positive(3),
  /** Lifetime of a checkpoint at the server; null: unlimited. */
  ttl_s: orNull(Type.Integer({ minimum: 60 })),
  /** Price of a million tokens; `train`: learned or scored. */
  price_per_million: section({ prefill: notNegative(0), sample: notNegative(0), train: notNegative(0) }),
  /** Seconds to wait for a server that is unreachable or full. */
  patience_s: aboveZero(600),
});

/** A separate model that estimates values, in place of a head on the policy's trunk. */
const CriticSection = closed({
  /** Folder of its first weights; null: the policy's. */
  init: orNull(Type.String({ minLength: 1 })),
  /** Peak learning rate; the rest of `optimizer` is the policy's. */
  learning_rate: notNegative(1e-5),
});

/** Size and place of the policy. `init` is `scratch`, a folder in the Hugging Face layout (a model, or an adapter in PEFT's), or `organization/name@revision` on a hub. */
export const PolicySettings = section({
  /**
   * `scratch`; a folder in Hugging Face's layout (a model, or a PEFT adapter); a `.gguf` file; or
   * `organization/name@revision` on the Hub.
   */
  init: text('scratch'),
  /** Width of a policy from scratch. */
  hidden_size: positive(64),
  /** Decoder layers. */
  layers: positive(2),
  /** Attention heads. */
  heads: positive(4),
  /** Key-value heads; null: as many as `heads`. */
  key_value_heads: orNull(Type.Integer({ minimum: 1 })),
  /** Width of the MLP. */
  intermediate_size: positive(160),
  /** Longest sequence in tokens, prompts and responses together. */
  context: positive(161),
  /** Treats `context` as the maximum; the run takes what its first prompts need. */
  fit_context: flag(false),
  /**
   * Tokenizer of a policy from scratch: `words` (of the environments' vocabularies), `bytes` (256 bytes, the prompt's tags
   * and the actions that environments name: writes any text), or a `tokenizer.json` or its folder (`./`: next to the
   * config). Null: `words` if all environments have a vocabulary, else `bytes`. With the runtime `tinker`: the model's,
   * as a folder or its name on the Hub.
   */
  tokenizer: orNull(Type.String({ minLength: 1 })),
  /** Base of the rotary position embedding. */
  rope_theta: aboveZero(10_000),
  /** Standard deviation of initial weights. */
  initializer_range: aboveZero(0.02),
  /** Estimates values, by a head on the model or by the critic if there is one. */
  value_head: flag(true),
  /** Keeps the optimizer state of the warm start or of `init`. */
  keep_optimizer: flag(false),
  /** A separate model estimates values; null: a head on the policy does. */
  critic: orNull(CriticSection),
  /** Trains adapters and keeps the model of `init` frozen; null: trains all weights. */
  lora: orNull(LoraSection),
  /** Checkpoint folder of the reference policy; null: the policy when training starts. */
  reference: orNull(Type.String({ minLength: 1 })),
  /** Reference policy behind an endpoint; null: `reference`. */
  reference_endpoint: orNull(ReferenceEndpoint),
  /** Iterations until the policy replaces the reference; null: never. */
  reference_refresh_every: orNull(Type.Integer({ minimum: 1 })),
  /**
   * `onnx`: the CPU. `webgpu`: the GPU. `auto`: the GPU if there is one and the model is not small. `tinker`: a server of
   * the Tinker API.
   */
  runtime: choice([...RUNTIME_CHOICES, 'tinker'], 'onnx'),
  /** Server of the runtime `tinker`, which trains LoRA adapters on its model `init`. */
  tinker: orNull(TinkerSection),
  /** Type of matrix factors; `float16` requires `webgpu`. Sums and weights stay float32. */
  precision: choice(PRECISIONS, 'float32'),
  /**
   * Frozen weights of a `.gguf` file on the CPU: `float32`; or `blocks`, as the file has them, with tokens sampled by integer
   * products. `auto`: blocks where nothing is learned.
   */
  base_precision: choice(BASE_PRECISIONS, 'auto'),
  /** GPU memory; runs that cannot fit are rejected. Null: not checked. */
  gpu_memory_gib: orNull(aboveZero(1)),
  /** Loss scaling of `float16`. */
  loss_scale: section({
    /** First factor. */
    initial: Type.Number({ minimum: 1, maximum: 2 ** 24, default: DEFAULT_LOSS_SCALE.initial }),
    /** Steps without overflow until it doubles. */
    growth_interval: positive(DEFAULT_LOSS_SCALE.growthInterval),
    /** Its factor after an overflow. */
    back_off: Type.Number({
      exclusiveMinimum: 0,
      exclusiveMaximum: 1,
      default: DEFAULT_LOSS_SCALE.backOff,
    }),
  }),
  /** Worker threads that share a mini-batch; null: the machine's cores. Another number changes rounding. */
  workers: orNull(Type.Integer({ minimum: 1 })),
  /** Threads of each worker. */
  threads: positive(1),
  /** Tokens in one pass; no effect on results. */
  micro_batch_tokens: positive(DEFAULT_TOKEN_BUDGET),
  /** Gradient checkpointing: saves memory, costs time. */
  recompute: flag(false),
});
