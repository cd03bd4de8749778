import type { ParameterStore } from '../../parameter-store.ts';
import { ARRAY_USAGE, type GpuDevice } from './device.ts';

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
