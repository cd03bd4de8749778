import { readFileSync } from 'node:fs';
import protobuf from 'protobufjs';

/**
 * Most fields that are read: of a request with its datums, and of a chunk or tensor; also most dimensions of a tensor.
 */
const MAX_ENTRIES = 65_536;
const MAX_FIELDS = 64;
const MAX_DIMENSIONS = 8;
const STOP_REASONS = ['stop', 'length'] as const;
const INT32_LIMIT = 2 ** 31;
/** Codes of `DType` in package tinker_public; requests use the first two. */
const DTYPE = { float32: 1, int64: 2, int32: 3 } as const;

/** Tags of fields of `ForwardBackwardRequest`: 8 × number + wire type. */
const MODEL_ID_TAG = 8 + 2;
const SEQ_ID_TAG = 2 * 8;
const FORWARD_ONLY_TAG = 6 * 8;

/** Messages of package tinker_public. */
const { root } = protobuf.parse(readFileSync(new URL('tinker_public.proto', import.meta.url), 'utf8'));

type Named<T> = { readonly [name: string]: T };
/** A decoded message: its arrays of numbers are bytes. */
type Raw<T> = T extends ArrayBufferView
  ? Uint8Array
  : T extends object
    ? { readonly [K in keyof T]: Raw<T[K]> }
    : T;

/** An invalid message: bytes that do not parse, or fields out of range. */
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

/** Body of `forward_backward`; with `forwardOnly` the gradient stays unchanged. */
export interface ForwardBackwardRequest {
  readonly modelId: string;
  readonly seqId: number;
  readonly data: readonly WireDatum[];
  readonly lossFn: string;
  readonly lossConfig: Named<number | string>;
  readonly forwardOnly: boolean;
}

/** Result of `forward_backward`. */
export interface ForwardBackwardOutput {
  /** float32 arrays of each datum by name, such as `logprobs` at each position, in nats. */
  readonly outputs: readonly Named<Float32Array>[];
  /** Names of the form `name:reduction`. */
  readonly metrics: Named<number>;
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
  /** log p of each prompt token in nats, NaN where undefined, as for the first; null unless requested. */
  readonly promptLogprobs: Float32Array | null;
  readonly topkPromptLogprobs: TopkLogprobs | null;
}

export function encodeForwardBackwardRequest(request: ForwardBackwardRequest): Uint8Array {
  const { data, lossConfig, forwardOnly, ...plain } = request;
  const datum = ({ tokens, inputs }: WireDatum) =>
    encode('Datum', {
      modelInput: [encode('Chunk', { encodedText: { tokens: bytesOf(tokens) } })],
      lossFnInputs: Object.fromEntries([...inputs].map(([name, tensor]) => [name, encodeTensor(tensor)])),
    });
  const config = mapped(lossConfig, value => ({ [typeof value === 'number' ? 'number' : 'text']: value }));
  const more = { forwardOnly: forwardOnly || undefined, lossFnConfigV2: config };
  return encode('ForwardBackwardRequest', { ...plain, data: data.map(datum), ...more });
}

function encodeTensor({ values, shape }: WireTensor): Uint8Array {
  const isFloat = values instanceof Float32Array;
  const dense = bytesOf(isFloat ? values : BigInt64Array.from(values, BigInt));
  return encode('Tensor', { dense, dtype: isFloat ? DTYPE.float32 : DTYPE.int64, shape });
}

/**
 * Reads a request of an untrusted client: memory stays in proportion to the bytes. Unknown fields are skipped.
 * @throws TinkerProtocolError naming the field
 */
export function decodeForwardBackwardRequest(bytes: Uint8Array): ForwardBackwardRequest {
  type Request = Omit<ForwardBackwardRequest, 'data' | 'lossConfig'> & {
    readonly data: readonly Uint8Array[];
    readonly lossFnConfig: Named<number>;
    readonly lossFnConfigV2: Named<{ readonly number?: number; readonly text?: string }>;
  };
  const fields = { left: MAX_ENTRIES, what: `${MAX_ENTRIES} datums, chunks and inputs` };
  const request = decode<Request>('ForwardBackwardRequest', bytes, 'the request', fields);
  const { data, lossFnConfig, lossFnConfigV2, ...plain } = request;
  const newer = mapped(lossFnConfigV2, ({ number, text }) => number ?? text ?? '');
  return {
    ...plain,
    data: data.map((datum, i) => decodeDatum(datum, `data[${i}]`, fields)),
    lossConfig: Object.keys(newer).length > 0 ? newer : lossFnConfig,
  };
}

/**
 * The place of a request that does not decode, as far as it can be read: '' and 0 where it names none. Fields that follow
 * {@link MAX_ENTRIES} others are not looked for.
 */
export function placeOf(
  bytes: Uint8Array,
): Pick<ForwardBackwardRequest, 'modelId' | 'seqId' | 'forwardOnly'> {
  const reader = protobuf.Reader.create(bytes);
  const place = { modelId: '', seqId: 0, forwardOnly: false };
  try {
    for (let left = MAX_ENTRIES; left > 0 && reader.pos < reader.len; left--) {
      const tag = reader.uint32();
      if (tag === MODEL_ID_TAG) place.modelId = reader.string();
      else if (tag === SEQ_ID_TAG) place.seqId = reader.int32();
      else if (tag === FORWARD_ONLY_TAG) place.forwardOnly = reader.bool();
      else reader.skipType(tag & 7);
    }
  } catch {
    // What follows cannot be read.
  }
  return place;
}

function decodeDatum(bytes: Uint8Array, where: string, fields: FieldLimit): WireDatum {
  type Datum = { readonly modelInput: readonly Uint8Array[]; readonly lossFnInputs: Named<Uint8Array> };
  type Chunk = Partial<Record<'image' | 'dmel', Uint8Array>> & {
    readonly encodedText: Named<Uint8Array> | null;
  };
  const { modelInput, lossFnInputs } = decode<Datum>('Datum', bytes, where, fields);
  const place = `${where}.model_input`;
  const chunks = modelInput.map(chunk => {
    const { encodedText, image, dmel } = decode<Chunk>('Chunk', chunk, place, fewFields());
    if (!image && !dmel) return encodedText?.tokens ?? new Uint8Array();
    return fail(place, `has ${image ? 'an image' : 'audio (dmel)'}: only text is trained on`);
  });
  const inputs = mapped(lossFnInputs, (tensor, name) =>
    decodeTensor(tensor, `${where}.loss_fn_inputs.${name}`),
  );
  return { tokens: int32Of(Buffer.concat(chunks), place), inputs: new Map(Object.entries(inputs)) };
}

function decodeTensor(bytes: Uint8Array, where: string): WireTensor {
  type Tensor = { dense: Uint8Array; sparseCsr?: Uint8Array; dtype: number; shape: readonly number[] };
  const { dense, sparseCsr, dtype, shape } = decode<Tensor>('Tensor', bytes, where, fewFields());
  if (sparseCsr) fail(where, 'is sparse: send a dense tensor with one number for each token');
  const read = { [DTYPE.float32]: float32Of, [DTYPE.int64]: narrowed, [DTYPE.int32]: int32Of }[dtype];
  if (read === undefined) fail(where, `has dtype ${dtype}: send float32 (1) or int64 (2)`);
  const values = read(dense, where);
  const own = shape.length > 0 ? shape : [values.length];
  if (own.reduce((size, extent) => size * extent, 1) !== values.length) {
    fail(where, `has ${values.length} numbers, but its shape is [${own.join(', ')}]`);
  }
  return { values, shape: own };
}

export function encodeForwardBackwardOutput({ outputs, metrics }: ForwardBackwardOutput): Uint8Array {
  const fields = mapped(outputs[0] ?? {}, (_, name) => {
    const arrays = outputs.map(output => bytesOf(output[name]));
    const offsets = new BigInt64Array(arrays.length + 1);
    for (const [i, { length }] of arrays.entries()) offsets[i + 1] = offsets[i] + BigInt(length);
    return { data: Buffer.concat(arrays), offsets: bytesOf(offsets), dtype: DTYPE.float32 };
  });
  const lossFnOutputs = outputs.length > 0 ? [{ fields, numDatums: outputs.length }] : [];
  return encode('ForwardBackwardOutput', { lossFnOutputType: 'ArrayRecord', lossFnOutputs, metrics });
}

/** @throws TinkerProtocolError naming the field */
export function decodeForwardBackwardOutput(bytes: Uint8Array): ForwardBackwardOutput {
  type Batch = { readonly data: Uint8Array; readonly offsets: Uint8Array; readonly dtype: number };
  type Output = {
    readonly lossFnOutputs: readonly { readonly fields: Named<Batch>; readonly numDatums: number }[];
    readonly metrics: Named<number>;
  };
  const { lossFnOutputs, metrics } = decode<Output>('ForwardBackwardOutput', bytes, 'the reply');
  const outputs = lossFnOutputs.flatMap(({ fields, numDatums: count }) => {
    const columns = mapped(fields, ({ data, offsets, dtype }, name) => {
      if (dtype !== DTYPE.float32) fail(name, `has dtype ${dtype}, not float32 (1)`);
      const ends = narrowed(offsets, `${name}.offsets`);
      if (ends.length !== count + 1)
        fail(`${name}.offsets`, `has ${ends.length} numbers for ${count} datums`);
      const values = float32Of(data, name);
      return Array.from({ length: count }, (_, i) => values.slice(ends[i] / 4, ends[i + 1] / 4));
    });
    const length = Object.keys(columns).length > 0 ? count : 0;
    return Array.from({ length }, (_, i) => mapped(columns, arrays => arrays[i]));
  });
  return { outputs, metrics };
}

export function encodeSampleResponse({ sequences, ...prompt }: SampleResponse): Uint8Array {
  const { promptLogprobs, topkPromptLogprobs: top } = prompt;
  return encode('SampleResponse', {
    sequences: sequences.map(({ stopReason, tokens, logprobs }) => ({
      stopReason: STOP_REASONS.indexOf(stopReason) || undefined,
      tokens: bytesOf(tokens),
      logprobs: logprobs && bytesOf(logprobs),
    })),
    promptLogprobs: promptLogprobs && bytesOf(promptLogprobs),
    topkPromptLogprobs: top && { ...top, tokenIds: bytesOf(top.tokenIds), logprobs: bytesOf(top.logprobs) },
  });
}

/** @throws TinkerProtocolError naming the field */
export function decodeSampleResponse(bytes: Uint8Array): SampleResponse {
  const reply = decode<Raw<SampleResponse>>('SampleResponse', bytes, 'the reply');
  const { sequences, promptLogprobs, topkPromptLogprobs: top } = reply;
  return {
    sequences: sequences.map(({ stopReason: code, tokens, logprobs }, i) => ({
      stopReason: STOP_REASONS[Number(code)] ?? fail(`sequences[${i}].stop_reason`, `is ${code}, not 0 or 1`),
      tokens: int32Of(tokens, `sequences[${i}].tokens`),
      logprobs: logprobs ? float32Of(logprobs, `sequences[${i}].logprobs`) : null,
    })),
    promptLogprobs: promptLogprobs ? float32Of(promptLogprobs, 'prompt_logprobs') : null,
    topkPromptLogprobs: top && {
      ...top,
      tokenIds: int32Of(top.tokenIds, 'topk_prompt_logprobs.token_ids'),
      logprobs: float32Of(top.logprobs, 'topk_prompt_logprobs.logprobs'),
    },
  };
}

/** Fields that may still be read, and what they are in words. */
interface FieldLimit {
  left: number;
  readonly what: string;
}
const fewFields = (): FieldLimit => ({ left: MAX_FIELDS, what: `${MAX_FIELDS} fields` });

/** Reader of a message that is not trusted: fields and dimensions are objects in memory, or cost time. */
class LimitedReader extends protobuf.Reader {
  readonly #where: string;
  readonly #fields: FieldLimit;
  #dimensions = 0;

  constructor(bytes: Uint8Array, where: string, fields: FieldLimit) {
    super(bytes);
    this.#where = where;
    this.#fields = fields;
  }

  override tag(): number {
    if (this.#fields.left-- === 0) fail(this.#where, `has more than ${this.#fields.what}`);
    return super.tag();
  }

  override int64(): protobuf.Long {
    if (this.#dimensions++ < MAX_DIMENSIONS) return super.int64();
    return fail(this.#where, `has more than ${MAX_DIMENSIONS} dimensions`);
  }
}

const encode = (type: string, message: Named<unknown>): Uint8Array =>
  root.lookupType(type).encode(message).finish();

/** @param fields absent: no limit */
function decode<Message>(type: string, bytes: Uint8Array, where: string, fields?: FieldLimit): Message {
  const known = root.lookupType(type);
  try {
    const reader = fields ? new LimitedReader(bytes, where, fields) : bytes;
    return known.toObject(known.decode(reader), { longs: Number, defaults: true }) as Message;
  } catch (error) {
    if (error instanceof TinkerProtocolError) throw error;
    const what = fields ? 'protobuf message of tinker_public' : type;
    return fail(where, `is not a ${what}: ${(error as Error).message}`);
  }
}

const mapped = <A, B>(values: Named<A>, map: (value: A, name: string) => B): Named<B> =>
  Object.fromEntries(Object.entries(values).map(([name, value]) => [name, map(value, name)]));

const bytesOf = ({ buffer, byteOffset, byteLength }: ArrayBufferView): Uint8Array =>
  new Uint8Array(buffer, byteOffset, byteLength);

/** A copy with the alignment that arrays of numbers take. */
function aligned(bytes: Uint8Array, width: number, where: string): ArrayBuffer {
  const copy = new Uint8Array(bytes);
  if (copy.byteLength % width !== 0) fail(where, `has ${copy.byteLength} bytes, not a multiple of ${width}`);
  return copy.buffer;
}

const float32Of = (bytes: Uint8Array, where: string) => new Float32Array(aligned(bytes, 4, where));
const int32Of = (bytes: Uint8Array, where: string) => new Int32Array(aligned(bytes, 4, where));
const narrowed = (bytes: Uint8Array, where: string) =>
  Int32Array.from(new BigInt64Array(aligned(bytes, 8, where)), wide =>
    Math.abs(Number(wide)) < INT32_LIMIT ? Number(wide) : fail(where, `has ${wide}, which is out of range`),
  );

function fail(where: string, what: string): never {
  throw new TinkerProtocolError(`${where.slice(0, 200)} ${what.slice(0, 300)}`);
}
