import Type, { type Static, type TProperties, type TSchema } from 'typebox';
import { SAMPLING_FIELDS } from '../openai/schemas.ts';

const MAX_TEXT = 1024;
const MAX_STOPS = 64;
const MAX_INTEGER = 2 ** 31 - 1;

/** Fields of a JSON body. */
export type Fields<P extends TProperties> = Static<Type.TObject<P>>;

/** A field that SDKs leave out or send as null. */
const orNull = <T extends TSchema>(schema: T) => Type.Optional(Type.Union([schema, Type.Null()]));
export const Id = Type.String({ minLength: 1, maxLength: MAX_TEXT });
const SequenceId = Type.Integer({ minimum: 0, maximum: MAX_INTEGER });
const Flag = orNull(Type.Boolean());
const PositiveOrZero = orNull(Type.Number({ minimum: 0 }));
const BelowOne = orNull(Type.Number({ minimum: 0, exclusiveMaximum: 1 }));
const StopText = Type.String({ minLength: 1, maxLength: MAX_TEXT });
const stops = <T extends TSchema>(schema: T) => Type.Array(schema, { maxItems: MAX_STOPS });
const saving = { ttl_seconds: orNull(Type.Integer({ minimum: 1 })), overwrite: Flag };
const { temperature, top_k, top_p } = SAMPLING_FIELDS;

export const SessionFields = { tags: orNull(Type.Array(Type.String())) };
/** An operation of a model. */
export const Numbered = { model_id: Id, seq_id: SequenceId };
export const Lora = Type.Object({
  rank: Type.Integer({ minimum: 1 }),
  seed: orNull(Type.Integer()),
  train_unembed: Flag,
  train_mlp: Flag,
  train_attn: Flag,
});
export const ModelFields = {
  ...{ session_id: Id, model_seq_id: SequenceId, base_model: Id, lora_config: Lora },
  optimizer_config: orNull(Type.Object({ type: Type.String() })),
};

/** SDK 0.38 creates the model with it, and SDK 0.25 loads into one that exists. */
export const LoadFields = {
  ...{ path: Id, optimizer: Flag, base_model: orNull(Id) },
  ...{ session_id: orNull(Id), model_seq_id: orNull(SequenceId) },
  ...{ model_id: orNull(Id), seq_id: orNull(SequenceId) },
};

export const SamplingSessionFields = {
  ...{ session_id: Id, sampling_session_seq_id: SequenceId },
  ...{ base_model: orNull(Id), model_path: orNull(Id) },
};

export const SampleFields = {
  sampling_session_id: orNull(Id),
  /** Numbers of copied sampling clients reach 10¹⁸, which JSON does not keep exact. */
  seq_id: orNull(Type.Integer({ minimum: 0 })),
  num_samples: orNull(Type.Integer({ minimum: 1, maximum: 256 })),
  /** A chunk of another type than `encoded_text` has no tokens. */
  prompt: Type.Object({
    chunks: Type.Array(
      Type.Object({ type: orNull(Type.String()), tokens: Type.Optional(Type.Array(SequenceId)) }),
    ),
  }),
  /** `stop` absent: the end-of-text token stops; `[]`: nothing stops. */
  sampling_params: Type.Object({
    ...{ temperature, top_k, top_p, seed: orNull(Type.Integer()) },
    max_tokens: orNull(Type.Integer({ minimum: 1 })),
    stop: orNull(Type.Union([StopText, stops(StopText), stops(Type.Integer({ minimum: 0 }))])),
  }),
  prompt_logprobs: Flag,
  topk_prompt_logprobs: orNull(Type.Integer({ minimum: 0 })),
};

export const StepFields = {
  adam_params: orNull(
    Type.Object({
      ...{ learning_rate: PositiveOrZero, beta1: BelowOne, beta2: BelowOne },
      eps: orNull(Type.Number({ exclusiveMinimum: 0 })),
      ...{ weight_decay: PositiveOrZero, grad_clip_norm: PositiveOrZero },
    }),
  ),
  optimizer_params: Type.Optional(Type.Unknown()),
};

export const SaveFields = { ...saving, path: Id };
/** With a path it saves a checkpoint, and without one it opens a sampling session of the weights as they are now. */
export const SamplerFields = {
  ...{ ...saving, path: orNull(Id), sampling_session_seq_id: orNull(SequenceId) },
  kind: orNull(Type.Union([Type.Literal('snapshot'), Type.Literal('inflight')])),
};
