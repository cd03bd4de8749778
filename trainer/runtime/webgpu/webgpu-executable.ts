import type { Graph, TypedArray } from '../../graph/tensor.ts';
import { bindOutputs, bindParameters, checkInput, refuseUnknownInputs } from '../binding.ts';
import { type CompileOptions, type Executable, messageOf, RuntimeError, type Tensors } from '../runtime.ts';
import { ARRAY_USAGE, BUFFER_USAGE, type GpuDevice, MAP_READ } from './device.ts';
import { lowerToSteps } from './lowering.ts';
import type { Program } from './program.ts';
import type { DeviceParameters } from './resident.ts';
import { planSlots } from './slots.ts';
import type { Groups, Step, Value } from './step.ts';

const FLOAT_BYTES = 4;

/** What an executable takes from the runtime it belongs to. */
export interface WebGpuOwner {
  readonly device: GpuDevice;
  /** Null for a graph without parameters. */
  readonly parameters: DeviceParameters | null;
  onDispose(): void;
}

interface Dispatch {
  readonly pipeline: GPUComputePipeline;
  readonly bindings: GPUBindGroup;
  readonly groups: Groups;
}

/** Where an output lies in the buffer that the processor reads. */
interface ReadBack {
  readonly name: string;
  readonly source: GPUBuffer;
  readonly offset: number;
  readonly length: number;
}

/** A graph on the device: buffers and bindings made once, every run one command buffer and one read-back. */
export class WebGpuExecutable implements Executable {
  readonly graph: Graph;
  readonly #owner: WebGpuOwner;
  readonly #buffers: readonly GPUBuffer[];
  readonly #inputs: ReadonlyMap<string, GPUBuffer>;
  readonly #dispatches: readonly Dispatch[];
  readonly #readBacks: readonly ReadBack[];
  readonly #staging: GPUBuffer;
  readonly #outputs: Tensors;
  #disposed = false;

  private constructor(graph: Graph, owner: WebGpuOwner, outputs: Tensors, parts: Parts) {
    this.graph = graph;
    this.#owner = owner;
    this.#outputs = outputs;
    this.#buffers = parts.buffers;
    this.#inputs = parts.inputs;
    this.#dispatches = parts.dispatches;
    this.#readBacks = parts.readBacks;
    this.#staging = parts.staging;
  }

  static async compile(graph: Graph, options: CompileOptions, owner: WebGpuOwner): Promise<WebGpuExecutable> {
    bindParameters(graph, options);
    const outputs = bindOutputs(graph, options);
    const parts = await build(lowerToSteps(graph), owner);
    return new WebGpuExecutable(graph, owner, outputs, parts);
  }

  async run(inputs: Tensors): Promise<Tensors> {
    if (this.#disposed) throw new RuntimeError('the executable was disposed and cannot run');
    refuseUnknownInputs(this.graph, inputs);
    for (const [name, tensor] of this.graph.inputs) checkInput(name, tensor, inputs[name]);
    const { device, parameters } = this.#owner;
    device.check();
    const { queue } = device.device;
    parameters?.refresh();
    for (const [name, buffer] of this.#inputs) queue.writeBuffer(buffer, 0, toFloats(inputs[name]));
    queue.submit([this.#encode()]);
    await this.#staging.mapAsync(MAP_READ).catch(cause => {
      device.check();
      throw new RuntimeError(`the GPU did not give the results back: ${messageOf(cause)}`, { cause });
    });
    const mapped = this.#staging.getMappedRange();
    for (const { name, offset, length } of this.#readBacks) {
      (this.#outputs[name] as TypedArray).set(new Float32Array(mapped, offset, length));
    }
    this.#staging.unmap();
    device.check();
    return this.#outputs;
  }

  #encode(): GPUCommandBuffer {
    const encoder = this.#owner.device.device.createCommandEncoder();
    const pass = encoder.beginComputePass();
    for (const { pipeline, bindings, groups } of this.#dispatches) {
      pass.setPipeline(pipeline);
      pass.setBindGroup(0, bindings);
      pass.dispatchWorkgroups(...groups);
    }
    pass.end();
    for (const { source, offset, length } of this.#readBacks) {
      encoder.copyBufferToBuffer(source, 0, this.#staging, offset, length * FLOAT_BYTES);
    }
    return encoder.finish();
  }

  async dispose(): Promise<void> {
    if (this.#disposed) return;
    this.#disposed = true;
    this.#owner.onDispose();
    for (const buffer of this.#buffers) buffer.destroy();
  }
}

interface Parts {
  /** All that belong to the executable alone. */
  readonly buffers: readonly GPUBuffer[];
  readonly inputs: ReadonlyMap<string, GPUBuffer>;
  readonly dispatches: readonly Dispatch[];
  readonly readBacks: readonly ReadBack[];
  readonly staging: GPUBuffer;
}

async function build(program: Program, owner: WebGpuOwner): Promise<Parts> {
  const { device } = owner;
  const { slots, slotOf } = planSlots(program);
  for (const length of slots) device.assertBindable('an intermediate value', length * FLOAT_BYTES);
  const pipelines = await Promise.all(program.steps.map(step => device.pipeline(step.name, step.code)));
  const parameters = new Map<Value, GPUBuffer>();
  for (const [name, value] of program.parameters) {
    parameters.set(value, await owner.parameters!.buffer(name));
  }

  const total = slots.reduce((sum, length) => sum + length, 0) * FLOAT_BYTES;
  return device.allocating('intermediate values', total, (): Parts => {
    const buffers: GPUBuffer[] = [];
    const create = (label: string, size: number, usage: GPUBufferUsageFlags): GPUBuffer => {
      const buffer = device.device.createBuffer({ label, size, usage });
      buffers.push(buffer);
      return buffer;
    };
    const own = new Map<Value, GPUBuffer>(parameters);
    const inputs = new Map<string, GPUBuffer>();
    for (const [name, value] of program.inputs) {
      const buffer = create(name, value.length * FLOAT_BYTES, ARRAY_USAGE);
      own.set(value, buffer);
      inputs.set(name, buffer);
    }
    for (const [value, data] of program.constants) {
      const buffer = create('constant', data.byteLength, ARRAY_USAGE);
      device.device.queue.writeBuffer(buffer, 0, toFloats(data));
      own.set(value, buffer);
    }
    const slotBuffers = slots.map(length => create('values', length * FLOAT_BYTES, ARRAY_USAGE));
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
    const staging = create('results', offset, BUFFER_USAGE.mapRead | BUFFER_USAGE.copyTarget);
    return { buffers, inputs, dispatches, readBacks, staging };
  });
}

/** One buffer with the uniforms of all steps. */
function uniformBuffer(
  { device }: GpuDevice,
  steps: readonly Step[],
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
  step: Step,
  uniforms: GPUBufferBinding,
  buffers: ReadonlyMap<Value, GPUBuffer>,
): GPUBindGroup {
  const arrays = [...step.reads, ...step.writes].map(value => ({
    buffer: buffers.get(value)!,
    size: value.length * FLOAT_BYTES,
  }));
  return device.createBindGroup({
    layout: pipeline.getBindGroupLayout(0),
    entries: [uniforms, ...arrays].map((resource, binding) => ({ binding, resource })),
  });
}

function toFloats(array: TypedArray): Float32Array<ArrayBuffer> {
  return Float32Array.from(array);
}
