import { attentionReferences, type NdArray, type References } from './attention-reference.test-data.ts';
import { operations } from './graph.ts';
import {
  type BlockAttributes,
  type BlockMatmulAttributes,
  dequantize,
  type QuantizedMatmulAttributes,
  unpackBlocks,
} from './operations/blocks.ts';
import type {
  CastAttributes,
  ConcatAttributes,
  PadAttributes,
  PutAttributes,
  SliceAttributes,
  TransposeAttributes,
} from './operations/movement.ts';
import type { ScalarFunction } from './operations/operation.ts';
import {
  type MatmulAttributes,
  matrixOf,
  type ReduceAttributes,
  type RmsNormalizeAttributes,
} from './operations/products.ts';
import { type Attributes, type Shape, sizeOf, stridesOf, type TensorType } from './tensor.ts';

/** The result of an operation in float64. Of an elementwise one it follows from its scalar function. */
export function evaluate(
  operation: string,
  inputs: readonly NdArray[],
  attributes: Attributes,
  type: TensorType,
): Float64Array {
  const reference = references[operation] ?? attentionReferences[operation];
  if (reference !== undefined) return reference(inputs, attributes, type);
  const scalar = exact[operation] ?? operations.get(operation)!.elementwise!.scalar;
  const out = new Float64Array(sizeOf(type.shape));
  forEachBroadcast(type.shape, inputs, (i, offsets) => {
    out[i] = scalar(...inputs.map(({ data }, k) => data[offsets[k]]));
  });
  return out;
}

/** Functions of numbers where the product's own, made for float32, is less exact. */
const exact: Readonly<Record<string, ScalarFunction | undefined>> = {
  sign: Math.sign,
  sigmoid: x => 1 / (1 + Math.exp(-x)),
  silu: x => x / (1 + Math.exp(-x)),
  tanh: Math.tanh,
  erf: exactErf,
};

/** Taylor series 2/√π exp(−x²) Σ 2ⁿ x²ⁿ⁺¹ / (2n+1)!!; all its terms have the same sign. */
function exactErf(x: number): number {
  if (Math.abs(x) > 6) return Math.sign(x);
  let term = x;
  let sum = x;
  for (let n = 1; Math.abs(term) > 1e-17 * Math.abs(sum); n++) {
    term *= (2 * x * x) / (2 * n + 1);
    sum += term;
  }
  return (2 / Math.sqrt(Math.PI)) * Math.exp(-x * x) * sum;
}

/** Calls `visit(outputIndex, offsets…)` for each element of `shape`, with the broadcast offset into each input. */
function forEachBroadcast(
  shape: Shape,
  inputs: readonly { readonly shape: Shape }[],
  visit: (index: number, offsets: readonly number[]) => void,
): void {
  const rank = shape.length;
  const steps = inputs.map(input => {
    const strides = stridesOf(input.shape);
    const padded = new Array<number>(rank).fill(0);
    for (let i = 0; i < input.shape.length; i++) {
      const axis = rank - input.shape.length + i;
      padded[axis] = input.shape[i] === 1 ? 0 : strides[i];
    }
    return padded;
  });
  const counter = new Array<number>(rank).fill(0);
  const offsets = new Array<number>(inputs.length).fill(0);
  const total = sizeOf(shape);
  for (let index = 0; index < total; index++) {
    visit(index, offsets);
    for (let axis = rank - 1; axis >= 0; axis--) {
      counter[axis]++;
      for (let k = 0; k < inputs.length; k++) offsets[k] += steps[k][axis];
      if (counter[axis] < shape[axis]) break;
      for (let k = 0; k < inputs.length; k++) offsets[k] -= steps[k][axis] * shape[axis];
      counter[axis] = 0;
    }
  }
}

const references: References = {
  cast([x], { to }: CastAttributes) {
    if (to === 'bool') return x.data.map(value => (value !== 0 ? 1 : 0));
    return to === 'int32' ? x.data.map(Math.trunc) : x.data;
  },
  stopGradient: ([x]) => x.data,
  reshape: ([x]) => x.data,
  transpose([x], { permutation }: TransposeAttributes, type) {
    const out = new Float64Array(sizeOf(type.shape));
    const target = stridesOf(type.shape);
    const source = stridesOf(x.shape);
    forEachBroadcast(type.shape, [], i => {
      let offset = 0;
      for (let axis = 0; axis < target.length; axis++) {
        offset += (Math.floor(i / target[axis]) % type.shape[axis]) * source[permutation[axis]];
      }
      out[i] = x.data[offset];
    });
    return out;
  },
  broadcastTo([x], _attributes, { shape }) {
    const out = new Float64Array(sizeOf(shape));
    forEachBroadcast(shape, [x], (i, [ix]) => {
      out[i] = x.data[ix];
    });
    return out;
  },
  slice([x], { axis, start, end }: SliceAttributes, type) {
    const inner = sizeOf(x.shape.slice(axis + 1));
    const outer = sizeOf(x.shape.slice(0, axis));
    const width = (end - start) * inner;
    const out = new Float64Array(sizeOf(type.shape));
    for (let o = 0; o < outer; o++) {
      const from = (o * x.shape[axis] + start) * inner;
      out.set(x.data.subarray(from, from + width), o * width);
    }
    return out;
  },
  pad([x], { axis, before }: PadAttributes, type) {
    const inner = sizeOf(x.shape.slice(axis + 1));
    const outer = sizeOf(x.shape.slice(0, axis));
    const width = x.shape[axis] * inner;
    const out = new Float64Array(sizeOf(type.shape));
    for (let o = 0; o < outer; o++) {
      out.set(x.data.subarray(o * width, (o + 1) * width), (o * type.shape[axis] + before) * inner);
    }
    return out;
  },
  concat(inputs, { axis }: ConcatAttributes, type) {
    const out = new Float64Array(sizeOf(type.shape));
    const inner = sizeOf(type.shape.slice(axis + 1));
    const outer = sizeOf(type.shape.slice(0, axis));
    const stride = type.shape[axis] * inner;
    let start = 0;
    for (const x of inputs) {
      const width = x.shape[axis] * inner;
      for (let o = 0; o < outer; o++)
        out.set(x.data.subarray(o * width, (o + 1) * width), o * stride + start);
      start += width;
    }
    return out;
  },
  gather([table, ids], _attributes, type) {
    const width = sizeOf(table.shape.slice(1));
    const out = new Float64Array(sizeOf(type.shape));
    ids.data.forEach((id, i) => {
      if (!(id >= 0 && id < table.shape[0])) {
        throw new RangeError(`gather: id ${id} is outside a table of ${table.shape[0]} rows`);
      }
      out.set(table.data.subarray(id * width, (id + 1) * width), i * width);
    });
    return out;
  },
  scatterAddRows([updates, ids], _attributes, type) {
    const width = sizeOf(type.shape.slice(1));
    const out = new Float64Array(sizeOf(type.shape));
    ids.data.forEach((id, i) => {
      for (let column = 0; column < width; column++)
        out[id * width + column] += updates.data[i * width + column];
    });
    return out;
  },
  takeLast([x, ids]) {
    const width = x.shape[x.shape.length - 1];
    return ids.data.map((id, row) => x.data[row * width + id]);
  },
  putLast([values, ids], { width }: PutAttributes, type) {
    const out = new Float64Array(sizeOf(type.shape));
    ids.data.forEach((id, row) => {
      out[row * width + id] = values.data[row];
    });
    return out;
  },
  matmul([a, b], { transposeA, transposeB, scale }: MatmulAttributes, type) {
    const left = matrixOf(a.shape, transposeA);
    const right = matrixOf(b.shape, transposeB);
    const m = left.rows;
    const n = right.columns;
    const k = left.columns;
    const out = new Float64Array(sizeOf(type.shape));
    const batches = [{ shape: a.shape.slice(0, -2) }, { shape: b.shape.slice(0, -2) }];
    forEachBroadcast(type.shape.slice(0, -2), batches, (i, [ia, ib]) => {
      const aStart = ia * m * k;
      const bStart = ib * k * n;
      for (let row = 0; row < m; row++) {
        for (let column = 0; column < n; column++) {
          let total = 0;
          for (let inner = 0; inner < k; inner++) {
            const x = a.data[aStart + (transposeA ? inner * m + row : row * k + inner)];
            total += x * b.data[bStart + (transposeB ? column * k + inner : inner * n + column)];
          }
          out[(i * m + row) * n + column] = total * scale;
        }
      }
    });
    return out;
  },
  quantizedMatmul(
    [x, codes, scales],
    { kind, outputs, inputs, transposed }: QuantizedMatmulAttributes,
    type,
  ) {
    const weights = dequantize(kind, codes.data, scales.data, [outputs, inputs]);
    return productWith(x.data, weights, { outputs, inputs, transposed }, type.shape);
  },
  blockMatmul([x, ...parts], attributes: BlockMatmulAttributes, type) {
    const { outputs, inputs } = attributes;
    const weights = unpackBlocks(
      attributes,
      parts.map(({ data }) => data),
      new Float64Array(outputs * inputs),
    );
    return productWith(x.data, weights, attributes, type.shape);
  },
  blockRows([ids, ...parts], attributes: BlockAttributes, type) {
    const { outputs, inputs } = attributes;
    const weights = unpackBlocks(
      attributes,
      parts.map(({ data }) => data),
      new Float64Array(outputs * inputs),
    );
    const out = new Float64Array(sizeOf(type.shape));
    ids.data.forEach((id, row) => {
      out.set(weights.subarray(id * inputs, (id + 1) * inputs), row * inputs);
    });
    return out;
  },
  sum: ([x], { axes }: ReduceAttributes) => reduce(x, axes, 0, (total, value) => total + value),
  max: ([x], { axes }: ReduceAttributes) => reduce(x, axes, Number.NEGATIVE_INFINITY, Math.max),
  softmax: ([x]) => logSoftmaxRows(x).map(Math.exp),
  logSoftmax: ([x]) => logSoftmaxRows(x),
  rmsNormalize([x], { epsilon }: RmsNormalizeAttributes) {
    const width = x.shape[x.shape.length - 1];
    const inverse = inverseRms(x, epsilon);
    return x.data.map((value, i) => value * inverse[Math.floor(i / width)]);
  },
  inverseRms: ([x], { epsilon }: RmsNormalizeAttributes) => inverseRms(x, epsilon),
  rope([x, cos, sin], _attributes, type) {
    const [batch, time, heads, size] = x.shape;
    const half = size / 2;
    const out = new Float64Array(sizeOf(type.shape));
    for (let token = 0; token < batch * time; token++) {
      for (let head = 0; head < heads; head++) {
        const start = (token * heads + head) * size;
        for (let i = 0; i < half; i++) {
          const c = cos.data[token * half + i];
          const s = sin.data[token * half + i];
          const u = x.data[start + i];
          const v = x.data[start + half + i];
          out[start + i] = u * c - v * s;
          out[start + half + i] = v * c + u * s;
        }
      }
    }
    return out;
  },
};

/** Rows times an unpacked matrix [outputs, inputs]: by its transpose, or by the matrix itself where `transposed`. */
function productWith(
  data: Float64Array,
  weights: ArrayLike<number>,
  {
    outputs,
    inputs,
    transposed,
  }: { readonly outputs: number; readonly inputs: number; readonly transposed: boolean },
  shape: Shape,
): Float64Array {
  const out = new Float64Array(sizeOf(shape));
  const [rows, columns] = shape;
  const inner = transposed ? outputs : inputs;
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      let total = 0;
      for (let i = 0; i < inner; i++) {
        const weight = transposed ? weights[i * inputs + column] : weights[column * inputs + i];
        total += data[row * inner + i] * weight;
      }
      out[row * columns + column] = total;
    }
  }
  return out;
}

/** Folds `x` over the axes in float64. */
function reduce(
  x: NdArray,
  axes: readonly number[],
  initial: number,
  fold: (accumulated: number, value: number) => number,
): Float64Array {
  const kept = x.shape.map((extent, axis) => (axes.includes(axis) ? 1 : extent));
  const strides = stridesOf(x.shape);
  const target = stridesOf(kept).map((stride, axis) => (axes.includes(axis) ? 0 : stride));
  const out = new Float64Array(sizeOf(kept)).fill(initial);
  for (let i = 0; i < x.data.length; i++) {
    let offset = 0;
    for (let axis = 0; axis < strides.length; axis++) {
      offset += (Math.floor(i / strides[axis]) % x.shape[axis]) * target[axis];
    }
    out[offset] = fold(out[offset], x.data[i]);
  }
  return out;
}

/** log softmax of every row of the last axis, in float64. */
function logSoftmaxRows(x: NdArray): Float64Array {
  const width = x.shape[x.shape.length - 1];
  const out = new Float64Array(x.data.length);
  for (let start = 0; start < out.length; start += width) {
    const row = x.data.subarray(start, start + width);
    let largest = Number.NEGATIVE_INFINITY;
    for (const value of row) largest = Math.max(largest, value);
    let total = 0;
    for (const value of row) total += Math.exp(value - largest);
    const shift = largest + Math.log(total);
    for (let i = 0; i < width; i++) out[start + i] = row[i] - shift;
  }
  return out;
}

function inverseRms({ shape, data }: NdArray, epsilon: number): Float64Array {
  const width = shape[shape.length - 1];
  const out = new Float64Array(data.length / width);
  for (let row = 0; row < out.length; row++) {
    let total = 0;
    for (let i = 0; i < width; i++) total += data[row * width + i] ** 2;
    out[row] = 1 / Math.sqrt(total / width + epsilon);
  }
  return out;
}
