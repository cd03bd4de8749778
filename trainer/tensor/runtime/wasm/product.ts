import { type Code, compileKernel, FunctionLocals, f32x4, forLoop, i32, type Local, when } from './code.ts';
import { times } from './vector-math.ts';

/** Outputs of a panel: results need room for a multiple of it. */
export const PANEL_OUTPUTS = 8;
/** Rows taken at once, but for the last few. */
const TILE_ROWS = 4;
/** Inputs taken in one turn of the inner loop, but for the last few. */
const UNROLLED_INPUTS = 8;
const LANES = 4;
const VECTORS = PANEL_OUTPUTS / LANES;
const FLOAT_BYTES = 4;
const VECTOR_BYTES = LANES * FLOAT_BYTES;
const PANEL_BYTES = PANEL_OUTPUTS * FLOAT_BYTES;

export function roundUp(count: number, step: number): number {
  return Math.ceil(count / step) * step;
}

/** Floats a matrix of this size takes when packed. */
export function packedSize(outputs: number, inputs: number): number {
  return roundUp(outputs, PANEL_OUTPUTS) * inputs;
}

/**
 * Rewrites a weight [outputs, inputs] in panels of eight outputs, in each the eight weights of one input side by side; what
 * is missing in the last panel is 0.
 */
export function packMatrix(
  weight: Float32Array,
  outputs: number,
  inputs: number,
  packed: Float32Array,
): void {
  packed.fill(0);
  for (let output = 0; output < outputs; output++) {
    const panel = Math.floor(output / PANEL_OUTPUTS) * PANEL_OUTPUTS * inputs;
    const from = output * inputs;
    let to = panel + (output % PANEL_OUTPUTS);
    for (let input = 0; input < inputs; input++, to += PANEL_OUTPUTS) packed[to] = weight[from + input];
  }
}

/** Operands of a product; addresses and strides in bytes. */
export interface ProductOperands {
  readonly rows: number;
  readonly inputs: number;
  readonly outputs: number;
  /** [rows, inputs] */
  readonly x: number;
  readonly xStride: number;
  /** From {@link packMatrix}. */
  readonly weight: number;
  /** One number per output, rounded up to {@link PANEL_OUTPUTS}. */
  readonly bias: number;
  readonly result: number;
  readonly resultStride: number;
  /** Adds to what the result holds. */
  readonly accumulate: boolean;
}

export type MatrixProduct = (operands: ProductOperands) => void;

/**
 * x · weightᵀ + bias for few rows, at about three quarters of what 128-bit vectors can give. Every result is one chain of
 * multiply-adds over the inputs in order, for any number of rows.
 */
export function compileProduct(memory: WebAssembly.Memory): MatrixProduct {
  const locals = new FunctionLocals(Array<'i32'>(10).fill('i32'));
  const run = compileKernel(locals, productCode(locals), memory);
  return operands =>
    run(
      operands.rows,
      operands.inputs,
      Math.ceil(operands.outputs / PANEL_OUTPUTS),
      operands.x,
      operands.xStride,
      operands.weight,
      operands.bias,
      operands.result,
      operands.resultStride,
      Number(operands.accumulate),
    );
}

/** The kernel's code: panels of outputs, in each the rows by tiles, in each tile the inputs. */
function productCode(locals: FunctionLocals): Code[] {
  const [rows, inputs, panels, x, xStride, weight, bias, result, resultStride, accumulate] =
    locals.parameters;
  const [panel, row, input, at, from, to, tiledRows, tiledInputs] = locals.locals('i32', 8);
  const sources = locals.locals('i32', TILE_ROWS);
  const sums = locals.locals('v128', TILE_ROWS * VECTORS);
  const columns = locals.locals('v128', VECTORS);
  const factor = locals.local('v128');

  const forward = (pointer: Local, bytes: Code): Code => pointer.set(i32.add(pointer.get, bytes));
  const rowStart = (base: Local, stride: Local): Code => i32.add(base.get, i32.mul(row.get, stride.get));
  /** Adds the products of `count` inputs from where the pointers stand, and moves them on. */
  const multiply = (tileRows: number, count: number): Code => [
    times(count, step => [
      columns.map((column, v) => column.set(f32x4.load(at.get, step * PANEL_BYTES + v * VECTOR_BYTES))),
      times(tileRows, r => [
        factor.set(f32x4.loadSplat(sources[r].get, step * FLOAT_BYTES)),
        columns.map((column, v) => {
          const sum = sums[r * VECTORS + v];
          return sum.set(f32x4.multiplyAdd(factor.get, column.get, sum.get));
        }),
      ]),
    ]),
    forward(at, i32.const(count * PANEL_BYTES)),
    times(tileRows, r => forward(sources[r], i32.const(count * FLOAT_BYTES))),
  ];
  const tile = (tileRows: number): Code => [
    times(tileRows, r =>
      sources[r].set(r === 0 ? rowStart(x, xStride) : i32.add(sources[r - 1].get, xStride.get)),
    ),
    to.set(i32.add(bias.get, i32.mul(panel.get, i32.const(PANEL_BYTES)))),
    times(tileRows * VECTORS, s => sums[s].set(f32x4.load(to.get, (s % VECTORS) * VECTOR_BYTES))),
    at.set(from.get),
    forLoop(
      input,
      i32.const(0),
      tiledInputs.get,
      i32.const(UNROLLED_INPUTS),
      multiply(tileRows, UNROLLED_INPUTS),
    ),
    forLoop(input, tiledInputs.get, inputs.get, i32.const(1), multiply(tileRows, 1)),
    to.set(i32.add(rowStart(result, resultStride), i32.mul(panel.get, i32.const(PANEL_BYTES)))),
    times(tileRows, r => [
      times(VECTORS, v => {
        const sum = sums[r * VECTORS + v];
        return [
          when(accumulate.get, sum.set(f32x4.add(f32x4.load(to.get, v * VECTOR_BYTES), sum.get))),
          f32x4.store(to.get, sum.get, v * VECTOR_BYTES),
        ];
      }),
      forward(to, resultStride.get),
    ]),
  ];
  return [
    tiledRows.set(i32.and(rows.get, i32.const(-TILE_ROWS))),
    tiledInputs.set(i32.and(inputs.get, i32.const(-UNROLLED_INPUTS))),
    from.set(weight.get),
    forLoop(
      panel,
      i32.const(0),
      panels.get,
      i32.const(1),
      forLoop(row, i32.const(0), tiledRows.get, i32.const(TILE_ROWS), tile(TILE_ROWS)),
      forLoop(row, tiledRows.get, rows.get, i32.const(1), tile(1)),
      forward(from, i32.mul(inputs.get, i32.const(PANEL_BYTES))),
    ),
  ];
}
