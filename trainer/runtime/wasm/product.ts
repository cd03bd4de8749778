import { type Code, compileKernel, FunctionLocals, f32x4, forLoop, i32, when } from './code.ts';
import { times } from './vector-math.ts';

/** Rows taken at once: operands need room for a multiple of it. */
export const TILE_ROWS = 4;
/** Outputs of a panel: results need room for a multiple of it. */
export const PANEL_OUTPUTS = 8;
/** Inputs are padded with zeros to a multiple of this. */
export const INPUT_STEP = 8;
const LANES = 4;
const VECTORS = PANEL_OUTPUTS / LANES;
const FLOAT_BYTES = 4;
const VECTOR_BYTES = LANES * FLOAT_BYTES;

export function roundUp(count: number, step: number): number {
  return Math.ceil(count / step) * step;
}

/** Floats a matrix of this size takes when packed. */
export function packedSize(outputs: number, inputs: number): number {
  return roundUp(outputs, PANEL_OUTPUTS) * roundUp(inputs, INPUT_STEP);
}

/**
 * Rewrites a weight [outputs, inputs] as {@link compileProduct} reads it: panels of eight outputs, in each the eight
 * weights of one input side by side; what is missing at the edges is 0.
 */
export function packMatrix(
  weight: Float32Array,
  outputs: number,
  inputs: number,
  packed: Float32Array,
): void {
  const depth = roundUp(inputs, INPUT_STEP);
  packed.fill(0);
  for (let output = 0; output < outputs; output++) {
    let to = Math.floor(output / PANEL_OUTPUTS) * PANEL_OUTPUTS * depth + (output % PANEL_OUTPUTS);
    const from = output * inputs;
    for (let input = 0; input < inputs; input++, to += PANEL_OUTPUTS) packed[to] = weight[from + input];
  }
}

/** Operands of a product; addresses and strides in bytes. */
export interface ProductOperands {
  /** [rows, inputs], rows rounded up to {@link TILE_ROWS}, inputs to {@link INPUT_STEP} with zeros. */
  readonly rows: number;
  readonly x: number;
  readonly xStride: number;
  /** A packed matrix. */
  readonly weight: number;
  readonly inputs: number;
  readonly outputs: number;
  /** One number per output, rounded up to {@link PANEL_OUTPUTS}. */
  readonly bias: number;
  readonly result: number;
  readonly resultStride: number;
  /** Adds to what the result holds. */
  readonly accumulate: boolean;
}

export type Product = (operands: ProductOperands) => void;

/**
 * x · weightᵀ + bias for few rows and a packed weight, at about three quarters of what 128-bit vectors can give. Every
 * result is one chain of multiply-adds over the inputs in order, whatever the number of rows.
 */
export function compileProduct(memory: WebAssembly.Memory): Product {
  const locals = new FunctionLocals(Array<'i32'>(10).fill('i32'));
  const [x, xStride, tiles, weight, depthBytes, panels, bias, result, resultStride, accumulate] =
    locals.parameters;
  const [panel, tile, at, end, from, to] = locals.locals('i32', 6);
  const sources = locals.locals('i32', TILE_ROWS);
  const sums = locals.locals('v128', TILE_ROWS * VECTORS);
  const columns = locals.locals('v128', VECTORS);
  const factor = locals.local('v128');
  const rowOf = (base: Code, stride: Code): Code =>
    i32.add(base, i32.mul(i32.mul(tile.get, i32.const(TILE_ROWS)), stride));
  const step = (input: number): Code => [
    ...columns.map((column, v) =>
      column.set(f32x4.load(at.get, input * PANEL_OUTPUTS * FLOAT_BYTES + v * VECTOR_BYTES)),
    ),
    ...sources.map((source, row) => [
      factor.set(f32x4.loadSplat(source.get, input * FLOAT_BYTES)),
      ...columns.map((column, v) => {
        const sum = sums[row * VECTORS + v];
        return sum.set(f32x4.multiplyAdd(factor.get, column.get, sum.get));
      }),
    ]),
  ];
  const body = forLoop(
    panel,
    i32.const(0),
    panels.get,
    i32.const(1),
    from.set(i32.add(weight.get, i32.mul(panel.get, depthBytes.get))),
    end.set(i32.add(from.get, depthBytes.get)),
    forLoop(
      tile,
      i32.const(0),
      tiles.get,
      i32.const(1),
      ...sources.map((source, row) =>
        source.set(row === 0 ? rowOf(x.get, xStride.get) : i32.add(sources[row - 1].get, xStride.get)),
      ),
      to.set(i32.add(bias.get, i32.mul(panel.get, i32.const(PANEL_OUTPUTS * FLOAT_BYTES)))),
      ...sums.map((sum, s) => sum.set(f32x4.load(to.get, (s % VECTORS) * VECTOR_BYTES))),
      forLoop(
        at,
        from.get,
        end.get,
        i32.const(INPUT_STEP * PANEL_OUTPUTS * FLOAT_BYTES),
        ...times(INPUT_STEP, step),
        ...sources.map(source => source.set(i32.add(source.get, i32.const(INPUT_STEP * FLOAT_BYTES)))),
      ),
      to.set(
        i32.add(
          rowOf(result.get, resultStride.get),
          i32.mul(panel.get, i32.const(PANEL_OUTPUTS * FLOAT_BYTES)),
        ),
      ),
      ...times(TILE_ROWS, row => [
        ...times(VECTORS, v => {
          const sum = sums[row * VECTORS + v];
          return [
            when(accumulate.get, sum.set(f32x4.add(f32x4.load(to.get, v * VECTOR_BYTES), sum.get))),
            f32x4.store(to.get, sum.get, v * VECTOR_BYTES),
          ];
        }),
        to.set(i32.add(to.get, resultStride.get)),
      ]),
    ),
  );
  const run = compileKernel(locals, [body], memory);
  return operands =>
    run(
      operands.x,
      operands.xStride,
      Math.ceil(operands.rows / TILE_ROWS),
      operands.weight,
      roundUp(operands.inputs, INPUT_STEP) * PANEL_OUTPUTS * FLOAT_BYTES,
      Math.ceil(operands.outputs / PANEL_OUTPUTS),
      operands.bias,
      operands.result,
      operands.resultStride,
      Number(operands.accumulate),
    );
}
