import { createRequire } from 'node:module';
import type { ScalarFunction } from '../../../graph/operations/operation.ts';
import {
  type DeviceValue,
  type KernelDispatch,
  MAX_GROUPS,
  ROW_THREADS,
  TILE_THREADS,
  type Workgroups,
  workgroupGrid,
} from './program.ts';

/** A kernel: computes one element of the result, `this.thread` naming which. */
export type KernelFunction = (this: KernelThread, ...args: never[]) => number;

/** A dispatch of a kernel, with what it was called with. */
export interface KernelCall extends KernelDispatch {
  readonly kernel: Kernel;
  readonly extents: readonly number[];
  readonly args: readonly KernelArgument[];
}

/** An array as a kernel sees it: indexed `a[z][y][x]` by extents innermost first, or flat. */
interface ArrayView {
  readonly value: DeviceValue;
  readonly extents?: readonly number[];
}

export type KernelArgument = ArrayView | number;

const compiled = new Map<string, CompiledKernel>();

/**
 * A typed function compiled by gpu.js to WGSL. Index arithmetic of integers is exact to 2³¹, numbers read from arrays to
 * 2²⁴.
 *
 * @example
 * const double = new Kernel(
 *   function double(this: KernelThread, x: number[]) { return 2 * x[this.thread.x]; },
 *   ['Array'],
 * );
 */
export class Kernel {
  readonly name: string;
  readonly source: KernelSource;
  readonly inPlace: number | null;

  /**
   * @param options.calls functions that the kernel calls by these names
   * @param options.inPlace number of the array argument that the result overwrites; a thread may read only its own element
   *   of it
   */
  constructor(
    kernel: KernelFunction,
    argumentTypes: readonly ArgumentType[],
    options: {
      readonly name?: string;
      readonly calls?: Readonly<Record<string, ScalarFunction>>;
      readonly inPlace?: number;
    } = {},
  ) {
    const { name = kernel.name, calls = {}, inPlace = null } = options;
    this.name = name;
    const functions = Object.entries(calls).map(([called, f]) => renamed(f.toString(), called));
    this.source = { source: kernel.toString(), functions, argumentTypes };
    this.inPlace = inPlace;
  }

  /**
   * @param extents of the result, innermost first: one to three
   * @param args in the order of the function's; of a kernel in place, `result` is that argument
   */
  step(extents: readonly number[], args: readonly KernelArgument[], result: DeviceValue): KernelCall {
    const kernel = this.#compile(extents.length);
    const arrays = args.filter(argument => typeof argument !== 'number');
    const { groups, width, flat } = gridOf(extents);
    const separate = arrays.filter((_, index) => index !== this.inPlace);
    return {
      name: this.name,
      code: flat ? flattened(kernel.code) : kernel.code,
      uniforms: this.#uniforms(kernel, extents, width, args),
      reads: separate.map(({ value }) => value),
      writes: [result],
      groups,
      kernel: this,
      extents,
      args,
    };
  }

  #compile(rank: number): CompiledKernel {
    const key = `${rank} ${this.inPlace} ${this.source.source} ${this.source.functions.join(' ')}`;
    const known = compiled.get(key);
    if (known !== undefined) return known;
    const kernel = compileToWgsl(this.source, rank);
    const code = this.inPlace === null ? kernel.code : readingResult(kernel.code, this.inPlace);
    const entry = { ...kernel, code };
    compiled.set(key, entry);
    return entry;
  }

  #uniforms(
    kernel: CompiledKernel,
    extents: readonly number[],
    width: number,
    args: readonly KernelArgument[],
  ): ArrayBuffer {
    const words = new DataView(new ArrayBuffer(kernel.uniformBytes));
    [extents[0], extents[1] ?? 1, extents[2] ?? 1, width].forEach((word, i) => {
      words.setUint32(4 * i, word, true);
    });
    let array = 0;
    let scalar = 0;
    args.forEach((argument, i) => {
      if (typeof argument !== 'number') {
        const [x, y, z] = extentsOf(argument);
        const offset = kernel.arrayOffsets[array++];
        [x, y, z, x * y * z].forEach((word, j) => {
          words.setUint32(offset + 4 * j, word, true);
        });
      } else if (this.source.argumentTypes[i] === 'Integer') {
        words.setInt32(kernel.scalarOffsets[scalar++], argument, true);
      } else {
        words.setFloat32(kernel.scalarOffsets[scalar++], argument, true);
      }
    });
    return words.buffer;
  }
}

export function extentsOf({ value, extents = [value.length] }: ArrayView): [number, number, number] {
  const [x, y = 1, z = 1] = extents;
  return [x, y, z];
}

/**
 * Workgroups of a kernel; `flat` where its axes do not fit those of a dispatch, so threads have consecutive numbers.
 */
function gridOf(extents: readonly number[]): {
  readonly groups: Workgroups;
  readonly width: number;
  readonly flat: boolean;
} {
  if (extents.length === 1) return { ...workgroupGrid(extents[0]), flat: false };
  const [x, y, z = 1] = extents;
  const groups = [Math.ceil(x / TILE_THREADS), Math.ceil(y / TILE_THREADS), z] as const;
  if (Math.max(...groups) <= MAX_GROUPS) return { groups, width: 0, flat: false };
  return { ...workgroupGrid(x * y * z), flat: true };
}

/** Source of a two- or three-dimensional kernel for a grid of consecutively numbered threads. */
function flattened(code: string): string {
  return code.replace(
    'fn main(@builtin(global_invocation_id) gid : vec3<u32>) {',
    `fn main(@builtin(workgroup_id) group : vec3<u32>, @builtin(local_invocation_index) local : u32) {
  let flat = group.x * ${ROW_THREADS}u + group.y * params.dispatchWidth + local;
  let rows = flat / params.outputX;
  let gid = vec3<u32>(flat % params.outputX, rows % params.outputY, rows / params.outputY);`,
  );
}

/** The function's source under another name. */
function renamed(source: string, name: string): string {
  return source.replace(/^function\s*\w*/, `function ${name}`);
}

/** Lets a kernel read one of its array arguments from the result's binding; later bindings move up by one. */
function readingResult(code: string, argument: number): string {
  const binding = new RegExp(
    `@group\\(0\\) @binding\\(${1 + argument}\\) var<storage, read> (\\w+) : array<f32>;\n`,
  );
  const [declaration, name] = binding.exec(code)!;
  return code
    .replace(declaration, '')
    .replace(`return ${name}[`, 'return result[')
    .replace(
      /@binding\((\d+)\)/g,
      (_, number: string) => `@binding(${Number(number) - (Number(number) > 1 + argument ? 1 : 0)})`,
    );
}

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
function compileToWgsl({ source, functions, argumentTypes }: KernelSource, rank: number): CompiledKernel {
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
