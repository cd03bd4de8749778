import type { Graph, TypedArray } from '../graph/tensor.ts';
import type { AdamwFactors } from './optimizer-step.ts';
import type { ParameterSource, ParameterStore } from './parameter-store.ts';

/** Turns graphs into something that runs on a device. Implementations: onnx (CPU), webgpu. */
export interface Runtime {
  readonly name: string;
  /** Name of the device, for people. */
  readonly description: string;
  /**
   * @throws RuntimeError when a parameter is missing from the store or has another shape, a bound array does
   * not fit its output, or the device refuses the graph
   */
  compile(graph: Graph, options?: CompileOptions): Promise<Executable>;
  /** Arrays that a runtime keeps in device memory; absent where arrays are the processor's. */
  readonly memory?: DeviceMemory;
  /** Disposes every executable that is still open. */
  close(): Promise<void>;
}

/** Numbers that stay on a device: state that outlives a run, too large or too often used to come and go. */
export interface DeviceArray {
  readonly length: number;
  destroy(): void;
}

/** Arrays on a device, and learning there. */
export interface DeviceMemory {
  /** Most elements of one array. */
  readonly largestArray: number;
  /**
   * An array of zeros.
   * @param what it is for, for the error
   * @throws RuntimeError when there is no room for it
   */
  allocate(what: string, length: number): Promise<DeviceArray>;
  learner(state: LearnerState): Promise<Learner>;
}

/** Weights that are learned, and what AdamW keeps of each; three stores of one layout. */
export interface LearnerState {
  readonly weights: ParameterStore;
  readonly first: ParameterStore;
  readonly second: ParameterStore;
}

/** Learning on a device: gradients, moments and the optimizer's step stay there, and so do the weights in between. */
export interface Learner {
  /** Sums of gradients by parameter name, for {@link CompileOptions.sums}. */
  readonly gradients: Readonly<Record<string, DeviceArray>>;
  /** Forgets the gradients. */
  clear(): void;
  /** Sum of the squares of all gradients. */
  sumOfSquares(): Promise<number>;
  /** One step of AdamW with the gradients; executables see the new weights, the stores do not. */
  step(factors: AdamwFactors): Promise<void>;
  /** Writes weights and moments into their stores. */
  download(): Promise<void>;
}

export interface CompileOptions {
  /** Source of the graph's parameters; needed when it has any. Read again at every run. */
  readonly parameters?: ParameterSource;
  /** Arrays that receive outputs, by output name; others get an array of the executable's own. */
  readonly outputs?: Readonly<Record<string, TypedArray>>;
  /** Inputs, by name, that lie on the device and are not given to a run; what the graph puts in their rows stays. */
  readonly resident?: Readonly<Record<string, DeviceArray>>;
  /** Arrays on the device that outputs, by name, are added to instead of being given back. */
  readonly sums?: Readonly<Record<string, DeviceArray>>;
  /**
   * The program is for rows, axis 0 of all its inputs and outputs: a run says how many there are, at most those of the graph.
   * Weights in blocks, which never change, are then packed once for integer products. Without meaning on a device with its
   * own memory.
   */
  readonly anyRows?: boolean;
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
   * @param rows how many there are in inputs and outputs, where the program takes any number of them; those of the graph when
   *   absent
   * @throws RuntimeError when an input is missing, unknown, of another type or length
   */
  run(inputs: Tensors, rows?: number): Promise<Tensors>;
  dispose(): Promise<void>;
}
