import type { ParameterStore } from '../../parameter-store.ts';
import type { DeviceArray } from '../../runtime.ts';
import { messageOf, RuntimeError } from '../../runtime-error.ts';
import { ARRAY_USAGE, BUFFER_USAGE, type GpuDevice, MAP_READ } from './device.ts';

const FLOAT_BYTES = 4;
/** Most bytes that are read back at a time. */
const STAGING_BYTES = 2 ** 26;

/** Numbers in a buffer of the device. */
export class GpuArray implements DeviceArray {
  readonly length: number;
  readonly buffer: GPUBuffer;

  constructor(buffer: GPUBuffer) {
    this.buffer = buffer;
    this.length = buffer.size / FLOAT_BYTES;
  }

  /**
   * An array of zeros.
   * @param lasting purpose among the arrays that stay
   * @throws RuntimeError when the device has no room for it
   */
  static async allocate(device: GpuDevice, what: string, length: number, lasting: string): Promise<GpuArray> {
    const size = length * FLOAT_BYTES;
    device.assertAllocatable(what, size);
    const create = () => device.device.createBuffer({ label: what, size, usage: ARRAY_USAGE });
    return new GpuArray(await device.allocating(what, size, create, lasting));
  }

  clear(device: GpuDevice): void {
    const encoder = device.device.createCommandEncoder();
    encoder.clearBuffer(this.buffer);
    device.device.queue.submit([encoder.finish()]);
  }

  destroy(): void {
    this.buffer.destroy();
  }
}

/** Reads arrays back, one after the other through one buffer. */
export async function download(
  device: GpuDevice,
  copies: readonly { readonly from: GpuArray; readonly to: Float32Array }[],
): Promise<void> {
  device.check();
  const most = copies.reduce((size, { to }) => Math.max(size, to.byteLength), 0);
  const size = Math.min(most, STAGING_BYTES);
  const staging = device.device.createBuffer({
    label: 'download',
    size,
    usage: BUFFER_USAGE.mapRead | BUFFER_USAGE.copyTarget,
  });
  for (const { from, to } of copies) {
    for (let start = 0; start < to.byteLength; start += size) {
      const bytes = Math.min(size, to.byteLength - start);
      const encoder = device.device.createCommandEncoder();
      encoder.copyBufferToBuffer(from.buffer, start, staging, 0, bytes);
      device.device.queue.submit([encoder.finish()]);
      await readMapped(device, staging, bytes, range => {
        to.set(new Float32Array(range, 0, bytes / FLOAT_BYTES), start / FLOAT_BYTES);
      });
    }
  }
  staging.destroy();
}

/**
 * Passes the first bytes of a mapped buffer to a reader.
 * @throws RuntimeError when the device does not return them
 */
export async function readMapped(
  device: GpuDevice,
  staging: GPUBuffer,
  bytes: number,
  read: (range: ArrayBuffer) => void,
): Promise<void> {
  await staging.mapAsync(MAP_READ, 0, bytes).catch(async cause => {
    await device.settled();
    device.check();
    throw new RuntimeError(`the GPU did not give the results back: ${messageOf(cause)}`, { cause });
  });
  read(staging.getMappedRange(0, bytes));
  staging.unmap();
}

/** Parameters of a graph on the device. */
export interface DeviceParameters {
  /** @throws RuntimeError when the device has no room for it */
  buffer(name: string): Promise<GPUBuffer>;
  /** Uploads what changed since the last call. */
  refresh(): void;
}

/** Copies of a store's parameters on the device; each is uploaded at its first use, and again after a change. */
export class ResidentParameters implements DeviceParameters {
  readonly #device: GpuDevice;
  readonly #store: ParameterStore;
  readonly #buffers = new Map<string, GPUBuffer>();
  #version: number;

  constructor(device: GpuDevice, store: ParameterStore) {
    this.#device = device;
    this.#store = store;
    this.#version = store.version;
  }

  async buffer(name: string): Promise<GPUBuffer> {
    const known = this.#buffers.get(name);
    if (known !== undefined) return known;
    const { byteLength } = this.#store.array(name);
    this.#device.assertAllocatable(`the parameter '${name}'`, byteLength);
    const create = () =>
      this.#device.device.createBuffer({ label: name, size: byteLength, usage: ARRAY_USAGE });
    const what = `the parameter '${name}'`;
    const buffer = await this.#device.allocating(what, byteLength, create, 'weights and moments');
    this.#buffers.set(name, buffer);
    this.#upload(name, buffer);
    return buffer;
  }

  refresh(): void {
    const { version } = this.#store;
    if (version === this.#version) return;
    this.#version = version;
    for (const [name, buffer] of this.#buffers) this.#upload(name, buffer);
  }

  #upload(name: string, buffer: GPUBuffer): void {
    // The device takes no views of shared memory.
    this.#device.device.queue.writeBuffer(buffer, 0, this.#store.array(name).slice());
  }

  close(): void {
    for (const buffer of this.#buffers.values()) buffer.destroy();
    this.#buffers.clear();
  }
}
