import { GraphBuilder, type Tensor } from '../graph/graph.ts';
import { type Graph, sizeOf, type TypedArray } from '../graph/tensor.ts';
import type { ParameterInfo, ParameterStore } from './parameter-store.ts';
import type { Executable, MuonFactors, Runtime, Tensors } from './runtime.ts';
import type { AdamwArrays } from './wasm/kernels.ts';

/** Coefficients of the Newton-Schulz iteration (Jordan et al., 2024): five steps take singular values to about 1. */
const [LINEAR, CUBIC, QUINTIC] = [3.4445, -4.775, 2.0315];
const STEPS = 5;
const NORM_EPSILON = 1e-7;

/** Root mean square of a change's elements, near AdamW's: with singular values of 1 it is 1 / √(longer side) (Liu et al., 2025). */
const ADAMW_ROOT_MEAN_SQUARE = 0.2;

/** Inputs of {@link muonGraph} that are the same for all matrices, each []. */
const MUON_FACTORS = ['scale', 'momentum', 'rest', 'learningRate', 'decay'] as const;

/** Values of {@link MUON_FACTORS} by their names. */
export function muonInputs({ scale, momentum, learningRate, weightDecay }: MuonFactors): Tensors {
  const values = { scale, momentum, rest: 1 - momentum, learningRate, decay: learningRate * weightDecay };
  return Object.fromEntries(MUON_FACTORS.map(name => [name, Float32Array.of(values[name])]));
}

/** True for a matrix of a layer. Embeddings, output layers, norms, biases and adapters are left to AdamW. */
export function isMuonMatrix({ name, shape }: ParameterInfo): boolean {
  return shape.length === 2 && name.startsWith('model.layers.') && !name.includes('.lora_');
}

/**
 * What a step of Muon (Jordan et al., 2024) adds to each matrix, as torch.optim.Muon with Nesterov momentum and
 * `match_rms_adamw` computes it. Inputs, for each matrix: `gradient NAME`, `first NAME`, the running mean of gradients
 * with this one, and `weight NAME`; and {@link MUON_FACTORS}. Outputs: `change NAME`.
 */
export function muonGraph(matrices: readonly ParameterInfo[]): Graph {
  const g = new GraphBuilder();
  const [scale, momentum, rest, learningRate, decay] = MUON_FACTORS.map(name => g.input(name, 'float32', []));
  for (const { name, shape } of matrices) {
    const [gradient, first, weight] = ['gradient', 'first', 'weight'].map(kind =>
      g.input(`${kind} ${name}`, 'float32', shape),
    );
    const ahead = g.add(g.mul(g.mul(gradient, scale), rest), g.mul(first, momentum));
    const direction = orthogonalized(g, ahead);
    const size = ADAMW_ROOT_MEAN_SQUARE * Math.sqrt(Math.max(...shape));
    const change = g.add(g.mul(direction, g.mul(learningRate, size)), g.mul(weight, decay));
    g.output(`change ${name}`, g.neg(change));
  }
  return g.build();
}

/** The nearest matrix with orthogonal rows or columns, roughly: singular values between 0.7 and 1.2. */
function orthogonalized(g: GraphBuilder, matrix: Tensor): Tensor {
  const [rows, columns] = matrix.shape;
  const isTall = rows > columns;
  const wide = isTall ? g.transpose(matrix, [1, 0]) : matrix;
  let x = g.div(wide, g.add(g.sqrt(g.sum(g.mul(wide, wide), [0, 1], true)), NORM_EPSILON));
  for (let step = 0; step < STEPS; step++) {
    const squared = g.matmul(x, x, { transposeB: true });
    const factor = g.add(g.mul(squared, CUBIC), g.mul(g.matmul(squared, squared), QUINTIC));
    x = g.add(g.mul(x, LINEAR), g.matmul(factor, x));
  }
  return isTall ? g.transpose(x, [1, 0]) : x;
}

/** Elements [start, end) of a store's flat vector. */
type Span = readonly [start: number, end: number];

/** Muon's step on the processor: one worker's share of the matrices, in the arrays that all workers see. */
export class MuonShare {
  /** Places of all matrices, not only of the share; ascending. */
  readonly #spans: readonly Span[];
  readonly #own: readonly { readonly name: string; readonly span: Span }[];
  /** Null where the share is empty. */
  readonly #program: Executable | null;

  private constructor(store: ParameterStore, own: readonly ParameterInfo[], program: Executable | null) {
    this.#spans = matricesOf(store).map(({ name }) => store.spanOf(name));
    this.#own = own.map(({ name }) => ({ name, span: store.spanOf(name) }));
    this.#program = program;
  }

  /** @param index of the worker among `count` workers, which share the matrices by size */
  static async compile(
    runtime: Runtime,
    store: ParameterStore,
    index: number,
    count: number,
  ): Promise<MuonShare> {
    const own = dealt(matricesOf(store), count)[index];
    return new MuonShare(store, own, own.length === 0 ? null : await runtime.compile(muonGraph(own)));
  }

  /** The parts of [start, end) that belong to no matrix, for AdamW. */
  *others(start: number, end: number): Generator<Span> {
    let from = start;
    for (const [first, last] of this.#spans) {
      if (Math.min(first, end) > from) yield [from, Math.min(first, end)];
      from = Math.max(from, last);
    }
    if (end > from) yield [from, end];
  }

  /** Steps the share's matrices. Moves `first`, the running mean of gradients; `second` stays as it is. */
  async step({ weights, gradients, first }: AdamwArrays, factors: MuonFactors): Promise<void> {
    if (this.#program === null) return;
    const { scale, momentum } = factors;
    const inputs: { [name: string]: TypedArray } = { ...muonInputs(factors) };
    for (const { name, span } of this.#own) {
      for (let i = span[0]; i < span[1]; i++) {
        first[i] = momentum * first[i] + (1 - momentum) * (gradients[i] * scale);
      }
      inputs[`gradient ${name}`] = gradients.subarray(...span);
      inputs[`first ${name}`] = first.subarray(...span);
      inputs[`weight ${name}`] = weights.subarray(...span);
    }
    const changes = await this.#program.run(inputs);
    for (const { name, span } of this.#own) {
      const change = changes[`change ${name}`];
      for (let i = 0; i < change.length; i++) weights[span[0] + i] += change[i];
    }
  }
}

function matricesOf(store: ParameterStore): ParameterInfo[] {
  return store.layout.filter(isMuonMatrix);
}

/** Deals matrices to workers, the largest first, each to the one with the fewest elements so far. */
function dealt(matrices: readonly ParameterInfo[], count: number): ParameterInfo[][] {
  const shares = Array.from({ length: count }, () => ({ elements: 0, own: [] as ParameterInfo[] }));
  for (const matrix of matrices.toSorted((a, b) => sizeOf(b.shape) - sizeOf(a.shape))) {
    const least = shares.reduce((best, share) => (share.elements < best.elements ? share : best));
    least.elements += sizeOf(matrix.shape);
    least.own.push(matrix);
  }
  return shares.map(({ own }) => own);
}
