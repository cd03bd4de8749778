import { type Code, compileKernel, FunctionLocals, f32, f32x4, forLoop, i32 } from './code.ts';
import { acrossLanes, powerOfTwo } from './vector-math.ts';

const FLOAT_BYTES = 4;
const VECTOR_BYTES = 16;

/** Rows to normalize; addresses and strides in bytes. */
export interface NormOperands {
  readonly rows: number;
  readonly x: number;
  readonly stride: number;
  /** Entries of a row. Rows and weight are padded with zeros to a multiple of four. */
  readonly width: number;
  readonly weight: number;
  readonly epsilon: number;
  /** May be `x`; of the same stride. */
  readonly result: number;
}

export type NormKernel = (operands: NormOperands) => void;

/** x / √(mean(x²) + ε) · weight, row by row. */
export function compileNorm(memory: WebAssembly.Memory): NormKernel {
  const locals = new FunctionLocals(['i32', 'i32', 'i32', 'i32', 'i32', 'i32', 'f32', 'f32']);
  const [x, end, stride, widthBytes, weight, result, inverseWidth, epsilon] = locals.parameters;
  const [row, at, target] = locals.locals('i32', 3);
  const [value, sum, factor] = locals.locals('v128', 3);
  const offset = i32.add(row.get, at.get);
  const mean = f32.mul(acrossLanes(sum.get, f32.add), inverseWidth.get);
  const overRow = (...body: readonly Code[]): Code =>
    forLoop(at, i32.const(0), widthBytes.get, i32.const(VECTOR_BYTES), ...body);
  const body = [
    target.set(result.get),
    forLoop(
      row,
      x.get,
      end.get,
      stride.get,
      sum.set(f32x4.constant(0)),
      overRow(value.set(f32x4.load(offset)), sum.set(f32x4.multiplyAdd(value.get, value.get, sum.get))),
      factor.set(f32x4.splat(f32.div(f32.const(1), f32.sqrt(f32.add(mean, epsilon.get))))),
      overRow(
        value.set(f32x4.mul(f32x4.load(offset), factor.get)),
        f32x4.store(
          i32.add(target.get, at.get),
          f32x4.mul(value.get, f32x4.load(i32.add(weight.get, at.get))),
        ),
      ),
      target.set(i32.add(target.get, stride.get)),
    ),
  ];
  const run = compileKernel(locals, body, memory);
  return ({ rows, x, stride, width, weight, epsilon, result }) =>
    run(x, x + rows * stride, stride, width * FLOAT_BYTES, weight, result, 1 / width, epsilon);
}

/** `run(gate, up, count)`: gate ← gate · sigmoid(gate) · up over `count` floats, a multiple of four. */
export type GatedSiluKernel = (gate: number, up: number, count: number) => void;

export function compileGatedSilu(memory: WebAssembly.Memory): GatedSiluKernel {
  const locals = new FunctionLocals(['i32', 'i32', 'i32']);
  const [gate, up, bytes] = locals.parameters;
  const at = locals.local('i32');
  const [x, power, shifted, numerator] = locals.locals('v128', 4);
  const place = i32.add(gate.get, at.get);
  const exponent = f32x4.mul(f32x4.neg(f32x4.abs(x.get)), f32x4.constant(Math.LOG2E));
  // With e = exp(−|x|), sigmoid(x) is 1 / (1 + e) from 0 on and e / (1 + e) below.
  const body = forLoop(
    at,
    i32.const(0),
    bytes.get,
    i32.const(VECTOR_BYTES),
    x.set(f32x4.load(place)),
    ...powerOfTwo(power, shifted, exponent),
    numerator.set(f32x4.select(power.get, f32x4.constant(1), f32x4.less(x.get, f32x4.constant(0)))),
    numerator.set(f32x4.mul(f32x4.mul(x.get, numerator.get), f32x4.load(i32.add(up.get, at.get)))),
    f32x4.store(place, f32x4.div(numerator.get, f32x4.add(power.get, f32x4.constant(1)))),
  );
  const run = compileKernel(locals, [body], memory);
  return (gateAddress, upAddress, count) => run(gateAddress, upAddress, count * FLOAT_BYTES);
}
