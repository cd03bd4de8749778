import type { Readable, Transform } from 'node:stream';
import { createBrotliDecompress, createGunzip, createInflate, createZstdDecompress } from 'node:zlib';
import type { FastifyRequest } from 'fastify';
import Type, { type Static, type TProperties, type TSchema } from 'typebox';
import { placeOf } from '../../tinker/proto.ts';
import { ApiError, badRequest } from '../openai/errors.ts';
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

export const PROTOBUF = 'application/x-protobuf';
export const TRAINING_BODY_BYTES = 64 * 2 ** 20;
/** Beginning of a body that is refused, which holds the number of its request. */
const HEAD_BYTES = 2 ** 16;
const CHUNK_BYTES = 2 ** 18;
/** Routes with numbers. */
const OPERATIONS = /\/(?:forward_backward|optim_step|load_weights|save_weights(?:_for_sampler)?)$/;
/** Encodings of bodies. All but zstd are refused, and are read for the number of their request. */
const UNPACKERS: ReadonlyMap<string, () => Transform> = new Map([
  ['zstd', () => createZstdDecompress({ chunkSize: CHUNK_BYTES })],
  ['gzip', () => createGunzip()],
  ['deflate', () => createInflate()],
  ['br', () => createBrotliDecompress()],
]);

export const protobufAlone = (): ApiError => new ApiError(415, `forward_backward takes ${PROTOBUF} alone`);

/** A body as it came, or the beginning of one that is too large. @throws ApiError 400 */
export async function rawBody({ routeOptions }: FastifyRequest, payload: Readable): Promise<Buffer> {
  const parts: Buffer[] = [];
  let size = 0;
  try {
    for await (const part of payload.iterator({ destroyOnReturn: false })) {
      size += parts[parts.push(part) - 1].length;
      if (size > routeOptions.bodyLimit!) break;
    }
  } catch {
    throw badRequest('the client went away');
  }
  // A client reads the reply when all that it sends was read.
  payload.resume();
  return Buffer.concat(parts);
}

/** The text of a JSON body. Where it is refused, its bytes are the body of the request. */
export async function jsonText(request: FastifyRequest, payload: Readable): Promise<string> {
  const body = await rawBody(request, payload);
  request.body = body;
  // Parsing so large a body would delay everybody.
  if (request.routeOptions.bodyLimit === TRAINING_BODY_BYTES) throw protobufAlone();
  return (await unpacked(request, body, 'identity')).toString();
}

/**
 * A body, unpacked. It becomes the body of the request, as far as it can be.
 * @param known the encoding that is taken besides none
 * @throws ApiError 400, 413 or 415
 */
export async function unpacked(
  request: FastifyRequest,
  body: Buffer,
  known: 'zstd' | 'identity',
): Promise<Buffer> {
  const { headers, socket, routeOptions } = request;
  const limit = routeOptions.bodyLimit!;
  const { 'content-encoding': encoding = 'identity' } = headers;
  if (socket.destroyed) throw badRequest('the client went away');
  const most = `more than ${limit / 2 ** 20} MiB`;
  let fault: ApiError | undefined;
  if (body.length > limit) fault = new ApiError(413, `the body is too large: it has ${most}`);
  else if (encoding === 'identity') return body;
  else if (encoding !== known)
    fault = new ApiError(415, `content-encoding ${encoding} is not supported; use ${known}`);
  const stream = UNPACKERS.get(encoding)?.();
  const parts: Buffer[] = [];
  let left = fault ? HEAD_BYTES : limit;
  try {
    for await (const part of stream?.end(body) ?? []) {
      left -= parts[parts.push(part) - 1].length;
      if (left < 0) throw new ApiError(413, `the body has ${most} when it is unpacked`);
    }
  } catch (error) {
    fault ??=
      error instanceof ApiError ? error : badRequest(`the body is not zstd: ${(error as Error).message}`);
  }
  if (parts.length > 0) request.body = Buffer.concat(parts);
  if (fault) throw fault;
  return request.body as Buffer;
}

/** The model and number that a refused request names, as far as they can be read; it may have any form. */
export function placeIn({ body, headers, routeOptions }: FastifyRequest) {
  const learns = routeOptions.url?.endsWith('/forward_backward') === true;
  if (!Buffer.isBuffer(body)) {
    const { model_id, seq_id } = (body ?? {}) as { readonly [field: string]: unknown };
    return { model_id, seq_id, learns };
  }
  if (headers['content-type']?.startsWith(PROTOBUF)) {
    const { modelId: model_id, seqId: seq_id, forwardOnly } = placeOf(body);
    return { model_id, seq_id, learns: !forwardOnly };
  }
  const text = body.toString('latin1');
  const [, model_id] = /"model_id"\s*:\s*"([^"]+)"/.exec(text) ?? [];
  const [, seq_id] = /"seq_id"\s*:\s*(\d+)/.exec(text) ?? [];
  return { model_id, seq_id: Number(seq_id), learns };
}

/** True for an operation that was refused before its number was read. JSON that is broken has one only if it says so. */
export function mayHaveNumber({ body, headers, routeOptions }: FastifyRequest, status: number): boolean {
  if (!OPERATIONS.test(routeOptions.url ?? '')) return false;
  if (status !== 400 || !Buffer.isBuffer(body)) return status === 413 || status === 415;
  return headers['content-type']?.startsWith(PROTOBUF) === true || body.includes('"seq_id"');
}
