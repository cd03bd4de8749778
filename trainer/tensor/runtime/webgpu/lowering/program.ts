import { type Graph, sizeOf, type Tensor, type TypedArray } from '../../../graph/tensor.ts';
import { LoweringContext } from '../../lowering-context.ts';
import type { MatrixMultiplication } from '../device/precision.ts';
import type { DeviceValue, KernelDispatch, ScratchSpace } from './arrays.ts';

/** A graph as dispatches over arrays on the device. */
export interface Program {
  readonly steps: readonly KernelDispatch[];
  readonly inputs: ReadonlyMap<string, DeviceValue>;
  readonly parameters: ReadonlyMap<string, DeviceValue>;
  readonly outputs: ReadonlyMap<string, DeviceValue>;
  /** Contents that never change. */
  readonly constants: ReadonlyMap<DeviceValue, Float32Array>;
}

/** Collects the program while a graph is lowered. Tensors that are views of another tensor share its array. */
export class ProgramBuilder extends LoweringContext<DeviceValue> implements ScratchSpace {
  /** The device's method of matrix multiplication. */
  readonly products: MatrixMultiplication;
  readonly most: number;
  readonly #steps: KernelDispatch[] = [];
  readonly #constants = new Map<DeviceValue, Float32Array>();
  readonly #shared = new Map<string, DeviceValue>();
  #count = 0;

  constructor(graph: Graph, products: MatrixMultiplication, most: number) {
    super(graph);
    this.products = products;
    this.most = most;
  }

  /** An array that no tensor has yet. */
  allocate(length: number): DeviceValue {
    return { id: this.#count++, length };
  }

  /** A new array for a tensor. */
  place(tensor: Tensor): DeviceValue {
    const value = this.allocate(sizeOf(tensor.shape));
    this.bind(tensor, value);
    return value;
  }

  /** The array under a key, made at the first request: for values that several nodes share. */
  share(key: string, make: () => DeviceValue): DeviceValue {
    const value = this.#shared.get(key) ?? make();
    this.#shared.set(key, value);
    return value;
  }

  constant(tensor: Tensor): DeviceValue {
    const value = this.place(tensor);
    this.#constants.set(value, Float32Array.from(tensor.attributes.data as TypedArray));
    return value;
  }

  /** An array of one number. */
  scalar(number: number): DeviceValue {
    return this.share(`scalar ${number}`, () => {
      const value = this.allocate(1);
      this.#constants.set(value, Float32Array.of(number));
      return value;
    });
  }

  add(...steps: readonly KernelDispatch[]): void {
    this.#steps.push(...steps);
  }

  finish(): Program {
    const valuesOf = (tensors: ReadonlyMap<string, Tensor>) =>
      new Map([...tensors].map(([name, tensor]) => [name, this.valueOf(tensor)]));
    return {
      steps: this.#steps,
      inputs: valuesOf(this.graph.inputs),
      parameters: valuesOf(this.graph.parameters),
      outputs: valuesOf(this.graph.outputs),
      constants: this.#constants,
    };
  }
}
