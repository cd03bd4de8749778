import type { FileHandle } from 'node:fs/promises';
import { BLOCK_FORMATS, type BlockType, TYPE_NAMES } from './blocks.ts';

/** A GGUF file that is broken, hostile or of an unsupported kind; the message says where and what would be right. */
export class GgufError extends Error {
  override readonly name = 'GgufError';
}

/** A metadata value; lists of numbers are typed arrays. */
type GgufValue = string | number | boolean | readonly string[] | ArrayLike<number>;

/** A stored tensor; its bytes are [start, end) of the file. */
export interface GgufTensor {
  readonly name: string;
  readonly type: BlockType;
  /** Outermost dimension first, as in Hugging Face; GGUF writes the innermost first. */
  readonly shape: readonly number[];
  readonly start: number;
  readonly end: number;
}

/** The part of a GGUF file in front of the tensors' data. */
export interface GgufHeader {
  readonly path: string;
  readonly metadata: ReadonlyMap<string, GgufValue>;
  readonly tensors: ReadonlyMap<string, GgufTensor>;
}

const MAGIC = 'GGUF';
/** Supported versions, with 64-bit counts; the first had 32-bit ones and is no longer used. */
const VERSIONS = [2, 3];
/** Most bytes in front of the tensors, several times those of the largest vocabulary. */
const MAX_HEADER_BYTES = 256 * 2 ** 20;
/** Bytes of the first read; longer headers are read again with twice as many. */
const FIRST_BYTES = 8 * 2 ** 20;
const MAX_KEYS = 2 ** 16;
const MAX_TENSORS = 2 ** 17;
const MAX_DIMENSIONS = 4;
const MAX_NAME_BYTES = 256;
const DEFAULT_ALIGNMENT = 32;
const MAX_ALIGNMENT = 2 ** 20;
/** Smallest element of a list of texts: its length. */
const TEXT_LENGTH_BYTES = 8;

const TEXT = 8;
const LIST = 9;
const BOOLEAN = 7;
/** Types of numbers, by GGUF's number. */
const NUMBERS = {
  ...{ 0: Uint8Array, 1: Int8Array, 2: Uint16Array, 3: Int16Array, 4: Uint32Array, 5: Int32Array },
  ...{ 6: Float32Array, [BOOLEAN]: Uint8Array, 10: BigUint64Array, 11: BigInt64Array, 12: Float64Array },
} as const;
const arrayOf = (type: number): (typeof NUMBERS)[keyof typeof NUMBERS] | undefined =>
  NUMBERS[type as keyof typeof NUMBERS];

/**
 * Reads the header of a GGUF file (ggml's `docs/gguf.md`). Counts, lengths, offsets and overlaps are checked against the file
 * before anything is allocated for them.
 * @throws GgufError naming the file and the part
 */
export async function readGgufHeader(handle: FileHandle, path: string): Promise<GgufHeader> {
  const { size } = await handle.stat();
  const most = Math.min(size, MAX_HEADER_BYTES);
  for (let length = Math.min(most, FIRST_BYTES); ; length = Math.min(most, 2 * length)) {
    const bytes = Buffer.allocUnsafe(length);
    await readFully(handle, bytes, 0, path);
    try {
      return new HeaderParser(bytes, size, path).parse();
    } catch (error) {
      if (!(error instanceof EndOfBytes)) throw error;
      if (length < most) continue;
      const where = size > most ? `its header has more than ${MAX_HEADER_BYTES} bytes` : 'it ends inside';
      throw new GgufError(`${path} is not a whole GGUF file: ${where} ${error.message}`);
    }
  }
}

/** @throws GgufError where the file ends before `bytes` are full */
export async function readFully(
  handle: FileHandle,
  bytes: Uint8Array,
  start: number,
  path: string,
): Promise<void> {
  for (let done = 0; done < bytes.length; ) {
    const { bytesRead } = await handle.read(bytes, done, bytes.length - done, start + done);
    if (bytesRead === 0)
      throw new GgufError(`${path} ends at byte ${start + done}, in the middle of a tensor`);
    done += bytesRead;
  }
}

/** The header continues after the bytes read so far. */
class EndOfBytes extends Error {}

class HeaderParser {
  readonly #bytes: Buffer;
  readonly #size: number;
  readonly #path: string;
  #at = 0;
  #part = 'the first bytes';

  constructor(bytes: Buffer, size: number, path: string) {
    this.#bytes = bytes;
    this.#size = size;
    this.#path = path;
  }

  parse(): GgufHeader {
    if (this.#size < MAGIC.length || this.#bytes.toString('latin1', 0, MAGIC.length) !== MAGIC) {
      throw new GgufError(`${this.#path} is not a GGUF file: it does not begin with ${MAGIC}`);
    }
    this.#at = MAGIC.length;
    const version = this.#bytes.readUInt32LE(this.#take(4));
    if (!VERSIONS.includes(version)) {
      const swapped = version > 0xffff ? ' (a big-endian file)' : '';
      this.#refuse(`version ${version}${swapped} is not read; versions ${VERSIONS.join(' and ')} are`);
    }
    const tensors = this.#count('tensors', MAX_TENSORS);
    const metadata = this.#metadata(this.#count('keys of metadata', MAX_KEYS));
    return { path: this.#path, metadata, tensors: this.#tensors(tensors, metadata) };
  }

  #metadata(keys: number): Map<string, GgufValue> {
    const metadata = new Map<string, GgufValue>();
    for (let i = 0; i < keys; i++) {
      this.#part = `metadata key ${i + 1} of ${keys}`;
      const key = this.#name();
      this.#part = `the metadata ${JSON.stringify(key)}`;
      if (metadata.has(key)) this.#refuse('is there twice');
      const type = this.#bytes.readUInt32LE(this.#take(4));
      metadata.set(key, type === TEXT ? this.#text() : type === LIST ? this.#list() : this.#number(type));
    }
    return metadata;
  }

  #tensors(count: number, metadata: ReadonlyMap<string, GgufValue>): Map<string, GgufTensor> {
    const infos = Array.from({ length: count }, (_, i) => {
      this.#part = `tensor ${i + 1} of ${count}`;
      const name = this.#name();
      this.#part = `tensor ${JSON.stringify(name)}`;
      const dimensions = this.#bytes.readUInt32LE(this.#take(4));
      if (dimensions < 1 || dimensions > MAX_DIMENSIONS) {
        this.#refuse(`has ${dimensions} dimensions, and must have 1 to ${MAX_DIMENSIONS}`);
      }
      const shape = Array.from({ length: dimensions }, () => this.#count('elements', 2 ** 40)).reverse();
      const type = this.#bytes.readUInt32LE(this.#take(4));
      const bytes = this.#tensorBytes(type, shape);
      return { name, type: TYPE_NAMES[type] as BlockType, shape, bytes, offset: this.#whole() };
    });
    const alignment = metadata.get('general.alignment') ?? DEFAULT_ALIGNMENT;
    this.#part = '"general.alignment"';
    if (typeof alignment !== 'number' || !(alignment >= 1 && alignment <= MAX_ALIGNMENT)) {
      this.#refuse(`must be a number of bytes from 1 to ${MAX_ALIGNMENT}`);
    }
    const base = Math.ceil(this.#at / alignment) * alignment;
    const tensors = new Map<string, GgufTensor>();
    for (const { name, type, shape, bytes, offset } of infos) {
      this.#part = `tensor ${JSON.stringify(name)}`;
      if (tensors.has(name)) this.#refuse('is there twice');
      const [start, end] = [base + offset, base + offset + bytes];
      if (offset % alignment !== 0) this.#refuse(`begins at ${offset}, no multiple of ${alignment} bytes`);
      if (end > this.#size) this.#refuse(`needs bytes ${start} to ${end} of a file of ${this.#size}`);
      tensors.set(name, { name, type, shape, start, end });
    }
    const ordered = [...tensors.values()].sort((a, b) => a.start - b.start);
    for (const [i, { name, start }] of ordered.entries()) {
      if (i === 0 || ordered[i - 1].end <= start) continue;
      this.#part = `tensor ${JSON.stringify(name)}`;
      this.#refuse(`shares bytes with ${JSON.stringify(ordered[i - 1].name)}`);
    }
    return tensors;
  }

  #tensorBytes(type: number, shape: readonly number[]): number {
    const name = TYPE_NAMES[type] ?? `type ${type}`;
    const format = BLOCK_FORMATS[name as BlockType];
    if (format === undefined) {
      this.#refuse(
        `is stored as ${name}, which is not read; readable are ${Object.keys(BLOCK_FORMATS).join(', ')}`,
      );
    }
    const row = shape[shape.length - 1];
    if (row % format.elements !== 0) {
      this.#refuse(`has rows of ${row} elements, no multiple of the ${format.elements} of a ${name} block`);
    }
    const elements = shape.reduce((a, b) => a * b, 1);
    if (!Number.isSafeInteger(elements) || elements === 0) {
      this.#refuse(`has shape [${shape.join(', ')}]`);
    }
    return (elements / format.elements) * format.bytes;
  }

  #number(type: number): number | boolean {
    const value = this.#numbers(type, 1)[0];
    return type === BOOLEAN ? value !== 0 : value;
  }

  #list(): readonly string[] | ArrayLike<number> {
    const type = this.#bytes.readUInt32LE(this.#take(4));
    if (type === LIST) this.#refuse('is a list of lists, which is not read');
    const each = type === TEXT ? TEXT_LENGTH_BYTES : (arrayOf(type)?.BYTES_PER_ELEMENT ?? 1);
    const count = this.#count('elements', Math.floor(MAX_HEADER_BYTES / each));
    if (type !== TEXT) return this.#numbers(type, count);
    // Checked before anything is allocated: a count without its texts costs nothing.
    if (this.#at + count * TEXT_LENGTH_BYTES > this.#bytes.length) throw new EndOfBytes(this.#part);
    return Array.from({ length: count }, () => this.#text());
  }

  #numbers(type: number, count: number): ArrayLike<number> {
    const NumberArray = arrayOf(type);
    if (NumberArray === undefined) this.#refuse(`has type ${type}, which GGUF does not have`);
    const bytes = count * NumberArray.BYTES_PER_ELEMENT;
    const start = this.#take(bytes);
    const values = new NumberArray(new Uint8Array(this.#bytes.subarray(start, start + bytes)).buffer);
    return typeof values[0] === 'bigint'
      ? Array.from(values as ArrayLike<bigint>, value => this.#safe(value))
      : (values as ArrayLike<number>);
  }

  #name(): string {
    const name = this.#text(MAX_NAME_BYTES);
    if (name === '' || /\p{Cc}/u.test(name)) this.#refuse(`has the name ${JSON.stringify(name)}`);
    return name;
  }

  #text(most: number = MAX_HEADER_BYTES): string {
    const length = this.#count('bytes of text', most);
    const start = this.#take(length);
    return this.#bytes.toString('utf8', start, start + length);
  }

  #count(what: string, most: number): number {
    const count = this.#whole();
    if (count > most) this.#refuse(`has ${count} ${what}; at most ${most} are read`);
    return count;
  }

  #whole(): number {
    return this.#safe(this.#bytes.readBigUInt64LE(this.#take(8)));
  }

  #safe(value: bigint): number {
    if (value > BigInt(Number.MAX_SAFE_INTEGER) || value < BigInt(Number.MIN_SAFE_INTEGER)) {
      this.#refuse(`holds the number ${value}, larger than any file`);
    }
    return Number(value);
  }

  /** Moves on by this many bytes. @returns where they begin */
  #take(bytes: number): number {
    const start = this.#at;
    if (start + bytes > this.#bytes.length) throw new EndOfBytes(this.#part);
    this.#at = start + bytes;
    return start;
  }

  #refuse(problem: string): never {
    throw new GgufError(`${this.#path}: ${this.#part} ${problem}`);
  }
}
