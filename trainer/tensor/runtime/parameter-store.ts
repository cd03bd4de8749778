import { type Shape, sameShape, sizeOf } from '../graph/tensor.ts';
import { RuntimeError } from './runtime-error.ts';

const FLOAT_BYTES = 4;
/** Each parameter starts on a new cache line, so that vector loads never straddle two. */
const ALIGNMENT_FLOATS = 16;

export interface ParameterInfo {
  readonly name: string;
  readonly shape: Shape;
  /** Element type of codes of quantized weights; float32 when absent. */
  readonly dtype?: 'int8' | 'uint8';
}

/** A parameter's own memory. */
export type ParameterArray = Float32Array | Int8Array | Uint8Array;

function arrayOver(
  buffer: SharedArrayBuffer,
  offset: number,
  length: number,
  dtype: ParameterInfo['dtype'],
): ParameterArray {
  if (dtype === 'int8') return new Int8Array(buffer, offset, length);
  return dtype === 'uint8'
    ? new Uint8Array(buffer, offset, length)
    : new Float32Array(buffer, offset, length);
}

/** Data with which another thread sees the same parameters; survives `postMessage` without a copy. */
export interface SharedParameters {
  readonly layout: readonly ParameterInfo[];
  readonly buffer: SharedArrayBuffer;
}

/** Source of a graph's parameters: one store, or several that each change separately. */
export interface ParameterSource {
  readonly stores: readonly ParameterStore[];
  /**
   * The store that holds a parameter.
   * @throws RuntimeError when none does
   */
  storeOf(name: string): ParameterStore;
  /**
   * The parameter's own memory, row-major.
   * @throws RuntimeError when the name is unknown or the shape differs
   */
  array(name: string, shape?: Shape): Float32Array;
  /** The same of any element type. */
  data(name: string, shape?: Shape): ParameterArray;
}

/** Joins the parameters of several stores; no name may be in two of them. */
export function joinParameters(...stores: readonly ParameterStore[]): ParameterSource {
  const homes = new Map<string, ParameterStore>();
  for (const store of stores) {
    for (const { name } of store.layout) {
      if (homes.has(name)) throw new RuntimeError(`parameter '${name}' is in two stores`);
      homes.set(name, store);
    }
  }
  const storeOf = (name: string): ParameterStore => {
    const store = homes.get(name);
    if (store !== undefined) return store;
    throw new RuntimeError(`no parameter '${name}' in the stores; they have ${[...homes.keys()].join(', ')}`);
  };
  return {
    stores,
    storeOf,
    array: (name, shape) => storeOf(name).array(name, shape),
    data: (name, shape) => storeOf(name).data(name, shape),
  };
}

/**
 * Named arrays over one SharedArrayBuffer: several threads read and write the same weights. They are float32, or codes of
 * quantized weights.
 * Writing into an array takes effect at the next run of a CPU executable; call {@link touch} after writing so
 * that runtimes with separate memory know to upload.
 *
 * @example
 * const store = new ParameterStore([{ name: 'w', shape: [3, 2] }]);
 * store.array('w').fill(0.1);
 * new Worker(file, { workerData: store.share() }); // there: ParameterStore.fromShared(workerData)
 */
export class ParameterStore implements ParameterSource {
  readonly #layout: readonly ParameterInfo[];
  readonly #buffer: SharedArrayBuffer;
  readonly #version: Int32Array;
  readonly #flat: Float32Array;
  readonly #arrays = new Map<string, { readonly shape: Shape; readonly array: ParameterArray }>();

  constructor(layout: readonly ParameterInfo[], buffer?: SharedArrayBuffer) {
    const offsets: number[] = [];
    let length = ALIGNMENT_FLOATS;
    for (const { shape, dtype } of layout) {
      offsets.push(length);
      const floats = dtype === undefined ? sizeOf(shape) : sizeOf(shape) / FLOAT_BYTES;
      length += Math.ceil(floats / ALIGNMENT_FLOATS) * ALIGNMENT_FLOATS;
    }
    this.#layout = layout.map(({ name, shape, dtype }) => ({
      name,
      shape: [...shape],
      ...(dtype ? { dtype } : {}),
    }));
    this.#buffer = buffer ?? new SharedArrayBuffer(length * FLOAT_BYTES);
    if (this.#buffer.byteLength !== length * FLOAT_BYTES) {
      throw new RuntimeError(
        `the layout needs ${length * FLOAT_BYTES} bytes, the buffer has ${this.#buffer.byteLength}`,
      );
    }
    this.#version = new Int32Array(this.#buffer, 0, 1);
    this.#flat = new Float32Array(this.#buffer, ALIGNMENT_FLOATS * FLOAT_BYTES);
    this.#layout.forEach(({ name, shape, dtype }, i) => {
      if (this.#arrays.has(name)) throw new RuntimeError(`parameter '${name}' is listed twice`);
      const array = arrayOver(this.#buffer, offsets[i] * FLOAT_BYTES, sizeOf(shape), dtype);
      this.#arrays.set(name, { shape, array });
    });
  }

  static fromShared({ layout, buffer }: SharedParameters): ParameterStore {
    return new ParameterStore(layout, buffer);
  }

  share(): SharedParameters {
    return { layout: this.#layout, buffer: this.#buffer };
  }

  get layout(): readonly ParameterInfo[] {
    return this.#layout;
  }

  /** All parameters end to end, with zeros between them; stores of one layout have the same offsets. */
  get flat(): Float32Array {
    return this.#flat;
  }

  /** Number of parameters, in elements. */
  get size(): number {
    return this.#layout.reduce((total, { shape }) => total + sizeOf(shape), 0);
  }

  /** Grows with every {@link touch}; all threads see it. */
  get version(): number {
    return Atomics.load(this.#version, 0);
  }

  touch(): void {
    Atomics.add(this.#version, 0, 1);
  }

  get stores(): readonly ParameterStore[] {
    return [this];
  }

  storeOf(name: string): ParameterStore {
    this.data(name);
    return this;
  }

  has(name: string): boolean {
    return this.#arrays.has(name);
  }

  array(name: string, shape?: Shape): Float32Array {
    const array = this.data(name, shape);
    if (array instanceof Float32Array) return array;
    throw new RuntimeError(`parameter '${name}' holds codes of quantized weights, not numbers`);
  }

  data(name: string, shape?: Shape): ParameterArray {
    const entry = this.#arrays.get(name);
    if (entry === undefined) {
      throw new RuntimeError(
        `no parameter '${name}' in the store; it has ${[...this.#arrays.keys()].join(', ')}`,
      );
    }
    if (shape !== undefined && !sameShape(shape, entry.shape)) {
      throw new RuntimeError(
        `parameter '${name}' has shape [${entry.shape.join(',')}], the graph wants [${shape.join(',')}]`,
      );
    }
    return entry.array;
  }

  /** Elements [start, end) of {@link flat} that are a float32 parameter. */
  spanOf(name: string): readonly [start: number, end: number] {
    const { byteOffset, length } = this.array(name);
    const start = (byteOffset - this.#flat.byteOffset) / FLOAT_BYTES;
    return [start, start + length];
  }

  /** A store of the same layout, zeroed: gradients, moments, a snapshot's target. */
  emptyLike(): ParameterStore {
    return new ParameterStore(this.#layout);
  }
}
