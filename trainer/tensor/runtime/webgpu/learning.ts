import { type Graph, type Shape, sizeOf } from '../../graph/tensor.ts';
import { isMuonMatrix, muonGraph, muonInputs } from '../muon.ts';
import type { ParameterInfo, ParameterStore } from '../parameter-store.ts';
import type { AdamwFactors, DeviceArray, Learner, LearnerState, MuonFactors, Tensors } from '../runtime.ts';
import { RuntimeError } from '../runtime-error.ts';
import { reduceMiddle, reduceRows } from './kernels/reduce.ts';
import { Kernel, type KernelThread } from './lowering/kernel.ts';
import {
  type DeviceValue,
  type KernelDispatch,
  type Program,
  type ScratchSpace,
  wholeOf,
} from './lowering/program.ts';
import { inRowSlices } from './shaders/copy.ts';

/** Factors of a step that the kernels below take, in the order of their array. */
const ADAMW_FACTORS = [
  'scale',
  'beta1',
  'rest1',
  'beta2',
  'rest2',
  'keep',
  'stepSize',
  'inverseRoot',
  'epsilon',
] as const;

const firstMoment = new Kernel(
  function firstMoment(this: KernelThread, first: number[], gradient: number[], factors: number[]): number {
    const scaled = gradient[this.thread.x] * factors[0];
    return factors[1] * first[this.thread.x] + factors[2] * scaled;
  },
  ['Array', 'Array', 'Array'],
  { inPlace: 0 },
);

const secondMoment = new Kernel(
  function secondMoment(this: KernelThread, second: number[], gradient: number[], factors: number[]): number {
    const scaled = gradient[this.thread.x] * factors[0];
    return factors[3] * second[this.thread.x] + factors[4] * scaled * scaled;
  },
  ['Array', 'Array', 'Array'],
  { inPlace: 0 },
);

const descend = new Kernel(
  function descend(
    this: KernelThread,
    weight: number[],
    first: number[],
    second: number[],
    factors: number[],
  ): number {
    const denominator = Math.sqrt(second[this.thread.x]) * factors[7] + factors[8];
    return weight[this.thread.x] * factors[5] - (factors[6] * first[this.thread.x]) / denominator;
  },
  ['Array', 'Array', 'Array', 'Array'],
  { inPlace: 0 },
);

/** State that the optimizer keeps of a parameter, each array as long as the others. */
interface StepValues {
  readonly weight: DeviceValue;
  readonly gradient: DeviceValue;
  readonly first: DeviceValue;
  readonly second: DeviceValue;
}

/**
 * A step of AdamW (Loshchilov & Hutter, 2019) on one parameter, in float32 as torch.optim.AdamW takes it.
 * @param factors {@link ADAMW_FACTORS}
 */
function adamw(values: StepValues, factors: DeviceValue, scratch: ScratchSpace): KernelDispatch[] {
  const f = { value: factors };
  const { weight, gradient, first, second } = values;
  return [
    ...movedMean(values, factors, scratch),
    ...inPlace(scratch, second, [gradient], (own, [g]) =>
      secondMoment.step([own.length], [{ value: own }, g, f], own),
    ),
    ...inPlace(scratch, weight, [first, second], (own, [m, v]) =>
      descend.step([own.length], [{ value: own }, m, v, f], own),
    ),
  ];
}

/** Takes the gradient into its running mean. */
function movedMean(
  { gradient, first }: StepValues,
  factors: DeviceValue,
  scratch: ScratchSpace,
): KernelDispatch[] {
  return inPlace(scratch, first, [gradient], (own, [g]) =>
    firstMoment.step([own.length], [{ value: own }, g, { value: factors }], own),
  );
}

/** A kernel that changes an array element by element, in parts that a shader can bind. */
function inPlace(
  scratch: ScratchSpace,
  changed: DeviceValue,
  others: readonly DeviceValue[],
  make: (changed: DeviceValue, others: readonly { readonly value: DeviceValue }[]) => KernelDispatch,
): KernelDispatch[] {
  const operands = others.map(value => ({ value, width: 1 }));
  return inRowSlices(scratch, changed.length, operands, { value: changed, width: 1 }, (_, own, out) => [
    make(
      out,
      own.map(value => ({ value })),
    ),
  ]);
}

const add = new Kernel(
  function add(this: KernelThread, total: number[], part: number[]): number {
    return total[this.thread.x] + part[this.thread.x];
  },
  ['Array', 'Array'],
  { inPlace: 0 },
);

/** Adds an array to another in place. */
function accumulate(total: DeviceValue, part: DeviceValue, scratch: ScratchSpace): KernelDispatch[] {
  return inPlace(scratch, total, [part], (own, [added]) =>
    add.step([own.length], [{ value: own }, added], own),
  );
}

/** A program that can run. */
export interface RunnableProgram {
  run(inputs: Tensors, outputs: Tensors): Promise<void>;
}

/** Arrays and programs of the device that learning uses. */
export interface LearningContext {
  /** Elements of an array that a shader can bind. */
  readonly most: number;
  /** An array of zeros. */
  allocate(what: string, length: number): Promise<DeviceArray>;
  /** A parameter's array on the device, which follows changes of its store. */
  parameter(store: ParameterStore, name: string): Promise<DeviceArray>;
  /** Uploads everything written into stores since the last call. */
  refresh(): void;
  lower(graph: Graph): Program;
  /** @param resident names of inputs that stay on the device */
  build(program: Program, resident: ReadonlyMap<string, DeviceArray>): Promise<RunnableProgram>;
  clear(arrays: Iterable<DeviceArray>): void;
  download(copies: readonly { readonly from: DeviceArray; readonly to: Float32Array }[]): Promise<void>;
}

/**
 * Adds outputs to arrays instead of returning them, each as soon as it is computed, so its memory is free again.
 * @param sums by the outputs' names
 * @param most elements of an array that a shader can bind
 * @returns the program with an input for each array, and the names of those inputs
 */
export function accumulating(
  program: Program,
  sums: Readonly<Record<string, DeviceArray>>,
  most = Infinity,
): { readonly program: Program; readonly resident: ReadonlyMap<string, DeviceArray> } {
  const inputs = new Map(program.inputs);
  const outputs = new Map(program.outputs);
  const resident = new Map<string, DeviceArray>();
  const written = new Map<DeviceValue, number>();
  program.steps.forEach(({ writes }, index) => {
    for (const value of writes) written.set(wholeOf(value), index);
  });
  const following = new Map<number, KernelDispatch[]>();
  for (const [name, array] of Object.entries(sums)) {
    const part = outputs.get(name);
    if (part === undefined) throw new RuntimeError(`the graph has no output '${name}' to add up`);
    if (part.length !== array.length) {
      throw new RuntimeError(`output '${name}' has ${part.length} elements, its sum ${array.length}`);
    }
    const total: DeviceValue = { id: -1, length: part.length };
    const index = written.get(part) ?? program.steps.length - 1;
    following.set(index, [...(following.get(index) ?? []), ...accumulate(total, part, roomOf(most))]);
    outputs.delete(name);
    inputs.set(sumInput(name), total);
    resident.set(sumInput(name), array);
  }
  const steps = program.steps.flatMap((step, index) => [step, ...(following.get(index) ?? [])]);
  return {
    program: { ...program, inputs, outputs, steps: [...steps, ...(following.get(-1) ?? [])] },
    resident,
  };
}

function roomOf(most: number): ScratchSpace {
  return { most, allocate: length => ({ id: -1, length }) };
}

function sumInput(name: string): string {
  return `sum of ${name}`;
}

const FACTORS = 'factors';
const KINDS = ['weight', 'gradient', 'first', 'second'] as const;

interface TrainedParameter extends ParameterInfo {
  readonly arrays: Readonly<Record<(typeof KINDS)[number], DeviceArray>>;
}

/** A step of Muon: of the weights that are no matrices, of the running means, and of the matrices. */
interface MuonPrograms {
  readonly others: RunnableProgram;
  readonly momentum: RunnableProgram;
  readonly change: RunnableProgram;
}

/** Gradients, moments and the optimizer's step where the weights are. */
export class DeviceLearner implements Learner {
  readonly gradients: Readonly<Record<string, DeviceArray>>;
  readonly #place: LearningContext;
  readonly #state: LearnerState;
  readonly #trained: readonly TrainedParameter[];
  readonly #norm: RunnableProgram;
  readonly #squares: Readonly<Record<string, Float32Array>>;
  readonly #step: RunnableProgram;
  /** Null before the first step of Muon. */
  #muon: MuonPrograms | null = null;

  private constructor(
    place: LearningContext,
    state: LearnerState,
    trained: readonly TrainedParameter[],
    programs: readonly [norm: RunnableProgram, step: RunnableProgram],
  ) {
    this.#place = place;
    this.#state = state;
    this.#trained = trained;
    this.gradients = Object.fromEntries(trained.map(({ name, arrays }) => [name, arrays.gradient]));
    this.#squares = Object.fromEntries(trained.map(({ name }) => [name, new Float32Array(1)]));
    [this.#norm, this.#step] = programs;
  }

  static async create(place: LearningContext, state: LearnerState): Promise<DeviceLearner> {
    const trained: TrainedParameter[] = [];
    for (const info of state.weights.layout) {
      const { name, shape } = info;
      trained.push({
        ...info,
        arrays: {
          weight: await place.parameter(state.weights, name),
          gradient: await place.allocate(`the gradient of ${name}`, sizeOf(shape)),
          first: await place.parameter(state.first, name),
          second: await place.parameter(state.second, name),
        },
      });
    }
    const scratch = roomOf(place.most);
    const { layout } = state.weights;
    const programs = [normProgram(layout, scratch), stepProgram(layout, scratch, adamw)];
    const [norm, step] = await Promise.all(programs.map(program => place.build(program, residents(trained))));
    return new DeviceLearner(place, state, trained, [norm, step]);
  }

  clear(): void {
    this.#place.clear(this.#trained.map(({ arrays }) => arrays.gradient));
  }

  async sumOfSquares(): Promise<number> {
    await this.#norm.run({}, this.#squares);
    return Object.values(this.#squares).reduce((sum, [square]) => sum + square, 0);
  }

  async step(adamw: AdamwFactors, muon?: MuonFactors): Promise<void> {
    this.#place.refresh();
    const factors = { [FACTORS]: factorsOf(adamw) };
    if (muon === undefined || !this.#trained.some(isMuonMatrix)) return this.#step.run(factors, {});
    this.#muon ??= await this.#muonPrograms();
    const { others, momentum, change } = this.#muon;
    await others.run(factors, {});
    await momentum.run({ [FACTORS]: factorsOf({ ...adamw, beta1: muon.momentum }) }, {});
    await change.run(muonInputs(muon), {});
  }

  async #muonPrograms(): Promise<MuonPrograms> {
    const { most } = this.#place;
    const scratch = roomOf(most);
    const matrices = this.#trained.filter(isMuonMatrix);
    const others = this.#trained.filter(parameter => !isMuonMatrix(parameter));
    const sums = Object.fromEntries(
      matrices.map(({ name, arrays }) => [`change ${name}`, arrays.weight] as const),
    );
    const change = accumulating(this.#place.lower(muonGraph(matrices)), sums, most);
    const arrays = residents(this.#trained);
    const [adamwOnly, momentum, changes] = await Promise.all([
      this.#place.build(stepProgram(others, scratch, adamw), arrays),
      this.#place.build(stepProgram(matrices, scratch, movedMean), arrays),
      this.#place.build(change.program, new Map([...arrays, ...change.resident])),
    ]);
    return { others: adamwOnly, momentum, change: changes };
  }

  async download(): Promise<void> {
    this.#place.refresh();
    const { weights, first, second } = this.#state;
    await this.#place.download(
      this.#trained.flatMap(({ name, arrays }) => [
        { from: arrays.weight, to: weights.array(name) },
        { from: arrays.first, to: first.array(name) },
        { from: arrays.second, to: second.array(name) },
      ]),
    );
  }
}

/** Values of {@link ADAMW_FACTORS}. */
function factorsOf(factors: AdamwFactors): Float32Array {
  const { scale, beta1, beta2, keep, stepSize, inverseRoot, epsilon } = factors;
  return Float32Array.of(scale, beta1, 1 - beta1, beta2, 1 - beta2, keep, stepSize, inverseRoot, epsilon);
}

function residents(trained: readonly TrainedParameter[]): ReadonlyMap<string, DeviceArray> {
  return new Map(
    trained.flatMap(({ name, arrays }) =>
      KINDS.map((kind): [string, DeviceArray] => [`${kind} ${name}`, arrays[kind]]),
    ),
  );
}

/** Σ x² of every gradient, by parameter name. */
function normProgram(layout: readonly ParameterInfo[], scratch: ScratchSpace): Program {
  const inputs = new Map<string, DeviceValue>();
  const outputs = new Map<string, DeviceValue>();
  const steps = layout.flatMap(({ name, shape }): KernelDispatch[] => {
    const gradient = scratch.allocate(sizeOf(shape));
    inputs.set(`gradient ${name}`, gradient);
    const { rows, width } = rowsOf(shape);
    const [perRow, total] = [scratch.allocate(rows), scratch.allocate(1)];
    outputs.set(name, total);
    return [
      ...reduceRows('squares', gradient, { rows, count: width }, perRow, scratch),
      ...reduceMiddle('sum', perRow, { outer: 1, middle: rows, inner: 1 }, total, scratch),
    ];
  });
  return { steps, inputs, outputs, parameters: new Map(), constants: new Map() };
}

function rowsOf(shape: Shape): { readonly rows: number; readonly width: number } {
  const width = shape[shape.length - 1] ?? 1;
  return { rows: sizeOf(shape) / width, width };
}

/** @param make what is done to each parameter */
function stepProgram(layout: readonly ParameterInfo[], scratch: ScratchSpace, make: typeof adamw): Program {
  const factors: DeviceValue = { id: -1, length: ADAMW_FACTORS.length };
  const inputs = new Map<string, DeviceValue>([[FACTORS, factors]]);
  const steps = layout.flatMap(({ name, shape }) => {
    const of = (kind: (typeof KINDS)[number]): DeviceValue => {
      const value = { id: -1, length: sizeOf(shape) };
      inputs.set(`${kind} ${name}`, value);
      return value;
    };
    const values = {
      weight: of('weight'),
      gradient: of('gradient'),
      first: of('first'),
      second: of('second'),
    };
    return make(values, factors, scratch);
  });
  return { steps, inputs, outputs: new Map(), parameters: new Map(), constants: new Map() };
}
