import { type FileHandle, open, rm } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { isObject, jsonOf } from '../../../shared/json.ts';
import { replaceFile } from '../../../shared/replace-file.ts';
import { readGgufHeader } from '../gguf/gguf-file.ts';
import { isGgufName } from '../gguf/gguf-texts.ts';
import { GgufWeights } from '../gguf/gguf-weights.ts';
import { isThere, openModelFile, readModelText, readModelTextIfThere } from './model-file.ts';
import {
  decodeNumbers,
  encodeNumbers,
  STORED_BYTES,
  type StoredType,
  type WritableType,
} from './stored-numbers.ts';

const SAFETENSORS_INDEX_SUFFIX = '.index.json';

/** Tensors are read and written in chunks of this many bytes, which limits the memory for them. */
const PIECE_BYTES = 4 * 2 ** 20;
/** Longest header, some 100,000 tensors; each takes time and memory before a weight is read. The format's limit is 100 MB. */
const MAX_HEADER_BYTES = 16 * 2 ** 20;
const HEADER_LENGTH_BYTES = 8;
/** The header is padded so that data starts aligned. */
const ALIGNMENT_BYTES = 8;

export class SafetensorsError extends Error {
  override readonly name = 'SafetensorsError';
}

/** Position of a tensor: bytes [start, end) of a file. */
interface StoredTensor {
  readonly name: string;
  readonly type: StoredType;
  readonly shape: readonly number[];
  readonly start: number;
  readonly end: number;
}

type OpenTensor = StoredTensor & { readonly handle: FileHandle };

/**
 * Tensors of one safetensors file or of a sharded set, read one at a time and never all at once.
 *
 * @example
 * await using file = await SafetensorsReader.open('folder/model.safetensors');
 * const weight = await file.read('model.norm.weight');
 */
export class SafetensorsReader {
  readonly tensors: ReadonlyMap<string, OpenTensor>;
  readonly #path: string;

  private constructor(path: string, tensors: ReadonlyMap<string, OpenTensor>) {
    this.#path = path;
    this.tensors = tensors;
  }

  /**
   * Opens `path`, or the shards named by `path` + `.index.json` where the file itself is missing.
   * @throws SafetensorsError when neither is there, or a file is broken
   */
  static async open(path: string): Promise<SafetensorsReader> {
    const index = path + SAFETENSORS_INDEX_SUFFIX;
    if (await isThere(path)) return SafetensorsReader.#openFiles(path, [path]);
    if (!(await isThere(index))) throw new SafetensorsError(`neither ${path} nor ${index} is there`);
    const weightMap = weightMapOf(await readModelText(index), index);
    const shards = [...new Set(Object.values(weightMap))].sort();
    const reader = await SafetensorsReader.#openFiles(
      path,
      shards.map(name => join(dirname(path), name)),
    );
    for (const [name, shard] of Object.entries(weightMap)) {
      if (reader.tensors.has(name)) continue;
      await reader.close();
      throw new SafetensorsError(`${index} places ${name} in ${shard}, which does not hold it`);
    }
    return reader;
  }

  static async #openFiles(path: string, files: readonly string[]): Promise<SafetensorsReader> {
    const tensors = new Map<string, OpenTensor>();
    const reader = new SafetensorsReader(path, tensors);
    try {
      for (const file of files) {
        const handle = await openModelFile(file).catch(error => {
          throw new SafetensorsError(`cannot open ${file}: ${(error as Error).message}`);
        });
        const stored = await readHeader(handle, file).catch(async error => {
          await handle.close();
          throw error;
        });
        const twice = stored.find(({ name }) => tensors.has(name));
        if (twice) {
          await handle.close();
          throw new SafetensorsError(`${file} holds ${twice.name}, as another shard does`);
        }
        for (const tensor of stored) tensors.set(tensor.name, { ...tensor, handle });
        if (stored.length === 0) await handle.close();
      }
    } catch (error) {
      await reader.close();
      throw error;
    }
    return reader;
  }

  /** The tensor as float32, in row-major order; piece by piece into `target` when it is given. */
  async read(name: string, target?: Float32Array): Promise<Float32Array> {
    const tensor = this.tensors.get(name);
    if (tensor === undefined) {
      throw new SafetensorsError(
        `${this.#path} has no tensor ${name}; it has ${[...this.tensors.keys()].join(', ')}`,
      );
    }
    const count = (tensor.end - tensor.start) / STORED_BYTES[tensor.type];
    const out = target ?? new Float32Array(count);
    if (out.length !== count) {
      throw new SafetensorsError(
        `${this.#path}: ${name} has shape [${tensor.shape.join(', ')}], ${count} elements, where ${out.length} are expected`,
      );
    }
    const width = STORED_BYTES[tensor.type];
    const piece = new Uint8Array(Math.min(PIECE_BYTES, tensor.end - tensor.start));
    for (let start = tensor.start; start < tensor.end; start += piece.length) {
      const bytes = piece.subarray(0, Math.min(piece.length, tensor.end - start));
      for (let done = 0; done < bytes.length; ) {
        const { bytesRead } = await tensor.handle.read(bytes, done, bytes.length - done, start + done);
        if (bytesRead === 0) throw new SafetensorsError(`${this.#path} ends inside ${name}`);
        done += bytesRead;
      }
      const first = (start - tensor.start) / width;
      decodeNumbers(bytes, tensor.type, out.subarray(first, first + bytes.length / width));
    }
    return out;
  }

  async close(): Promise<void> {
    const handles = new Set([...this.tensors.values()].map(({ handle }) => handle));
    await Promise.all([...handles].map(handle => handle.close()));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

/** A tensor to write. */
export interface TensorToWrite {
  readonly name: string;
  readonly shape: readonly number[];
  readonly data: Float32Array;
}

/**
 * Writes a safetensors file, one tensor after the other, under a temporary name that is renamed at the end, so a reader
 * sees the old or the new file, never a part.
 * @param type bf16 rounds to nearest even
 */
export async function writeSafetensors(
  path: string,
  tensors: readonly TensorToWrite[],
  { type = 'F32' }: { readonly type?: WritableType } = {},
): Promise<void> {
  const header: Record<string, unknown> = { __metadata__: { format: 'pt' } };
  let offset = 0;
  for (const { name, shape, data } of tensors) {
    const count = shape.reduce((a, b) => a * b, 1);
    if (count !== data.length) {
      throw new SafetensorsError(`${name}: ${data.length} elements do not fill shape [${shape.join(', ')}]`);
    }
    const bytes = count * STORED_BYTES[type];
    header[name] = { dtype: type, shape, data_offsets: [offset, offset + bytes] };
    offset += bytes;
  }
  const text = Buffer.from(JSON.stringify(header));
  const padded = Math.ceil(text.length / ALIGNMENT_BYTES) * ALIGNMENT_BYTES;
  const head = Buffer.alloc(HEADER_LENGTH_BYTES + padded, ' ');
  head.writeBigUInt64LE(BigInt(padded));
  text.copy(head, HEADER_LENGTH_BYTES);
  await replaceFile(path, async temporary => {
    await using handle = await open(temporary, 'w');
    await handle.writeFile(head);
    for (const { data } of tensors) await writeNumbers(handle, data, type);
    await handle.sync();
  });
}

/** Name of a shard: a file of the folder itself. */
const SHARD_NAME = /^[\w.-]+\.safetensors$/;

/**
 * The shard of each tensor by an index file, see {@link SafetensorsReader.open}.
 * @throws SafetensorsError where the text is not an index, or a shard is not a file of the folder
 */
function weightMapOf(text: string, path: string): { readonly [name: string]: string } {
  const json = jsonOf(text, reason => new SafetensorsError(`${path} is not JSON: ${reason}`));
  const map = (json as { readonly weight_map?: unknown } | null)?.weight_map;
  if (typeof map !== 'object' || map === null) throw new SafetensorsError(`${path} has no weight_map`);
  for (const shard of new Set<unknown>(Object.values(map))) {
    if (typeof shard === 'string' && SHARD_NAME.test(shard)) continue;
    throw new SafetensorsError(
      `${path} names the shard ${JSON.stringify(shard)}: a shard is a .safetensors file next to the index`,
    );
  }
  return map as { readonly [name: string]: string };
}

async function readHeader(handle: FileHandle, file: string): Promise<StoredTensor[]> {
  const size = (await handle.stat()).size;
  const prefix = Buffer.alloc(HEADER_LENGTH_BYTES);
  await handle.read(prefix, 0, HEADER_LENGTH_BYTES, 0);
  const length = Number(prefix.readBigUInt64LE());
  if (size < HEADER_LENGTH_BYTES || HEADER_LENGTH_BYTES + length > size) {
    throw new SafetensorsError(
      `${file} is not a safetensors file: header of ${length} bytes in a file of ${size}`,
    );
  }
  if (length > MAX_HEADER_BYTES) {
    throw new SafetensorsError(
      `${file} has a header of ${length} bytes; at most ${MAX_HEADER_BYTES} are read: store the model in shards`,
    );
  }
  const text = Buffer.alloc(length);
  await handle.read(text, 0, length, HEADER_LENGTH_BYTES);
  const header = jsonOf(
    text.toString('utf8'),
    reason => new SafetensorsError(`${file} has a header that is not JSON: ${reason}`),
  );
  if (!isObject(header)) throw new SafetensorsError(`${file} has a header that is no JSON object`);
  const { __metadata__: _, ...entries } = header;
  return Object.entries(entries).map(([name, entry]) =>
    storedTensor(file, size, HEADER_LENGTH_BYTES + length, name, entry),
  );
}

function storedTensor(file: string, size: number, base: number, name: string, entry: unknown): StoredTensor {
  if (!isEntry(entry)) {
    throw new SafetensorsError(
      `${file}: the header's entry of ${name} must have dtype, shape and data_offsets [start, end], all counts integers of at least 0`,
    );
  }
  const { dtype, shape, data_offsets } = entry;
  if (!Object.hasOwn(STORED_BYTES, dtype)) {
    throw new SafetensorsError(
      `${file}: ${name} is stored as ${dtype}; readable are ${Object.keys(STORED_BYTES).join(', ')}`,
    );
  }
  const type = dtype as StoredType;
  const [start, end] = data_offsets;
  const bytes = shape.reduce((a, b) => a * b, 1) * STORED_BYTES[type];
  if (end - start !== bytes || base + end > size) {
    throw new SafetensorsError(
      `${file}: ${name} of shape [${shape.join(', ')}] needs ${bytes} bytes, its place is ${start} to ${end} of ${size - base}`,
    );
  }
  return { name, type, shape, start: base + start, end: base + end };
}

interface HeaderEntry {
  readonly dtype: string;
  readonly shape: readonly number[];
  readonly data_offsets: readonly [start: number, end: number];
}

function isEntry(value: unknown): value is HeaderEntry {
  const { dtype, shape, data_offsets } = (value ?? {}) as { readonly [key: string]: unknown };
  const counts = (list: unknown) =>
    Array.isArray(list) && list.every(count => Number.isSafeInteger(count) && count >= 0);
  return (
    typeof dtype === 'string' &&
    counts(shape) &&
    counts(data_offsets) &&
    (data_offsets as number[]).length === 2
  );
}

async function writeNumbers(handle: FileHandle, data: Float32Array, type: WritableType): Promise<void> {
  const width = STORED_BYTES[type];
  const piece = new Uint8Array(Math.min(PIECE_BYTES, data.length * width));
  for (let first = 0; first < data.length; first += piece.length / width) {
    const part = data.subarray(first, first + piece.length / width);
    encodeNumbers(part, type, piece);
    await handle.writeFile(piece.subarray(0, part.length * width));
  }
}

const EXTENSION = '.safetensors';
/** Default number of bytes in a shard, as in transformers. */
const DEFAULT_SHARD_BYTES = 5e9;
const NUMBER_DIGITS = 5;

/**
 * Writes tensors to `path`, or if they exceed `shardBytes` to numbered files next to it with transformers' names.
 * Writes an index in both cases, by which vLLM recognizes the model's files in the folder. Removes the files of an
 * earlier save of another size under the same name.
 * @param path ends in `.safetensors`
 */
export async function writeShardedSafetensors(
  path: string,
  tensors: readonly TensorToWrite[],
  options: { readonly type?: WritableType; readonly shardBytes?: number } = {},
): Promise<void> {
  const { type = 'F32', shardBytes = DEFAULT_SHARD_BYTES } = options;
  const shards = cutIntoShards(tensors, shardBytes / STORED_BYTES[type]);
  const index = path + SAFETENSORS_INDEX_SUFFIX;
  const before = await shardsOf(index);
  const numbered = (n: number) => String(n).padStart(NUMBER_DIGITS, '0');
  const names = shards.map((_, i) =>
    shards.length === 1
      ? basename(path)
      : `${basename(path, EXTENSION)}-${numbered(i + 1)}-of-${numbered(shards.length)}${EXTENSION}`,
  );
  const weightMap: Record<string, string> = {};
  for (const [i, shard] of shards.entries()) {
    await writeSafetensors(join(dirname(path), names[i]), shard, { type });
    for (const { name } of shard) weightMap[name] = names[i];
  }
  const count = tensors.reduce((sum, { data }) => sum + data.length, 0);
  const json = { metadata: { total_size: count * STORED_BYTES[type] }, weight_map: weightMap };
  await replaceFile(index, `${JSON.stringify(json, null, 2)}\n`);
  if (shards.length > 1) await rm(path, { force: true });
  for (const name of before) if (!names.includes(name)) await rm(join(dirname(path), name), { force: true });
}

/** Tensors in their order, as many to a shard as `most` elements allow; a larger one gets a separate shard. */
function cutIntoShards(tensors: readonly TensorToWrite[], most: number): TensorToWrite[][] {
  const shards: TensorToWrite[][] = [[]];
  let filled = 0;
  for (const tensor of tensors) {
    if (filled > 0 && filled + tensor.data.length > most) {
      shards.push([]);
      filled = 0;
    }
    shards[shards.length - 1].push(tensor);
    filled += tensor.data.length;
  }
  return shards;
}

async function shardsOf(index: string): Promise<string[]> {
  const text = await readModelTextIfThere(index);
  return text === undefined ? [] : [...new Set(Object.values(weightMapOf(text, index)))];
}

/** Weights of a model by Hugging Face name, read one at a time. */
export type WeightsReader = SafetensorsReader | GgufWeights;

/**
 * Opens a model's weights.
 * @param path its safetensors file; if the folder in the path is a GGUF file, the weights of that file
 * @throws SafetensorsError or GgufError for files that are missing or broken
 */
export async function openWeights(path: string): Promise<WeightsReader> {
  const file = dirname(path);
  if (!isGgufName(file)) return SafetensorsReader.open(path);
  const handle = await openModelFile(file).catch(error => {
    // A folder of that name.
    if ((error as Error).name === 'ModelFileError') return null;
    throw error;
  });
  if (handle === null) return SafetensorsReader.open(path);
  try {
    return new GgufWeights(handle, await readGgufHeader(handle, file));
  } catch (error) {
    await handle.close();
    throw error;
  }
}
