import Type, { type Static } from 'typebox';
import { aboveZero, choice, flag, notNegative, orNull, positive, section, strict } from './schema.ts';

/** A model behind a text completion interface that repeats prompts with log-probabilities (`echo`, `logprobs`): ragen, vLLM. */
export const ReferenceEndpoint = Type.Object(
  {
    /** Address up to the version, e.g. `http://127.0.0.1:8000/v1`. */
    url: Type.String({ pattern: '^https?://' }),
    /** Name of the model at the endpoint. */
    model: Type.String({ minLength: 1 }),
    /** Environment variable with the key; null: none. */
    api_key_env: orNull(Type.String({ minLength: 1 })),
    /** Requests in flight at once. */
    concurrency: positive(16),
    /** Attempts at a request. */
    attempts: positive(6),
    /** Seconds until a request is given up. */
    timeout_s: aboveZero(120),
  },
  strict,
);

/** A chat model behind an OpenAI-compatible interface, to be evaluated. */
export const EndpointSection = Type.Object(
  {
    /** Address up to the version, e.g. `http://127.0.0.1:8000/v1`. */
    url: Type.String({ pattern: '^https?://' }),
    /** Name of the model at the endpoint. */
    model: Type.String({ minLength: 1 }),
    /** Environment variable with the key; null: none. */
    api_key_env: orNull(Type.String({ minLength: 1 })),
    /** Requests in flight at once. */
    concurrency: positive(8),
    /** Limit of the endpoint; null: none. */
    requests_per_minute: orNull(Type.Integer({ minimum: 1 })),
    /** Limit of the endpoint; null: none. */
    tokens_per_minute: orNull(Type.Integer({ minimum: 1 })),
    /** Attempts at a request. */
    attempts: positive(6),
    /** Seconds until a request is given up. */
    timeout_s: aboveZero(120),
    /** Sends `rollout.stop_strings` (vLLM, SGLang). */
    send_stop_strings: flag(false),
    /** Begins responses as rollouts do, with an open last message (ragen, vLLM). */
    continue_final_message: flag(false),
    /** Field that bounds a response. */
    max_tokens_key: choice(['max_tokens', 'max_completion_tokens'], 'max_tokens'),
    /** Price of a million tokens. */
    price_per_million: Type.Object({ prompt: notNegative(0), completion: notNegative(0) }, section),
    /** Further keys of every request. */
    extra: Type.Record(Type.String(), Type.Unknown(), { default: {} }),
  },
  strict,
);
export type EndpointSection = Static<typeof EndpointSection>;
