import Type, { type Static, type TSchema } from 'typebox';
import { bodyParser } from '../openai/parse.ts';

const MAX_TEXT = 1024;
const MAX_STOPS = 64;
const GREATEST_INTEGER = 2 ** 31 - 1;

/** A field that SDKs leave out or send as null. */
const orNull = <T extends TSchema>(schema: T) => Type.Optional(Type.Union([schema, Type.Null()]));
const Id = Type.String({ minLength: 1, maxLength: MAX_TEXT });
const SequenceId = Type.Integer({ minimum: 0, maximum: GREATEST_INTEGER });
const MaybeId = orNull(Id);
const MaybeSequenceId = orNull(SequenceId);
const MaybeFlag = orNull(Type.Boolean());
const PositiveOrZero = orNull(Type.Number({ minimum: 0 }));
const BelowOne = orNull(Type.Number({ minimum: 0, exclusiveMaximum: 1 }));
const stops = <T extends TSchema>(schema: T) => Type.Array(schema, { maxItems: MAX_STOPS });
const StopText = Type.String({ minLength: 1, maxLength: MAX_TEXT });
const Token = Type.Integer({ minimum: 0, maximum: GREATEST_INTEGER });
const saving = { ttl_seconds: orNull(Type.Integer({ minimum: 1 })), overwrite: MaybeFlag };

const SCHEMAS = {
  create_session: Type.Object({ tags: orNull(Type.Array(Type.String())) }),
  session_heartbeat: Type.Object({ session_id: Id }),
  retrieve_future: Type.Object({ request_id: Id }),
  create_model: Type.Object({
    session_id: Id,
    model_seq_id: SequenceId,
    base_model: Id,
    lora_config: Type.Object({
      rank: Type.Integer({ minimum: 1 }),
      seed: orNull(Type.Integer()),
      train_unembed: MaybeFlag,
      train_mlp: MaybeFlag,
      train_attn: MaybeFlag,
    }),
    optimizer_config: orNull(Type.Object({ type: Type.String() })),
  }),
  /** SDK 0.38 creates the model with it, and SDK 0.25 loads into one that exists. */
  load_weights: Type.Object({
    path: Id,
    optimizer: MaybeFlag,
    ...{ session_id: MaybeId, model_seq_id: MaybeSequenceId, base_model: MaybeId },
    ...{ model_id: MaybeId, seq_id: MaybeSequenceId },
  }),
  get_info: Type.Object({ model_id: Id }),
  unload_model: Type.Object({ model_id: Id }),
  weights_info: Type.Object({ tinker_path: Id }),
  create_sampling_session: Type.Object({
    session_id: Id,
    sampling_session_seq_id: SequenceId,
    base_model: MaybeId,
    model_path: MaybeId,
  }),
  asample: Type.Object({
    sampling_session_id: MaybeId,
    /** Numbers of copied sampling clients reach 10¹⁸, which JSON does not keep exact. */
    seq_id: orNull(Type.Integer({ minimum: 0 })),
    num_samples: orNull(Type.Integer({ minimum: 1, maximum: 256 })),
    /** A chunk of another type than `encoded_text` has no tokens. */
    prompt: Type.Object({
      chunks: Type.Array(
        Type.Object({ type: orNull(Type.String()), tokens: Type.Optional(Type.Array(Token)) }),
      ),
    }),
    /** `stop` absent: the end-of-text token stops; `[]`: nothing stops. `top_k` −1 and `top_p` 1 are off. */
    sampling_params: Type.Object({
      max_tokens: orNull(Type.Integer({ minimum: 1 })),
      seed: orNull(Type.Integer()),
      stop: orNull(Type.Union([StopText, stops(StopText), stops(Type.Integer({ minimum: 0 }))])),
      temperature: orNull(Type.Number({ minimum: 0, maximum: 100 })),
      top_k: orNull(Type.Integer({ minimum: -1 })),
      top_p: orNull(Type.Number({ exclusiveMinimum: 0, maximum: 1 })),
    }),
    prompt_logprobs: MaybeFlag,
    topk_prompt_logprobs: orNull(Type.Integer({ minimum: 0 })),
  }),
  /** Fields of every operation of a model. */
  operation: Type.Object({ model_id: Id, seq_id: SequenceId }),
  optim_step: Type.Object({
    adam_params: orNull(
      Type.Object({
        learning_rate: PositiveOrZero,
        beta1: BelowOne,
        beta2: BelowOne,
        eps: orNull(Type.Number({ exclusiveMinimum: 0 })),
        weight_decay: PositiveOrZero,
        grad_clip_norm: PositiveOrZero,
      }),
    ),
    optimizer_params: Type.Optional(Type.Unknown()),
  }),
  save_weights: Type.Object({ ...saving, path: Id }),
  /** With a path it saves a checkpoint, and without one it opens a sampling session of the weights as they are now. */
  save_weights_for_sampler: Type.Object({
    ...{ ...saving, path: MaybeId, sampling_session_seq_id: MaybeSequenceId },
    kind: orNull(Type.Union([Type.Literal('snapshot'), Type.Literal('inflight')])),
  }),
} as const;

/** The JSON body of a route. */
export type Body<Route extends keyof typeof SCHEMAS> = Static<(typeof SCHEMAS)[Route]>;

/** The checker of each route's JSON body. It ignores unknown fields, and throws ApiError 400 naming a faulty one. */
export const BODIES = Object.fromEntries(
  Object.entries(SCHEMAS).map(([route, schema]) => [route, bodyParser(schema, () => {})]),
) as unknown as { readonly [Route in keyof typeof SCHEMAS]: (body: unknown) => Body<Route> };
