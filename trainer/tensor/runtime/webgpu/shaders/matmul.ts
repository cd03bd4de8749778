import type { MatmulAttributes } from '../../../graph/operations/products.ts';
import type { MatrixMultiplication } from '../device/device.ts';
import { reduceMiddle } from '../kernels/reduce.ts';
import {
  ALIGNMENT,
  cutBox,
  type DeviceValue,
  type KernelDispatch,
  offsetOf,
  type ScratchSpace,
  spanOf,
  windowOf,
} from '../lowering/program.ts';
import { BUSY, extentFor, matrixProductCode, type SideForm } from './matrix-product.ts';
import { over, productBindings, tilePlace } from './shader-text.ts';

/** Threads of a workgroup along rows and along columns, and inner extent of the strips in shared memory. */
const THREADS = 16;
/** Rows and columns that one thread computes in registers, for large and for small products. */
const LARGE = 4;
const SMALL = 1;
/** Smallest number of rows and columns for which the large tile is faster. */
const LARGE_EXTENT = 48;
/** Parts of the inner axis at most: one thread sums them up. */
const MAX_PARTS = 64;
/** Workgroups that keep a GPU busy, and inner entries of a part at least, for large and for small tiles. */
const PARTS = {
  large: { workgroups: BUSY, leastInner: 256 },
  small: { workgroups: 8 * BUSY, leastInner: 128 },
};
/** Steps of the inner loop that are written out. */
const UNROLLED = 4;

/** Products over the last two axes, with leading axes as strides in whole matrices. */
export interface ProductSizes {
  readonly rows: number;
  readonly columns: number;
  readonly inner: number;
  /** Leading axes of the result, at most two, outermost first. */
  readonly batch: readonly [outer: number, inner: number];
  /** Strides of each side along them, in elements; 0 repeats. */
  readonly left: readonly [outer: number, inner: number];
  readonly right: readonly [outer: number, inner: number];
}

/**
 * A register-tiled product: a workgroup computes a square of 16 · tile rows and columns. It reads strips of 16 inner
 * entries of both sides into shared memory. Each thread reads `tile` rows and columns of them in one vector and
 * multiplies tile × tile results in registers. Strides say how the sides are laid out; of a thread's two possible
 * places in a strip, it takes the one where neighbors read neighbors.
 * @param half rounds the factors to float16; sums are float32
 */
function productCode(tile: number, half: boolean): string {
  const extent = THREADS * tile;
  const vectorOf = (type: string): string => (tile === 1 ? type : `vec${tile}<${type}>`);
  const vector = vectorOf('f32');
  const stored = vectorOf(half ? 'f16' : 'f32');
  const each = (line: (i: number) => string): string => over(tile, line);
  const part = (name: string, i: number): string => (tile === 1 ? name : `${name}[${i}]`);
  const load = (side: 'left' | 'right', across: 'rows' | 'columns', first: string): string => `
    {
      let fast = thread % ${THREADS}u;
      let slow = thread / ${THREADS}u;
      let inner = select(slow, fast, u.${side}InnerFast == 1u);
      let group_of = select(fast, slow, u.${side}InnerFast == 1u);
      let place = ${first} + group_of * ${tile}u;
      let at = ${side}_start + (depth + inner) * u.${side}InnerStride + place * u.${side}Stride;
      var value = ${vector}();
      if (depth + inner < u.inner) {
${each(i => `        if (place + ${i}u < u.${across}) { ${part('value', i)} = ${side}[at + ${i}u * u.${side}Stride]; }`)}
      }
      ${side}_strip[inner * ${THREADS}u + group_of] = ${stored}(value);
    }`;
  const multiply = (step: number): string => `
      {
        let a = ${vector}(left_strip[(k + ${step}u) * ${THREADS}u + local.y]);
        let b = ${vector}(right_strip[(k + ${step}u) * ${THREADS}u + local.x]);
${each(i => `        sums${i} = fma(${vector}(${part('a', i)}), b, sums${i});`)}
      }`;
  return `${half ? 'enable f16;' : ''}
${productBindings(false, false)}var<workgroup> left_strip : array<${stored}, ${THREADS ** 2}>;
var<workgroup> right_strip : array<${stored}, ${THREADS ** 2}>;

@compute @workgroup_size(${THREADS}, ${THREADS})
fn main(
  @builtin(workgroup_id) group : vec3<u32>,
  @builtin(local_invocation_id) local : vec3<u32>,
  @builtin(local_invocation_index) thread : u32,
) {
${tilePlace(extent)}
${each(i => `  var sums${i} = ${vector}();`)}
  for (var depth = 0u; depth < u.inner; depth += u.strip) {${load('left', 'rows', 'first_row')}${load('right', 'columns', 'first_column')}
    workgroupBarrier();
    for (var k = 0u; k < u.strip; k += ${UNROLLED}u) {${Array.from({ length: UNROLLED }, (_, step) => multiply(step)).join('')}
    }
    workgroupBarrier();
  }
  let row = first_row + local.y * ${tile}u;
  let column = first_column + local.x * ${tile}u;
${each(i => each(j => `  if (row + ${i}u < u.rows && column + ${j}u < u.columns) { put(group.z, row + ${i}u, column + ${j}u, ${part(`sums${i}`, j)} * u.scale); }`))}
}
`;
}

/** Layout of a product's side in its array: strides in elements, across the axis that the result keeps and along the inner axis. */
interface MatmulSide {
  readonly value: DeviceValue;
  readonly start: number;
  readonly stride: number;
  readonly inner: number;
}

/** A product that one dispatch computes. */
interface ProductPart {
  readonly left: MatmulSide;
  readonly right: MatmulSide;
  readonly result: { readonly value: DeviceValue; readonly start: number; readonly stride: number };
  readonly sizes: ProductSizes;
  /** Elements from one matrix of the result to the next. */
  readonly resultBatch: number;
  readonly scale: number;
  /** Adds to what the result holds. */
  readonly adding: boolean;
}

/**
 * A product of two tensors, as the graph's operation defines it. Where a shader cannot bind the whole arrays, it is
 * made of products of pieces of rows, columns and inner entries; those of inner pieces are added up in order.
 * @param products the device's method of matrix multiplication
 */
export function product(
  {
    left,
    right,
    result,
  }: { readonly left: DeviceValue; readonly right: DeviceValue; readonly result: DeviceValue },
  sizes: ProductSizes,
  { transposeA, transposeB, scale }: MatmulAttributes,
  products: MatrixMultiplication,
  scratch: ScratchSpace,
): KernelDispatch[] {
  const { most } = scratch;
  const { rows, columns, inner, batch } = sizes;
  const strides = {
    left: transposeA ? { stride: 1, inner: rows } : { stride: inner, inner: 1 },
    right: transposeB ? { stride: inner, inner: 1 } : { stride: 1, inner: columns },
  };
  const whole: ProductPart = {
    left: { value: left, start: 0, ...strides.left },
    right: { value: right, start: 0, ...strides.right },
    result: { value: result, start: 0, stride: columns },
    sizes,
    resultBatch: rows * columns,
    scale,
    adding: false,
  };
  if ([left, right, result].every(({ length }) => length <= most)) return inParts(whole, products, scratch);
  // Along rows, columns, inner entries; windows begin up to an alignment before the first element.
  const reach = [
    [strides.left.stride, 0, strides.left.inner],
    [0, strides.right.stride, strides.right.inner],
    [columns, 1, 0],
  ];
  const pieces = cutBox([rows, columns, inner], reach, most - ALIGNMENT + 1);
  const matrices = Array.from({ length: batch[0] * batch[1] }, (_, matrix) => [
    Math.floor(matrix / batch[1]),
    matrix % batch[1],
  ]);
  return matrices.flatMap(([outer, inside], matrix) =>
    pieces.map(piece => {
      const [first, from, depth] = piece.starts;
      const [height, width, along] = piece.extents;
      const window = (value: DeviceValue, base: number, own: readonly number[]) =>
        windowOf(value, base + offsetOf(piece, own), spanOf(piece.extents, own));
      const starts = [sizes.left, sizes.right].map(side => outer * side[0] + inside * side[1]);
      return dispatch(
        {
          left: { ...strides.left, ...window(left, starts[0], reach[0]) },
          right: { ...strides.right, ...window(right, starts[1], reach[1]) },
          result: { stride: columns, ...window(result, matrix * rows * columns, reach[2]) },
          sizes: { rows: height, columns: width, inner: along, batch: [1, 1], left: [0, 0], right: [0, 0] },
          resultBatch: 0,
          scale,
          adding: depth > 0,
        },
        products,
        `, from ${first}, ${depth}, ${from} on`,
      );
    }),
  );
}

/** A product with its inner axis cut into parts where its results alone do not keep a GPU busy; parts are summed in order. */
function inParts(
  whole: ProductPart,
  products: MatrixMultiplication,
  scratch: ScratchSpace,
): KernelDispatch[] {
  const { left, right, result, sizes } = whole;
  const { rows, columns, inner } = sizes;
  const length = partLength(sizes, products);
  const count = Math.ceil(inner / length);
  if (count === 1) return [dispatch(whole, products)];
  const parts = scratch.allocate(count * rows * columns);
  const from = (first: number, many: number, own: number): KernelDispatch =>
    dispatch(
      {
        ...whole,
        left: { ...left, start: first * length * left.inner },
        right: { ...right, start: first * length * right.inner },
        result: { ...result, value: parts, start: first * rows * columns },
        sizes: {
          rows,
          columns,
          inner: own,
          batch: [1, many],
          left: [0, length * left.inner],
          right: [0, length * right.inner],
        },
      },
      products,
      `, in ${count} parts`,
    );
  const equal = Math.floor(inner / length);
  return [
    from(0, equal, length),
    ...(equal < count ? [from(equal, 1, inner - equal * length)] : []),
    ...reduceMiddle('sum', parts, { outer: 1, middle: count, inner: rows * columns }, result.value, scratch),
  ];
}

/** Inner entries of a part. */
function partLength({ rows, columns, inner, batch }: ProductSizes, products: MatrixMultiplication): number {
  if (batch[0] * batch[1] > 1) return inner;
  const { extent, large } = tileOf(rows, columns, 1, products);
  const { workgroups, leastInner } = large ? PARTS.large : PARTS.small;
  const tiles = Math.ceil(rows / extent) * Math.ceil(columns / extent);
  const parts = Math.min(MAX_PARTS, Math.ceil(workgroups / tiles), Math.floor(inner / leastInner));
  return parts < 2 ? inner : Math.ceil(inner / parts / ALIGNMENT) * ALIGNMENT;
}

/** Rows and columns that a workgroup computes, and how. */
function tileOf(rows: number, columns: number, matrices: number, products: MatrixMultiplication) {
  const large = Math.min(rows, columns) >= LARGE_EXTENT;
  const tile = large ? LARGE : SMALL;
  const extent = products.kind === 'subgroup' && large ? extentFor(rows, columns, matrices) : THREADS * tile;
  return { large, tile, extent };
}

function dispatch(part: ProductPart, products: MatrixMultiplication, where = ''): KernelDispatch {
  const { left, right, result, sizes, resultBatch, scale, adding } = part;
  const { rows, columns, inner, batch } = sizes;
  const { large, tile, extent } = tileOf(rows, columns, batch[0] * batch[1], products);
  const side = ({ stride, inner: along }: MatmulSide) => [stride, along, along === 1 ? 1 : 0];
  const words = new DataView(new ArrayBuffer(88));
  [
    rows,
    columns,
    inner,
    batch[1],
    ...sizes.left,
    ...sizes.right,
    ...side(left),
    ...side(right),
    THREADS,
  ].forEach((word, i) => {
    words.setUint32(4 * i, word, true);
  });
  words.setFloat32(60, scale, true);
  [left.start, right.start, result.start, result.stride, resultBatch, adding ? 1 : 0].forEach((word, i) => {
    words.setUint32(64 + 4 * i, word, true);
  });
  return {
    name: `matmul ${rows} × ${inner} × ${columns}${where}`,
    code:
      products.kind === 'subgroup' && large
        ? matrixProductCode(products, {
            extent,
            left: formOf(left, sizes.left, rows, inner),
            right: formOf(right, sizes.right, columns, inner),
          })
        : productCode(tile, products.kind !== 'float32'),
    uniforms: words.buffer,
    reads: [left.value, right.value],
    writes: [result.value],
    groups: [Math.ceil(columns / extent), Math.ceil(rows / extent), batch[0] * batch[1]],
  };
}

function formOf(
  { start, stride, inner: along }: MatmulSide,
  matrices: readonly number[],
  across: number,
  inner: number,
): SideForm {
  const innerFast = along === 1;
  const starts = [start, ...matrices, innerFast ? stride : along, innerFast ? inner : across];
  return { innerFast, aligned: starts.every(element => element % 4 === 0) };
}
