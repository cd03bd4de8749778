/**
 * JSON bodies of the Tinker API, as SDK 0.25 to 0.38 sends them to `/api/v1/<route>`. Requests are schemas, which the
 * server checks; replies are types. Fields that the SDK leaves out when null may be absent or null; unknown ones are ignored.
 */
import Type, { type Static } from 'typebox';

/** Longest id or path. */
const MAX_TEXT = 1024;
const MAX_STOPS = 64;
const GREATEST_SEQUENCE = 2 ** 31 - 1;

const orNull = <T extends Type.TSchema>(schema: T) => Type.Optional(Type.Union([schema, Type.Null()]));
const Id = Type.String({ minLength: 1, maxLength: MAX_TEXT });
const SequenceId = Type.Integer({ minimum: 0, maximum: GREATEST_SEQUENCE });
const TokenIds = Type.Array(Type.Integer({ minimum: 0, maximum: GREATEST_SEQUENCE }));
const anything = Type.Optional(Type.Unknown());

export const CreateSessionRequest = Type.Object({
  tags: orNull(Type.Array(Type.String())),
  user_metadata: anything,
  sdk_version: orNull(Type.String()),
});

export const SessionRequest = Type.Object({ session_id: Id });

export const LoraSettings = Type.Object({
  rank: Type.Integer({ minimum: 1 }),
  seed: orNull(Type.Integer()),
  train_unembed: orNull(Type.Boolean()),
  train_mlp: orNull(Type.Boolean()),
  train_attn: orNull(Type.Boolean()),
});

export const CreateModelRequest = Type.Object({
  session_id: Id,
  model_seq_id: SequenceId,
  base_model: Id,
  lora_config: LoraSettings,
  user_metadata: anything,
  optimizer_config: orNull(Type.Object({ type: Type.String() })),
});

export const ModelRequest = Type.Object({ model_id: Id });

/** AdamW; defaults are the SDK's, `grad_clip_norm` 0 turns clipping off. */
export const AdamParameters = Type.Object({
  learning_rate: orNull(Type.Number({ minimum: 0 })),
  beta1: orNull(Type.Number({ minimum: 0, exclusiveMaximum: 1 })),
  beta2: orNull(Type.Number({ minimum: 0, exclusiveMaximum: 1 })),
  eps: orNull(Type.Number({ exclusiveMinimum: 0 })),
  weight_decay: orNull(Type.Number({ minimum: 0 })),
  grad_clip_norm: orNull(Type.Number({ minimum: 0 })),
});

export const OptimStepRequest = Type.Object({
  model_id: Id,
  seq_id: SequenceId,
  adam_params: orNull(AdamParameters),
  /** Another optimizer than Adam. */
  optimizer_params: anything,
});

export const SaveWeightsRequest = Type.Object({
  model_id: Id,
  seq_id: SequenceId,
  path: Id,
  ttl_seconds: orNull(Type.Integer({ minimum: 1 })),
  overwrite: orNull(Type.Boolean()),
});

/** With `path` a named checkpoint; without, a sampling session of the weights as they are now. */
export const SaveWeightsForSamplerRequest = Type.Object({
  model_id: Id,
  seq_id: SequenceId,
  path: orNull(Id),
  sampling_session_seq_id: orNull(SequenceId),
  kind: orNull(Type.Union([Type.Literal('snapshot'), Type.Literal('inflight')])),
  ttl_seconds: orNull(Type.Integer({ minimum: 1 })),
  overwrite: orNull(Type.Boolean()),
});

/** SDK 0.38 creates the model with it (`session_id`, `model_seq_id`); SDK 0.25 loads into one that exists (`model_id`, `seq_id`). */
export const LoadWeightsRequest = Type.Object({
  path: Id,
  optimizer: orNull(Type.Boolean()),
  session_id: orNull(Id),
  model_seq_id: orNull(SequenceId),
  model_id: orNull(Id),
  seq_id: orNull(SequenceId),
  base_model: orNull(Id),
});

export const CreateSamplingSessionRequest = Type.Object({
  session_id: Id,
  sampling_session_seq_id: SequenceId,
  base_model: orNull(Id),
  model_path: orNull(Id),
});

/** `stop` absent: the end-of-text token stops; `[]`: nothing stops. `top_k` −1 and `top_p` 1 are off. */
export const SamplingParameters = Type.Object({
  max_tokens: orNull(Type.Integer({ minimum: 1 })),
  seed: orNull(Type.Integer()),
  stop: orNull(
    Type.Union([
      Type.String({ minLength: 1, maxLength: MAX_TEXT }),
      Type.Array(Type.String({ minLength: 1, maxLength: MAX_TEXT }), { maxItems: MAX_STOPS }),
      Type.Array(Type.Integer({ minimum: 0 }), { maxItems: MAX_STOPS }),
    ]),
  ),
  temperature: orNull(Type.Number({ minimum: 0, maximum: 100 })),
  top_k: orNull(Type.Integer({ minimum: -1 })),
  top_p: orNull(Type.Number({ exclusiveMinimum: 0, maximum: 1 })),
});

export const SampleRequest = Type.Object({
  sampling_session_id: orNull(Id),
  /** Numbers of copied sampling clients reach 10¹⁸, which JSON does not keep exact. */
  seq_id: orNull(Type.Integer({ minimum: 0 })),
  num_samples: orNull(Type.Integer({ minimum: 1, maximum: 256 })),
  /** Chunks are joined; one of another type than `encoded_text` has no tokens. */
  prompt: Type.Object({
    chunks: Type.Array(Type.Object({ type: orNull(Type.String()), tokens: Type.Optional(TokenIds) })),
  }),
  sampling_params: SamplingParameters,
  prompt_logprobs: orNull(Type.Boolean()),
  topk_prompt_logprobs: orNull(Type.Integer({ minimum: 0 })),
});

/** Fields of `asample` and `asample.sampling_params` that ask for more than {@link SampleRequest} has. */
export const UNSUPPORTED_SAMPLE_FIELDS = [
  'topk_sample_logprobs',
  'target_prompt_logprobs',
  'prompt_alt_tokens_k',
  'prompt_logprobs_last_n',
  'record_stability_info',
] as const;

export const RetrieveFutureRequest = Type.Object({ request_id: Id });

export const WeightsInfoRequest = Type.Object({ tinker_path: Id });

export type CreateModelRequest = Static<typeof CreateModelRequest>;
export type OptimStepRequest = Static<typeof OptimStepRequest>;
export type SaveWeightsRequest = Static<typeof SaveWeightsRequest>;
export type SaveWeightsForSamplerRequest = Static<typeof SaveWeightsForSamplerRequest>;
export type LoadWeightsRequest = Static<typeof LoadWeightsRequest>;
export type CreateSamplingSessionRequest = Static<typeof CreateSamplingSessionRequest>;
export type SampleRequest = Static<typeof SampleRequest>;
export type SamplingParameters = Static<typeof SamplingParameters>;
export type LoraSettings = Static<typeof LoraSettings>;
export type AdamParameters = Static<typeof AdamParameters>;

/** Reply to `create_session`. */
export interface SessionReply {
  readonly session_id: string;
  readonly info_message?: string | null;
  readonly warning_message?: string | null;
  readonly error_message?: string | null;
}

/** Reply to `get_server_capabilities`. */
export interface CapabilitiesReply {
  readonly supported_models: readonly {
    readonly model_name: string;
    readonly max_context_length?: number | null;
    readonly trainable?: boolean;
    readonly sampleable?: boolean;
  }[];
}

/** Reply to `get_info`. */
export interface ModelInfoReply {
  readonly model_id: string;
  readonly model_data: { readonly arch: string; readonly model_name: string; readonly tokenizer_id: string };
  readonly is_lora: boolean;
  readonly lora_rank: number;
}

/** A submitted operation, to be read with `retrieve_future`. */
export interface FutureReply {
  readonly request_id: string;
  readonly model_id?: string;
  /** One text for each sample of `asample`. */
  readonly sample_sequence_ids?: readonly string[];
}

/** Replies of `retrieve_future` besides results: 200 for a failed operation, 408 for one that goes on. */
export interface FailedFuture {
  readonly error: string;
  readonly category: 'user' | 'server' | 'unknown';
}
export interface PendingFuture {
  readonly type: 'try_again';
  readonly request_id: string;
  readonly queue_state: 'active';
}

/** Results by operation. */
export interface ModelResult {
  readonly model_id: string;
}
export interface OptimStepResult {
  readonly metrics?: { readonly [name: string]: number };
}
export interface SaveWeightsResult {
  /** `tinker://<model_id>/weights/<name>` or `tinker://<model_id>/sampler_weights/<name>`. */
  readonly path: string;
}
export interface SamplingSessionResult {
  readonly sampling_session_id: string;
}
export interface LoadWeightsResult {
  readonly path: string;
  readonly model_id: string;
}

/** Reply to `weights_info`. */
export interface WeightsInfoReply {
  readonly base_model: string;
  readonly is_lora: boolean;
  readonly lora_rank: number;
  readonly train_unembed: boolean;
  readonly train_mlp: boolean;
  readonly train_attn: boolean;
}

/** An entry of `GET training_runs/<model_id>/checkpoints`. */
export interface CheckpointEntry {
  /** `weights/<name>` or `sampler_weights/<name>`. */
  readonly checkpoint_id: string;
  readonly checkpoint_type: 'training' | 'sampler';
  /** ISO 8601. */
  readonly time: string;
  readonly tinker_path: string;
  readonly size_bytes?: number;
}

/** Body of every refusal. */
export interface ErrorReply {
  readonly detail: string;
}
