import protobuf from 'protobufjs';

/** Chunks of a request's prompts and entries of its datums that are read at most: more would fill the memory with small objects. */
const MAX_ENTRIES = 65_536;
/** Dimensions of a tensor that are read at most. */
const MAX_DIMENSIONS = 8;
/** Codes of `DType` in package tinker_public; requests use the first two. */
const DTYPE = { float32: 1, int64: 2, int32: 3 } as const;
const STOP_REASONS = ['stop', 'length'] as const;
const INT32_LIMIT = 2 ** 31;

/** Messages of package tinker_public as SDK 0.38 has them, without fields that neither side uses. */
const { root } = protobuf.parse(
  `syntax = "proto3";
  message LossConfigValue { oneof value { double number = 1; string text = 2; } }
  message EncodedText { bytes tokens = 1; }
  message Chunk { EncodedText encoded_text = 1; }
  message Tensor { bytes dense = 1; int32 dtype = 3; repeated int64 shape = 4; }
  message Datum { repeated Chunk model_input = 1; map<string, Tensor> loss_fn_inputs = 2; }
  message ForwardBackwardRequest {
    string model_id = 1; int32 seq_id = 2; repeated Datum data = 3; string loss_fn = 4;
    map<string, double> loss_fn_config = 5; bool forward_only = 6;
    map<string, LossConfigValue> loss_fn_config_v2 = 7;
  }
  message BatchedTensor { bytes data = 1; bytes offsets = 2; int32 dtype = 3; repeated int64 trailing_shape = 4; }
  message ArrayRecord { string type_tag = 1; map<string, BatchedTensor> fields = 2; int64 num_datums = 3; }
  message ForwardBackwardOutput {
    string loss_fn_output_type = 1; repeated ArrayRecord loss_fn_outputs = 2; map<string, double> metrics = 3;
  }
  message TopkLogprobs { bytes token_ids = 1; bytes logprobs = 2; uint32 k = 3; uint32 length = 4; }
  message SampledSequence {
    int32 stop_reason = 1; bytes tokens = 2; optional bytes logprobs = 3; TopkLogprobs topk_sampled_logprobs = 4;
  }
  message SampleResponse {
    repeated SampledSequence sequences = 1; optional bytes prompt_logprobs = 2;
    TopkLogprobs topk_prompt_logprobs = 3; int32 prompt_cache_hit_tokens = 4;
  }`,
  { keepCase: true },
);

/** A message that the other side cannot have meant: bytes that do not parse, or fields out of range. */
export class TinkerProtocolError extends Error {
  override readonly name = 'TinkerProtocolError';
}

/** Numbers of one or more dimensions, row-major: float32, or int64 that fit int32. */
export interface WireTensor {
  readonly values: Float32Array | Int32Array;
  readonly shape: readonly number[];
}

/** One training sequence: N input tokens, and inputs of the loss with N numbers each. */
export interface WireDatum {
  readonly tokens: Int32Array;
  readonly inputs: ReadonlyMap<string, WireTensor>;
}

/** Body of `forward_backward`; with `forwardOnly` nothing is added to the gradient. */
export interface ForwardBackwardRequest {
  readonly modelId: string;
  readonly seqId: number;
  readonly data: readonly WireDatum[];
  readonly lossFn: string;
  readonly lossConfig: { readonly [name: string]: number | string };
  readonly forwardOnly: boolean;
}

/** Result of `forward_backward`. */
export interface ForwardBackwardOutput {
  /** float32 arrays of each datum by name, such as `logprobs` at each position, in nats. */
  readonly outputs: readonly { readonly [name: string]: Float32Array }[];
  /** Names of the form `name:reduction`. */
  readonly metrics: { readonly [name: string]: number };
}

/** The most probable tokens at `length` positions, `k` each; an empty cell has id 0 and {@link NO_LOGPROB}. */
export interface TopkLogprobs {
  readonly tokenIds: Int32Array;
  readonly logprobs: Float32Array;
  readonly k: number;
  readonly length: number;
}

/** Log-probability in an empty cell of {@link TopkLogprobs}. */
export const NO_LOGPROB = -99999;

/** Result of `asample`. */
export interface SampleResponse {
  readonly sequences: readonly {
    readonly stopReason: (typeof STOP_REASONS)[number];
    readonly tokens: Int32Array;
    /** log p of each token in nats. */
    readonly logprobs: Float32Array | null;
  }[];
  /** log p of each prompt token in nats, NaN where there is none, as of the first; null unless it was asked for. */
  readonly promptLogprobs: Float32Array | null;
  readonly topkPromptLogprobs: TopkLogprobs | null;
}

export function encodeForwardBackwardRequest(request: ForwardBackwardRequest): Uint8Array {
  return encode('ForwardBackwardRequest', {
    model_id: request.modelId,
    seq_id: request.seqId,
    data: request.data.map(({ tokens, inputs }) => ({
      model_input: [{ encoded_text: { tokens: bytesOf(tokens) } }],
      loss_fn_inputs: Object.fromEntries([...inputs].map(([name, tensor]) => [name, wireTensor(tensor)])),
    })),
    loss_fn: request.lossFn,
    ...optional('loss_fn_config_v2', mapped(request.lossConfig, configValue)),
    ...(request.forwardOnly ? { forward_only: true } : {}),
  });
}

/**
 * Reads a request of a client that is not trusted: memory stays in proportion to the bytes. Unknown fields are skipped.
 * @throws TinkerProtocolError naming the field
 */
export function decodeForwardBackwardRequest(bytes: Uint8Array): ForwardBackwardRequest {
  const found = { modelId: '', seqId: 0, data: [] as WireDatum[], lossFn: '', forwardOnly: false };
  const config = new Map<string, number | string>();
  const newer = new Map<string, number | string>();
  const entries = { left: MAX_ENTRIES };
  readMessage(bytes, 'the request', {
    1: reader => {
      found.modelId = reader.string();
    },
    2: reader => {
      found.seqId = reader.int32();
    },
    3: reader => {
      countEntry(entries);
      found.data.push(readDatum(reader.bytes(), `data[${found.data.length}]`, entries));
    },
    4: reader => {
      found.lossFn = reader.string();
    },
    5: reader => {
      countEntry(entries);
      readEntry(reader.bytes(), 'loss_fn_config', (name, value) => config.set(name, value.double()));
    },
    6: reader => {
      found.forwardOnly = reader.bool();
    },
    7: reader => {
      countEntry(entries);
      readEntry(reader.bytes(), 'loss_fn_config_v2', (name, value) => {
        readMessage(value.bytes(), `loss_fn_config_v2.${name}`, {
          1: number => void newer.set(name, number.double()),
          2: text => void newer.set(name, text.string()),
        });
      });
    },
  });
  return { ...found, lossConfig: Object.fromEntries(newer.size > 0 ? newer : config) };
}

export function encodeForwardBackwardOutput({ outputs, metrics }: ForwardBackwardOutput): Uint8Array {
  const names = Object.keys(outputs[0] ?? {});
  const fields = Object.fromEntries(names.map(name => [name, batchedTensor(outputs.map(out => out[name]))]));
  return encode('ForwardBackwardOutput', {
    loss_fn_output_type: 'ArrayRecord',
    ...(outputs.length > 0 ? { loss_fn_outputs: [{ fields, num_datums: outputs.length }] } : {}),
    metrics,
  });
}

/** @throws TinkerProtocolError naming the field */
export function decodeForwardBackwardOutput(bytes: Uint8Array): ForwardBackwardOutput {
  const message = decode<{
    loss_fn_outputs?: { fields?: Record<string, WireBatch>; num_datums?: number }[];
    metrics?: Record<string, number>;
  }>('ForwardBackwardOutput', bytes);
  const outputs = (message.loss_fn_outputs ?? []).flatMap(({ fields = {}, num_datums: count = 0 }) => {
    const columns = Object.entries(fields).map(
      ([name, batch]) => [name, splitBatch(batch, count, name)] as const,
    );
    return Array.from({ length: columns.length > 0 ? count : 0 }, (_, i) =>
      Object.fromEntries(columns.map(([name, arrays]) => [name, arrays[i]])),
    );
  });
  return { outputs, metrics: message.metrics ?? {} };
}

export function encodeSampleResponse(response: SampleResponse): Uint8Array {
  return encode('SampleResponse', {
    sequences: response.sequences.map(({ stopReason, tokens, logprobs }) => ({
      ...(stopReason === 'length' ? { stop_reason: 1 } : {}),
      ...(tokens.length > 0 ? { tokens: bytesOf(tokens) } : {}),
      ...(logprobs ? { logprobs: bytesOf(logprobs) } : {}),
    })),
    ...(response.promptLogprobs ? { prompt_logprobs: bytesOf(response.promptLogprobs) } : {}),
    ...(response.topkPromptLogprobs ? { topk_prompt_logprobs: wireTopk(response.topkPromptLogprobs) } : {}),
  });
}

/** @throws TinkerProtocolError naming the field */
export function decodeSampleResponse(bytes: Uint8Array): SampleResponse {
  const message = decode<{
    sequences?: { stop_reason?: number; tokens?: Uint8Array; logprobs?: Uint8Array }[];
    prompt_logprobs?: Uint8Array;
    topk_prompt_logprobs?: { token_ids?: Uint8Array; logprobs?: Uint8Array; k?: number; length?: number };
  }>('SampleResponse', bytes);
  const { prompt_logprobs: prompt, topk_prompt_logprobs: topk } = message;
  return {
    sequences: (message.sequences ?? []).map(({ stop_reason: reason = 0, tokens, logprobs }, i) => ({
      stopReason: STOP_REASONS[reason] ?? fail(`sequences[${i}].stop_reason`, `is ${reason}, not 0 or 1`),
      tokens: int32Of(tokens, `sequences[${i}].tokens`),
      logprobs: logprobs ? float32Of(logprobs, `sequences[${i}].logprobs`) : null,
    })),
    promptLogprobs: prompt ? float32Of(prompt, 'prompt_logprobs') : null,
    topkPromptLogprobs: topk
      ? {
          tokenIds: int32Of(topk.token_ids, 'topk_prompt_logprobs.token_ids'),
          logprobs: float32Of(topk.logprobs, 'topk_prompt_logprobs.logprobs'),
          k: topk.k ?? 0,
          length: topk.length ?? 0,
        }
      : null,
  };
}

interface WireBatch {
  readonly data?: Uint8Array;
  readonly offsets?: Uint8Array;
  readonly dtype?: number;
}

function readDatum(bytes: Uint8Array, where: string, entries: { left: number }): WireDatum {
  const chunks: Uint8Array[] = [];
  const inputs = new Map<string, WireTensor>();
  readMessage(bytes, where, {
    1: reader => {
      countEntry(entries);
      const refuse = (kind: string) => () =>
        fail(`${where}.model_input`, `has ${kind}: only text is trained on`);
      readMessage(reader.bytes(), `${where}.model_input`, {
        1: text => {
          const tokens = { 1: (own: protobuf.Reader) => void chunks.push(own.bytes()) };
          readMessage(text.bytes(), `${where}.model_input`, tokens);
        },
        2: refuse('an image'),
        3: refuse('audio (dmel)'),
      });
    },
    2: reader => {
      countEntry(entries);
      readEntry(reader.bytes(), `${where}.loss_fn_inputs`, (name, value) => {
        inputs.set(name, readTensor(value.bytes(), `${where}.loss_fn_inputs.${name}`));
      });
    },
  });
  return { tokens: int32Of(Buffer.concat(chunks), `${where}.model_input`), inputs };
}

function readTensor(bytes: Uint8Array, where: string): WireTensor {
  let data: Uint8Array = new Uint8Array();
  let dtype = 0;
  const shape: number[] = [];
  readMessage(bytes, where, {
    1: reader => {
      data = reader.bytes();
    },
    2: () => fail(where, 'is sparse: send a dense tensor with one number for each token'),
    3: reader => {
      dtype = reader.int32();
    },
    4: (reader, wireType) => {
      const end = wireType === 2 ? reader.uint32() + reader.pos : reader.pos + 1;
      while (reader.pos < end) {
        if (shape.length === MAX_DIMENSIONS) fail(where, `has more than ${MAX_DIMENSIONS} dimensions`);
        shape.push(Number(reader.int64()));
      }
    },
  });
  const values =
    dtype === DTYPE.float32
      ? float32Of(data, where)
      : dtype === DTYPE.int64
        ? narrowed(data, where)
        : dtype === DTYPE.int32
          ? int32Of(data, where)
          : fail(where, `has dtype ${dtype}: send float32 (1) or int64 (2)`);
  const own = shape.length > 0 ? shape : [values.length];
  if (own.reduce((size, extent) => size * extent, 1) !== values.length) {
    fail(where, `has ${values.length} numbers, but its shape is [${own.join(', ')}]`);
  }
  return { values, shape: own };
}

/** One of a map's entries; a value that is left out is passed over. */
function readEntry(
  bytes: Uint8Array,
  where: string,
  read: (name: string, value: protobuf.Reader) => void,
): void {
  let name = '';
  readMessage(bytes, where, {
    1: reader => {
      name = reader.string();
    },
    2: reader => read(name, reader),
  });
}

type FieldReaders = {
  readonly [field: number]: ((reader: protobuf.Reader, wireType: number) => void) | undefined;
};

/** Reads the fields of a message that are known, in the order of its bytes. */
function readMessage(bytes: Uint8Array, where: string, readers: FieldReaders): void {
  const reader = protobuf.Reader.create(bytes);
  try {
    while (reader.pos < reader.len) {
      const tag = reader.uint32();
      const read = readers[tag >>> 3];
      if (read === undefined) reader.skipType(tag & 7);
      else read(reader, tag & 7);
    }
  } catch (error) {
    if (error instanceof TinkerProtocolError) throw error;
    fail(where, `is not a protobuf message of tinker_public: ${(error as Error).message}`);
  }
}

function countEntry(entries: { left: number }): void {
  if (entries.left-- === 0) fail('the request', `has more than ${MAX_ENTRIES} datums, chunks and inputs`);
}

function wireTensor({ values, shape }: WireTensor) {
  return values instanceof Float32Array
    ? { dense: bytesOf(values), dtype: DTYPE.float32, shape }
    : { dense: bytesOf(BigInt64Array.from(values, BigInt)), dtype: DTYPE.int64, shape };
}

function configValue(value: number | string) {
  return typeof value === 'number' ? { number: value } : { text: value };
}

function batchedTensor(arrays: readonly Float32Array[]) {
  const offsets = new BigInt64Array(arrays.length + 1);
  arrays.forEach((array, i) => {
    offsets[i + 1] = offsets[i] + BigInt(array.byteLength);
  });
  return { data: Buffer.concat(arrays.map(bytesOf)), offsets: bytesOf(offsets), dtype: DTYPE.float32 };
}

/** The float32 arrays of `count` datums in one batch. */
function splitBatch({ data, offsets, dtype }: WireBatch, count: number, name: string): Float32Array[] {
  if (dtype !== DTYPE.float32) fail(name, `has dtype ${dtype}, not float32 (1)`);
  const values = float32Of(data, name);
  const ends = narrowed(offsets, `${name}.offsets`);
  if (ends.length !== count + 1) fail(`${name}.offsets`, `has ${ends.length} numbers for ${count} datums`);
  return Array.from({ length: count }, (_, i) => values.slice(ends[i] / 4, ends[i + 1] / 4));
}

function wireTopk({ tokenIds, logprobs, k, length }: TopkLogprobs) {
  return { token_ids: bytesOf(tokenIds), logprobs: bytesOf(logprobs), k, length };
}

function encode(type: string, message: { [field: string]: unknown }): Uint8Array {
  return root.lookupType(type).encode(message).finish();
}

function decode<T>(type: string, bytes: Uint8Array): T {
  const known = root.lookupType(type);
  try {
    return known.toObject(known.decode(bytes), { longs: Number }) as T;
  } catch (error) {
    return fail('the reply', `is not a ${type}: ${(error as Error).message}`);
  }
}

const mapped = <A, B>(values: { readonly [name: string]: A }, map: (value: A) => B): { [name: string]: B } =>
  Object.fromEntries(Object.entries(values).map(([name, value]) => [name, map(value)]));

const optional = (name: string, values: object): object =>
  Object.keys(values).length > 0 ? { [name]: values } : {};

function bytesOf({ buffer, byteOffset, byteLength }: ArrayBufferView): Uint8Array {
  return new Uint8Array(buffer, byteOffset, byteLength);
}

/** A copy with the alignment that arrays of numbers take. */
function aligned(bytes: Uint8Array | undefined, width: number, where: string): ArrayBuffer {
  const copy = new Uint8Array(bytes ?? []);
  if (copy.byteLength % width !== 0) fail(where, `has ${copy.byteLength} bytes, not a multiple of ${width}`);
  return copy.buffer;
}

const float32Of = (bytes: Uint8Array | undefined, where: string): Float32Array =>
  new Float32Array(aligned(bytes, 4, where));

const int32Of = (bytes: Uint8Array | undefined, where: string): Int32Array =>
  new Int32Array(aligned(bytes, 4, where));

function narrowed(bytes: Uint8Array | undefined, where: string): Int32Array {
  return Int32Array.from(new BigInt64Array(aligned(bytes, 8, where)), wide => {
    const number = Number(wide);
    return Math.abs(number) < INT32_LIMIT ? number : fail(where, `has ${wide}, which is out of range`);
  });
}

function fail(where: string, what: string): never {
  throw new TinkerProtocolError(`${where.slice(0, 200)} ${what.slice(0, 300)}`);
}
