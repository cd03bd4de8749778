import { ARRAY_USAGE, type GpuDevice } from './device.ts';

const FLOAT_BYTES = 4;
/** A buffer serves arrays of at least this share of its size. */
const MIN_USE = 0.5;

interface PooledBuffer {
  readonly buffer: GPUBuffer;
  users: number;
}

/**
 * Buffers for intermediate values, shared by all programs of a device: only one program runs at a time, and no value
 * outlives a run. A buffer is freed with its last program.
 */
export class BufferPool {
  readonly #device: GpuDevice;
  #buffers: PooledBuffer[] = [];

  constructor(device: GpuDevice) {
    this.#device = device;
  }

  /** Bytes that are allocated now. */
  get bytes(): number {
    return this.#buffers.reduce((sum, { buffer }) => sum + buffer.size, 0);
  }

  /** A separate buffer for each of these lengths in elements. */
  acquire(lengths: readonly number[]): GPUBuffer[] {
    const taken = new Set<PooledBuffer>();
    const result = new Array<GPUBuffer>(lengths.length);
    const largestFirst = lengths.map((_, i) => i).sort((a, b) => lengths[b] - lengths[a]);
    for (const i of largestFirst) {
      const pooled = this.#find(lengths[i] * FLOAT_BYTES, taken);
      taken.add(pooled);
      pooled.users++;
      result[i] = pooled.buffer;
    }
    return result;
  }

  release(buffers: readonly GPUBuffer[]): void {
    for (const pooled of this.#buffers) if (buffers.includes(pooled.buffer)) pooled.users--;
    for (const { buffer, users } of this.#buffers) if (users === 0) buffer.destroy();
    this.#buffers = this.#buffers.filter(({ users }) => users > 0);
  }

  #find(size: number, taken: ReadonlySet<PooledBuffer>): PooledBuffer {
    const fits = this.#buffers.filter(
      pooled => !taken.has(pooled) && pooled.buffer.size >= size && size >= pooled.buffer.size * MIN_USE,
    );
    if (fits.length > 0) return fits.reduce((a, b) => (b.buffer.size < a.buffer.size ? b : a));
    const buffer = this.#device.device.createBuffer({ label: 'values', size, usage: ARRAY_USAGE });
    const created = { buffer, users: 0 };
    this.#buffers.push(created);
    return created;
  }
}
