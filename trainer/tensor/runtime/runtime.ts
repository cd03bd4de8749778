import type { Graph, TypedArray } from '../graph/tensor.ts';
import type { ParameterSource, ParameterStore } from './parameter-store.ts';

/** Compiles graphs for a device. Implementations: onnx (CPU), webgpu. */
export interface Runtime {
  readonly name: string;
  /** Readable name of the device. */
  readonly description: string;
  /**
   * @throws RuntimeError when a parameter is missing from the store or has another shape, a bound array does
   * not fit its output, or the device refuses the graph
   */
  compile(graph: Graph, options?: CompileOptions): Promise<Executable>;
  /** Arrays in device memory; absent where arrays are the processor's. */
  readonly memory?: DeviceMemory;
  /** Disposes every executable that is still open. */
  close(): Promise<void>;
}

/** Numbers that stay on a device: state that outlives a run and is too large or too often used to copy. */
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
   * @param what purpose, for the error
   * @throws RuntimeError when there is no room for it
   */
  allocate(what: string, length: number): Promise<DeviceArray>;
  learner(state: LearnerState): Promise<Learner>;
}

/** Weights that are learned, and the optimizer's moments of each; three stores of one layout. */
export interface LearnerState {
  readonly weights: ParameterStore;
  readonly first: ParameterStore;
  readonly second: ParameterStore;
}

/** Learning on a device: gradients, moments, the optimizer's step and the weights between steps stay there. */
export interface Learner {
  /** Sums of gradients by parameter name, for {@link CompileOptions.sums}. */
  readonly gradients: Readonly<Record<string, DeviceArray>>;
  /** Sets the gradients to zero. */
  clear(): void;
  /** Sum of the squares of all gradients. */
  sumOfSquares(): Promise<number>;
  /**
   * One step with the gradients: of AdamW, or with `muon` of Muon for the matrices of layers and of AdamW for the rest.
   * Executables see the new weights, the stores do not.
   */
  step(adamw: AdamwFactors, muon?: MuonFactors): Promise<void>;
  /** Writes weights and moments into their stores. */
  download(): Promise<void>;
}

export interface CompileOptions {
  /** Source of the graph's parameters; needed when it has any. Read again at every run. */
  readonly parameters?: ParameterSource;
  /** Arrays that receive outputs, by output name; the executable allocates the others. */
  readonly outputs?: Readonly<Record<string, TypedArray>>;
  /** Inputs on the device, by name; a run does not pass them. Changes that the graph makes to their rows stay. */
  readonly resident?: Readonly<Record<string, DeviceArray>>;
  /** Arrays on the device, by output name; the output is added to the array instead of being returned. */
  readonly sums?: Readonly<Record<string, DeviceArray>>;
  /**
   * The program works on rows, axis 0 of all its inputs and outputs: a run says how many there are, at most those of
   * the graph. Weights in blocks never change, so they are packed once for integer products. Has no effect on a device
   * with its own memory.
   */
  readonly anyRows?: boolean;
}

/** Inputs or outputs by name, row-major; Uint8Array for bool. */
export type Tensors = Readonly<Record<string, TypedArray>>;

/** A compiled graph. One run at a time: await a run before starting the next. */
export interface Executable {
  readonly graph: Graph;
  /**
   * Runs the graph once. The returned arrays are the bound ones or the executable's own; the next run overwrites all of
   * them. On a CPU runtime the calling thread is busy until the run ends.
   * @param rows number of rows in inputs and outputs, for programs of any number of rows; those of the graph when
   * absent
   * @throws RuntimeError when an input is missing, unknown, of another type or length
   */
  run(inputs: Tensors, rows?: number): Promise<Tensors>;
  dispose(): Promise<void>;
}

/** Factors of a step, the same for every element. */
export interface AdamwFactors {
  /** On the gradients. */
  readonly scale: number;
  readonly beta1: number;
  readonly beta2: number;
  /** On the weights: 1 − learning rate · weight decay. */
  readonly keep: number;
  /** Learning rate over the bias correction of the first moment. */
  readonly stepSize: number;
  /** One over the root of the bias correction of the second moment. */
  readonly inverseRoot: number;
  readonly epsilon: number;
}

/** Factors of a step of Muon. */
export interface MuonFactors {
  /** On the gradients. */
  readonly scale: number;
  readonly momentum: number;
  readonly learningRate: number;
  readonly weightDecay: number;
}

/** Runtimes of a policy; `auto` takes a GPU for models that are faster there. */
export const RUNTIME_CHOICES = ['onnx', 'webgpu', 'auto'] as const;
export type RuntimeChoice = (typeof RUNTIME_CHOICES)[number];
export type RuntimeKind = Exclude<RuntimeChoice, 'auto'>;

/** Types of the factors of a policy's products; everything else is float32. */
export const PRECISIONS = ['float32', 'float16'] as const;
export type Precision = (typeof PRECISIONS)[number];

/** Default bytes that the sessions of a runtime on the processor may take together, without values of a run. */
export const SESSIONS_BYTES = 2 ** 28;
