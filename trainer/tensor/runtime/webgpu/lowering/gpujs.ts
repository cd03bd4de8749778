import { createRequire } from 'node:module';

/** Position of a kernel's thread; `this` of every kernel function. */
export interface KernelThread {
  readonly thread: { readonly x: number; readonly y: number; readonly z: number };
}

export type ArgumentType = 'Array' | 'Integer' | 'Float';

/** A kernel as gpu.js takes it: source text, and that of the functions it calls. */
export interface KernelSource {
  readonly source: string;
  readonly functions: readonly string[];
  readonly argumentTypes: readonly ArgumentType[];
}

/** WGSL of a kernel, and the layout of its uniform buffer. Offsets in bytes. */
export interface CompiledKernel {
  readonly code: string;
  readonly uniformBytes: number;
  /** Offset of the extents of each array argument in order, four 32-bit integers. */
  readonly arrayOffsets: readonly number[];
  /** Offset of each other argument in order. */
  readonly scalarOffsets: readonly number[];
}

interface WebGpuKernel {
  compiledSource: string;
  paramsLayout: {
    byteLength: number;
    arrayArgs: readonly { dimsOffset: number }[];
    scalarArgs: readonly { offset: number }[];
  };
  build(...args: readonly unknown[]): Promise<void>;
}

/** The part of gpu.js that is used; its declarations lack the WebGPU backend. */
interface GpuJs {
  readonly WebGPUKernel: new (source: string, settings: object) => WebGpuKernel;
}

const gpujs = createRequire(import.meta.url)('gpu.js') as GpuJs;

/** Bound for loops with an end that gpu.js cannot determine. */
export const LOOP_BOUND = 2 ** 30;

/** Takes the WGSL of a kernel and stops there: ragen makes the buffers, pipelines and dispatches. */
class SourceKernel extends gpujs.WebGPUKernel {
  protected _buildAsync(): Promise<void> {
    return Promise.resolve();
  }
}

/**
 * Compiles a kernel to WGSL. A kernel of one dimension runs in workgroups of 64 threads, others in 8 × 8; its uniforms begin
 * with the extents of the result and, for one dimension, the threads of a row of workgroups.
 */
export function compileToWgsl(
  { source, functions, argumentTypes }: KernelSource,
  rank: number,
): CompiledKernel {
  const kernel = new SourceKernel(source, {
    argumentTypes,
    output: Array(rank).fill(1),
    functions: functions.map(text => ({ source: text, settings: {} })),
    loopMaxIterations: LOOP_BOUND,
  });
  void kernel.build(...argumentTypes.map(type => (type === 'Array' ? [0] : 0)));
  const { byteLength, arrayArgs, scalarArgs } = kernel.paramsLayout;
  return {
    code: kernel.compiledSource,
    uniformBytes: byteLength,
    arrayOffsets: arrayArgs.map(({ dimsOffset }) => dimsOffset),
    scalarOffsets: scalarArgs.map(({ offset }) => offset),
  };
}
