import type { Graph, TypedArray } from '../graph/tensor.ts';
import type { ParameterSource } from './parameter-store.ts';

/** Turns graphs into something that runs on a device. Implementations: onnx (CPU), webgpu. */
export interface Runtime {
  readonly name: string;
  /** What it runs on, for people. */
  readonly description: string;
  /**
   * @throws RuntimeError when a parameter is missing from the store or has another shape, a bound array does
   * not fit its output, or the device refuses the graph
   */
  compile(graph: Graph, options?: CompileOptions): Promise<Executable>;
  /** Disposes every executable that is still open. */
  close(): Promise<void>;
}

export interface CompileOptions {
  /** Where the graph's parameters live; needed when it has any. Read anew at every run. */
  readonly parameters?: ParameterSource;
  /** Arrays that receive outputs, by output name; others get an array of the executable's own. */
  readonly outputs?: Readonly<Record<string, TypedArray>>;
}

/** Inputs or outputs by name, row-major; Uint8Array for bool. */
export type Tensors = Readonly<Record<string, TypedArray>>;

/** A compiled graph. One run at a time: await a run before starting the next. */
export interface Executable {
  readonly graph: Graph;
  /**
   * Runs the graph once. The arrays returned are the bound ones or the executable's own; all of them are
   * overwritten by the next run. On a CPU runtime the calling thread is busy until it is done.
   *
   * @throws RuntimeError when an input is missing, unknown, of another type or length
   */
  run(inputs: Tensors): Promise<Tensors>;
  dispose(): Promise<void>;
}

export function messageOf(cause: unknown): string {
  return cause instanceof Error ? cause.message : String(cause);
}

/** A graph or value that does not fit the runtime; says which and what would. */
export class RuntimeError extends Error {
  override readonly name = 'RuntimeError';
}
