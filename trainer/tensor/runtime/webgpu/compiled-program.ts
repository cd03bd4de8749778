import type { TypedArray } from '../../graph/tensor.ts';
import type { Tensors } from '../runtime.ts';
import { ARRAY_USAGE, BUFFER_USAGE, type GpuDevice } from './device/device.ts';
import { readMapped } from './device/gpu-array.ts';
import {
  type DeviceValue,
  type KernelDispatch,
  type Program,
  startOf,
  type Workgroups,
  wholeOf,
} from './lowering/program.ts';

/** Free memory serves arrays of at least this share of its size. */
const MIN_USE = 0.5;

/** The smallest of the free places that hold this much without wasting more than half; undefined where none does. */
function bestFit<T>(free: readonly T[], sizeOf: (place: T) => number, size: number): T | undefined {
  const fits = free.filter(place => sizeOf(place) >= size && size >= sizeOf(place) * MIN_USE);
  return fits.length === 0 ? undefined : fits.reduce((a, b) => (sizeOf(b) < sizeOf(a) ? b : a));
}

/** Assignment of a program's arrays to shared memory. */
interface SlotPlan {
  /** Lengths in elements. */
  readonly slots: readonly number[];
  /** Slot of every array that is neither an input, a parameter nor a constant. */
  readonly slotOf: ReadonlyMap<DeviceValue, number>;
}

/**
 * Assigns the same slot to arrays that are never needed at the same time. An array lives from the first step that
 * touches it to the last; outputs live until the end.
 */
export function planSlots(program: Program): SlotPlan {
  const fixed = new Set<DeviceValue>([
    ...program.inputs.values(),
    ...program.parameters.values(),
    ...program.constants.keys(),
  ]);
  const lastUse = new Map<DeviceValue, number>();
  program.steps.forEach((step, index) => {
    for (const value of arraysOf(step)) lastUse.set(value, index);
  });
  for (const value of program.outputs.values()) lastUse.set(value, program.steps.length);

  const slots: number[] = [];
  const free: number[] = [];
  const slotOf = new Map<DeviceValue, number>();
  const take = (length: number): number => {
    const best = bestFit(free, slot => slots[slot], length);
    if (best === undefined) return slots.push(length) - 1;
    free.splice(free.indexOf(best), 1);
    return best;
  };
  program.steps.forEach((step, index) => {
    const touched = new Set(arraysOf(step).filter(value => !fixed.has(value)));
    for (const value of touched) if (!slotOf.has(value)) slotOf.set(value, take(value.length));
    for (const value of touched) if (lastUse.get(value) === index) free.push(slotOf.get(value)!);
  });
  return { slots, slotOf };
}

function arraysOf({ reads, writes }: KernelDispatch): DeviceValue[] {
  return [...reads, ...writes].map(wholeOf);
}

const FLOAT_BYTES = 4;

/** State that the programs of a runtime share. */
export interface ProgramContext {
  readonly device: GpuDevice;
  readonly pool: BufferPool;
}

interface Dispatch {
  readonly pipeline: GPUComputePipeline;
  readonly bindings: GPUBindGroup;
  readonly groups: Workgroups;
}

/** Position of an output in the buffer that the processor reads. */
interface ReadBack {
  readonly name: string;
  readonly source: GPUBuffer;
  readonly offset: number;
  readonly length: number;
}

interface CompiledParts {
  /** All buffers that belong to this program alone. */
  readonly buffers: readonly GPUBuffer[];
  readonly slots: readonly GPUBuffer[];
  readonly inputs: ReadonlyMap<string, GPUBuffer>;
  readonly dispatches: readonly Dispatch[];
  readonly readBacks: readonly ReadBack[];
  readonly staging: GPUBuffer | null;
  readonly readBytes: number;
}

/** A program on the device: buffers and bindings made once, every run one command buffer and at most one read-back. */
export class CompiledProgram {
  readonly #place: ProgramContext;
  readonly #parts: CompiledParts;
  #disposed = false;

  private constructor(place: ProgramContext, parts: CompiledParts) {
    this.#place = place;
    this.#parts = parts;
  }

  /** @param resident buffers that stay on the device: of parameters, and of inputs that are not uploaded at every run */
  static async build(
    program: Program,
    place: ProgramContext,
    resident: ReadonlyMap<DeviceValue, GPUBuffer>,
  ): Promise<CompiledProgram> {
    return new CompiledProgram(place, await build(program, place, resident));
  }

  /**
   * Runs once; inputs that are not resident are uploaded first.
   * @param outputs receives the results
   */
  async run(inputs: Tensors, outputs: Tensors): Promise<void> {
    const { device } = this.#place;
    const { readBacks, staging, readBytes } = this.#parts;
    device.check();
    const { queue } = device.device;
    for (const [name, buffer] of this.#parts.inputs) queue.writeBuffer(buffer, 0, toFloats(inputs[name]));
    queue.submit([this.#encode()]);
    if (staging === null) return;
    await readMapped(device, staging, readBytes, range => {
      for (const { name, offset, length } of readBacks) {
        (outputs[name] as TypedArray).set(new Float32Array(range, offset, length));
      }
    });
    device.check();
  }

  #encode(): GPUCommandBuffer {
    const { dispatches, readBacks, staging } = this.#parts;
    const encoder = this.#place.device.device.createCommandEncoder();
    const pass = encoder.beginComputePass();
    for (const { pipeline, bindings, groups } of dispatches) {
      pass.setPipeline(pipeline);
      pass.setBindGroup(0, bindings);
      pass.dispatchWorkgroups(...groups);
    }
    pass.end();
    for (const { source, offset, length } of readBacks) {
      encoder.copyBufferToBuffer(source, 0, staging!, offset, length * FLOAT_BYTES);
    }
    return encoder.finish();
  }

  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    for (const buffer of this.#parts.buffers) buffer.destroy();
    this.#place.pool.release(this.#parts.slots);
  }
}

async function build(
  program: Program,
  { device, pool }: ProgramContext,
  resident: ReadonlyMap<DeviceValue, GPUBuffer>,
): Promise<CompiledParts> {
  const { slots, slotOf } = planSlots(program);
  assertBindable(program, device);
  for (const length of slots) device.assertAllocatable('an intermediate value', length * FLOAT_BYTES);
  const pipelines = await Promise.all(program.steps.map(step => device.pipeline(step.name, step.code)));

  const total = slots.reduce((sum, length) => sum + length, 0) * FLOAT_BYTES;
  return device.allocating('intermediate values', total, (): CompiledParts => {
    const buffers: GPUBuffer[] = [];
    const create = (label: string, size: number, usage: GPUBufferUsageFlags): GPUBuffer => {
      const buffer = device.device.createBuffer({ label, size, usage });
      buffers.push(buffer);
      return buffer;
    };
    const own = new Map<DeviceValue, GPUBuffer>(resident);
    const inputs = new Map<string, GPUBuffer>();
    for (const [name, value] of program.inputs) {
      if (resident.has(value)) continue;
      const buffer = create(name, value.length * FLOAT_BYTES, ARRAY_USAGE);
      own.set(value, buffer);
      inputs.set(name, buffer);
    }
    for (const [value, data] of program.constants) {
      const buffer = create('constant', data.byteLength, ARRAY_USAGE);
      device.device.queue.writeBuffer(buffer, 0, toFloats(data));
      own.set(value, buffer);
    }
    const slotBuffers = pool.acquire(slots);
    for (const [value, slot] of slotOf) own.set(value, slotBuffers[slot]);

    const uniforms = uniformBuffer(device, program.steps, create);
    const dispatches = program.steps.map((step, index) => ({
      pipeline: pipelines[index],
      bindings: bindGroup(device, pipelines[index], step, uniforms.entry(index), own),
      groups: step.groups,
    }));
    let offset = 0;
    const readBacks = [...program.outputs].map(([name, value]) => {
      const start = offset;
      offset += value.length * FLOAT_BYTES;
      return { name, source: own.get(value)!, offset: start, length: value.length };
    });
    const usage = BUFFER_USAGE.mapRead | BUFFER_USAGE.copyTarget;
    const staging = offset === 0 ? null : create('results', offset, usage);
    return { buffers, slots: slotBuffers, inputs, dispatches, readBacks, staging, readBytes: offset };
  });
}

/** @throws RuntimeError naming a step that needs more of an array at once than a shader can bind, and what to change */
function assertBindable({ steps, inputs, parameters }: Program, device: GpuDevice): void {
  const named = new Map([...inputs, ...parameters].map(([name, value]) => [value, name]));
  for (const { name, reads, writes } of steps) {
    for (const value of [...reads, ...writes]) {
      const array = named.get(wholeOf(value));
      const what = array === undefined ? `'${name}'` : `'${name}' on '${array}'`;
      device.assertBindable(what, value.length * FLOAT_BYTES);
    }
  }
}

/** One buffer with the uniforms of all steps. */
function uniformBuffer(
  { device }: GpuDevice,
  steps: readonly KernelDispatch[],
  create: (label: string, size: number, usage: GPUBufferUsageFlags) => GPUBuffer,
): { entry(index: number): GPUBufferBinding } {
  const alignment = device.limits.minUniformBufferOffsetAlignment;
  const offsets: number[] = [];
  let end = 0;
  for (const { uniforms } of steps) {
    offsets.push(end);
    end += Math.ceil(uniforms.byteLength / alignment) * alignment;
  }
  const bytes = new Uint8Array(Math.max(end, alignment));
  steps.forEach(({ uniforms }, index) => {
    bytes.set(new Uint8Array(uniforms), offsets[index]);
  });
  const usage = BUFFER_USAGE.uniform | BUFFER_USAGE.copyTarget;
  const buffer = create('uniforms', bytes.byteLength, usage);
  device.queue.writeBuffer(buffer, 0, bytes);
  return {
    entry: index => ({ buffer, offset: offsets[index], size: steps[index].uniforms.byteLength }),
  };
}

function bindGroup(
  { device }: GpuDevice,
  pipeline: GPUComputePipeline,
  step: KernelDispatch,
  uniforms: GPUBufferBinding,
  buffers: ReadonlyMap<DeviceValue, GPUBuffer>,
): GPUBindGroup {
  const arrays = [...step.reads, ...step.writes].map(value => ({
    buffer: buffers.get(wholeOf(value))!,
    offset: startOf(value) * FLOAT_BYTES,
    size: value.length * FLOAT_BYTES,
  }));
  return device.createBindGroup({
    layout: pipeline.getBindGroupLayout(0),
    entries: [uniforms, ...arrays].map((resource, binding) => ({ binding, resource })),
  });
}

/** The device takes float32 only, and no views of shared memory. */
function toFloats(array: TypedArray): Float32Array<ArrayBuffer> {
  const whole = array instanceof Float32Array && array.buffer instanceof ArrayBuffer;
  return whole ? (array as Float32Array<ArrayBuffer>) : new Float32Array(array);
}

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
    const free = this.#buffers.filter(pooled => !taken.has(pooled));
    const known = bestFit(free, pooled => pooled.buffer.size, size);
    if (known !== undefined) return known;
    const buffer = this.#device.device.createBuffer({ label: 'values', size, usage: ARRAY_USAGE });
    const created = { buffer, users: 0 };
    this.#buffers.push(created);
    return created;
  }
}
