import Type, { type Static, type TSchema } from 'typebox';
import { Compile } from 'typebox/compile';
import { faultsOf, faultText, withFewUnknown } from '../../../shared/faults.ts';
import { isObject, type JsonObject } from '../../../shared/json.ts';
import { closed } from '../../../shared/schema/type.ts';
import { badRequest } from './errors.ts';

/** Most choices of one request. */
const MAX_CHOICES = 128;
const MAX_STOPS = 16;
const MAX_STOP_TOKENS = 256;
const MAX_BAD_WORDS = 256;
const MAX_BIASES = 4096;
const MAX_PROMPTS = 1024;
const MAX_MESSAGES = 4096;
const MAX_TOOLS = 512;
const MAX_VARIABLES = 64;
const LONGEST_STOP = 1024;
const GREATEST_SEED = Number.MAX_SAFE_INTEGER;

const orNull = <T extends Type.TSchema>(schema: T) => Type.Optional(Type.Union([schema, Type.Null()]));
const Penalty = Type.Number({ minimum: -2, maximum: 2 });
const boolean = Type.Optional(Type.Boolean());
const AnyObject = Type.Record(Type.String(), Type.Unknown());
const FewFields = Type.Record(Type.String(), Type.Unknown(), { maxProperties: MAX_VARIABLES });
export const TokenIds = Type.Array(Type.Integer({ minimum: 0, maximum: 2 ** 31 - 1 }), { minItems: 1 });

/** Sampling settings of a response, and what ends it. */
export const SAMPLING_FIELDS = {
  temperature: orNull(Type.Number({ minimum: 0, maximum: 100 })),
  top_p: orNull(Type.Number({ exclusiveMinimum: 0, maximum: 1 })),
  /** 0 and −1 turn it off. */
  top_k: orNull(Type.Integer({ minimum: -1 })),
  min_p: orNull(Type.Number({ minimum: 0, maximum: 1 })),
  repetition_penalty: orNull(Type.Number({ exclusiveMinimum: 0 })),
  presence_penalty: orNull(Penalty),
  frequency_penalty: orNull(Penalty),
  /** By token id. */
  logit_bias: orNull(
    Type.Record(Type.String({ pattern: '^[0-9]{1,9}$' }), Type.Number({ minimum: -100, maximum: 100 }), {
      additionalProperties: false,
      maxProperties: MAX_BIASES,
    }),
  ),
  bad_words: orNull(
    Type.Array(Type.String({ minLength: 1, maxLength: LONGEST_STOP }), { maxItems: MAX_BAD_WORDS }),
  ),
  seed: orNull(Type.Integer({ minimum: -GREATEST_SEED, maximum: GREATEST_SEED })),
  stop: orNull(
    Type.Union([
      Type.String({ minLength: 1, maxLength: LONGEST_STOP }),
      Type.Array(Type.String({ minLength: 1, maxLength: LONGEST_STOP }), { maxItems: MAX_STOPS }),
    ]),
  ),
  stop_token_ids: orNull(Type.Array(Type.Integer({ minimum: 0 }), { maxItems: MAX_STOP_TOKENS })),
};

/** Automaton over token ids for a response, see `trainer/generation/grammar.ts`. */
export const TOKEN_GRAMMAR = orNull(
  closed({
    start: Type.Integer({ minimum: 0 }),
    states: Type.Array(
      closed({
        tokens: Type.Array(Type.Integer({ minimum: 0 })),
        next: Type.Array(Type.Integer({ minimum: 0 })),
      }),
    ),
  }),
);

/** Fields of OpenAI's API without an effect here, of both routes and of chats alone; the reply lists them in a header. */
const IGNORED = {
  user: orNull(Type.String()),
  safety_identifier: orNull(Type.String()),
  prompt_cache_key: orNull(Type.String()),
  prompt_cache_retention: orNull(Type.String()),
  service_tier: orNull(Type.String()),
  store: orNull(Type.Boolean()),
  metadata: orNull(FewFields),
};
const IGNORED_IN_CHATS = {
  parallel_tool_calls: orNull(Type.Boolean()),
  reasoning_effort: orNull(Type.String()),
  verbosity: orNull(Type.String()),
};
const WITHOUT_EFFECT = Object.keys({ ...IGNORED, ...IGNORED_IN_CHATS });

/** Fields of both routes: OpenAI's, and vLLM's where OpenAI has none. */
const COMMON = {
  /** Absent: the model that the server was started with. */
  model: orNull(Type.String({ minLength: 1 })),
  n: orNull(Type.Integer({ minimum: 1, maximum: MAX_CHOICES })),
  stream: orNull(Type.Boolean()),
  stream_options: orNull(closed({ include_usage: boolean, include_obfuscation: boolean })),
  ...SAMPLING_FIELDS,
  ignore_eos: orNull(Type.Boolean()),
  include_stop_str_in_output: orNull(Type.Boolean()),
  skip_special_tokens: orNull(Type.Boolean()),
  return_token_ids: orNull(Type.Boolean()),
  response_format: orNull(
    closed({ type: Type.Enum(['text', 'json_object', 'json_schema']), json_schema: orNull(AnyObject) }),
  ),
  token_grammar: TOKEN_GRAMMAR,
  ...IGNORED,
};

/** Fields without an effect on this server, each with its neutral value. */
const NEUTRAL: Readonly<Record<string, unknown>> = {
  best_of: 1,
  suffix: '',
};

const ToolCall = closed({
  id: Type.Optional(Type.String()),
  index: Type.Optional(Type.Integer()),
  type: Type.Optional(Type.Literal('function')),
  function: closed({ name: Type.String(), arguments: Type.String() }),
});

const Content = Type.Union([
  Type.String(),
  Type.Array(closed({ type: Type.Literal('text'), text: Type.String() })),
  Type.Null(),
]);

const MessageSchema = closed({
  role: Type.Enum(['system', 'developer', 'user', 'assistant', 'tool']),
  content: Type.Optional(Content),
  name: orNull(Type.String()),
  tool_calls: orNull(Type.Array(ToolCall)),
  tool_call_id: orNull(Type.String()),
  refusal: orNull(Type.String()),
  reasoning_content: orNull(Type.String()),
});
export type RequestMessage = Static<typeof MessageSchema>;

const Tool = closed({
  type: Type.Literal('function'),
  function: closed({
    name: Type.String({ pattern: '^[A-Za-z0-9_.-]{1,128}$' }),
    description: orNull(Type.String()),
    parameters: orNull(AnyObject),
    strict: orNull(Type.Boolean()),
  }),
});

/** Fields that make a prompt from a conversation. */
const CONVERSATION = {
  messages: Type.Array(MessageSchema, { minItems: 1, maxItems: MAX_MESSAGES }),
  tools: orNull(Type.Array(Tool, { maxItems: MAX_TOOLS })),
  add_generation_prompt: boolean,
  /** The last message is the assistant's and is continued. */
  continue_final_message: boolean,
  chat_template_kwargs: orNull(FewFields),
};

export const ChatRequestSchema = closed({
  ...COMMON,
  ...CONVERSATION,
  tool_choice: orNull(Type.Union([Type.Enum(['auto', 'none']), Type.Literal('required'), AnyObject])),
  max_tokens: orNull(Type.Integer({ minimum: 1 })),
  max_completion_tokens: orNull(Type.Integer({ minimum: 1 })),
  logprobs: orNull(Type.Boolean()),
  top_logprobs: orNull(Type.Integer({ minimum: 0, maximum: 20 })),
  ...IGNORED_IN_CHATS,
  modalities: orNull(Type.Array(Type.Literal('text'))),
});
export type ChatRequest = Static<typeof ChatRequestSchema>;

export const CompletionRequestSchema = closed({
  ...COMMON,
  prompt: Type.Union([
    Type.String(),
    TokenIds,
    Type.Array(Type.String(), { minItems: 1, maxItems: MAX_PROMPTS }),
    Type.Array(TokenIds, { minItems: 1, maxItems: MAX_PROMPTS }),
  ]),
  max_tokens: orNull(Type.Integer({ minimum: 0 })),
  echo: orNull(Type.Boolean()),
  logprobs: orNull(Type.Integer({ minimum: 0, maximum: 20 })),
  best_of: orNull(Type.Integer()),
  suffix: orNull(Type.String()),
});
export type CompletionRequest = Static<typeof CompletionRequestSchema>;

export const TokenizeRequestSchema = closed({
  model: orNull(Type.String()),
  prompt: Type.Optional(Type.String()),
  messages: Type.Optional(CONVERSATION.messages),
  tools: CONVERSATION.tools,
  add_generation_prompt: CONVERSATION.add_generation_prompt,
  continue_final_message: CONVERSATION.continue_final_message,
  chat_template_kwargs: CONVERSATION.chat_template_kwargs,
  add_special_tokens: boolean,
  return_token_strs: orNull(Type.Boolean()),
});

export const DetokenizeRequestSchema = closed({
  model: orNull(Type.String()),
  tokens: Type.Array(Type.Integer({ minimum: 0 })),
});

export const LoadAdapterSchema = closed({
  lora_name: Type.String({ pattern: '^[A-Za-z0-9][A-Za-z0-9._/-]{0,199}$' }),
  lora_path: Type.String({ minLength: 1 }),
  load_inplace: boolean,
});

export const UnloadAdapterSchema = closed({
  lora_name: Type.String({ minLength: 1 }),
  lora_int_id: orNull(Type.Integer()),
});

/** Deepest nesting of a request: deeper ones overflow recursive code. */
const DEEPEST = 64;
/** Most entries of all objects of a request together: each takes microseconds, which block other requests. */
const MAX_ENTRIES = 50_000;
/**
 * Entries of a list or object that are searched for faults. Listing the faults of a million takes seconds, which block
 * other requests. The number is larger than any limit of the schemas, so lists that are too long are always found.
 */
const MAX_NAMED = 5000;

/**
 * Compiles the check of a request's body.
 * @param refuse rejects more than the schema: by default, fields of OpenAI's API without an effect
 * @returns a function that returns the typed body, or throws ApiError 400 naming the first field that does not fit
 */
export function bodyParser<Schema extends TSchema>(
  schema: Schema,
  refuse: (body: JsonObject) => void = refuseEffects,
): (body: unknown) => Static<Schema> {
  const validator = Compile(schema);
  return body => {
    if (!isObject(body)) throw badRequest('the body must be a JSON object');
    refuseExcess(body);
    if (!validator.Check(body)) {
      const short = withFewUnknown(schema, shortened(body));
      const [fault] = faultsOf(schema, body, validator.Errors(short));
      if (fault === undefined) {
        throw badRequest(`a list or object of the body has an invalid entry after the first ${MAX_NAMED}`);
      }
      throw badRequest(faultText(fault, 'the body'), fault.pointer.split('/')[1]);
    }
    refuse(body as JsonObject);
    return body as Static<Schema>;
  };
}

/** Fields of a request that have no effect here. */
export function fieldsWithoutEffect(body: object): string[] {
  return WITHOUT_EFFECT.filter(name => name in body && (body as JsonObject)[name] !== null);
}

function refuseEffects(body: JsonObject): void {
  for (const [name, neutral] of Object.entries(NEUTRAL)) {
    const value = body[name];
    if (value === undefined || value === null || value === neutral) continue;
    throw badRequest(`${name} is not supported: leave it out or give ${JSON.stringify(neutral)}`, name);
  }
}

/** The value with the first entries of its lists and objects. */
function shortened(value: unknown): unknown {
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) return value.slice(0, MAX_NAMED).map(shortened);
  return Object.fromEntries(
    Object.entries(value)
      .slice(0, MAX_NAMED)
      .map(([key, part]) => [key, shortened(part)]),
  );
}

/** Rejects deeper nesting, and objects with too many entries. */
function refuseExcess(body: object): void {
  const open: { readonly value: object; readonly depth: number }[] = [{ value: body, depth: 1 }];
  let entries = 0;
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    if (next.depth > DEEPEST) throw badRequest(`the body is nested more than ${DEEPEST} levels deep`);
    const values = Object.values(next.value);
    if (!Array.isArray(next.value)) entries += values.length;
    if (entries > MAX_ENTRIES)
      throw badRequest(`the objects of the body have more than ${MAX_ENTRIES} entries together`);
    for (const value of values) {
      if (typeof value === 'object' && value !== null) open.push({ value, depth: next.depth + 1 });
    }
  }
}
