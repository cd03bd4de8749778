import { type MatmulAttributes, matmul } from '../../../graph/operations/matmul.ts';
import type { Products } from '../precision.ts';
import type { Step } from '../step.ts';
import { MATRIX_EXTENT, matrixProductCode } from './matrix-product.ts';
import { PRODUCT_BINDINGS } from './product-bindings.ts';
import { type TensorValue, toNdArray } from './reference.ts';

/** Threads of a workgroup along rows and along columns, and inner extent of the strips in shared memory. */
const THREADS = 16;
/** Rows and columns that one thread computes in registers, for large and for small products. */
const LARGE = 4;
const SMALL = 1;
/** Rows and columns from which the large tile pays. */
const LARGE_EXTENT = 48;
/** Steps of the inner loop that are written out. */
const UNROLLED = 4;

/** Products over the last two axes, with leading axes as strides in whole matrices. */
export interface ProductSizes {
  readonly rows: number;
  readonly columns: number;
  readonly inner: number;
  /** Leading axes of the result, at most two, outermost first. */
  readonly batch: readonly [outer: number, inner: number];
  /** How far each side moves along them, in elements; 0 repeats. */
  readonly left: readonly [outer: number, inner: number];
  readonly right: readonly [outer: number, inner: number];
}

/**
 * A register-tiled product: a workgroup computes a square of 16 · tile rows and columns. It takes strips of 16 inner entries
 * of both sides into shared memory, each thread `tile` rows and columns of them in one vector, and multiplies tile × tile
 * results in registers. Which way the sides lie is in their strides; of the two places that a thread can have in a
 * strip, it takes the one where neighbours read neighbours.
 *
 * @param half rounds the factors to float16; sums are float32
 */
function productCode(tile: number, half: boolean): string {
  const extent = THREADS * tile;
  const vectorOf = (type: string): string => (tile === 1 ? type : `vec${tile}<${type}>`);
  const vector = vectorOf('f32');
  const stored = vectorOf(half ? 'f16' : 'f32');
  const each = (line: (i: number) => string): string =>
    Array.from({ length: tile }, (_, i) => line(i)).join('\n');
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
${PRODUCT_BINDINGS}var<workgroup> left_strip : array<${stored}, ${THREADS ** 2}>;
var<workgroup> right_strip : array<${stored}, ${THREADS ** 2}>;

@compute @workgroup_size(${THREADS}, ${THREADS})
fn main(
  @builtin(workgroup_id) group : vec3<u32>,
  @builtin(local_invocation_id) local : vec3<u32>,
  @builtin(local_invocation_index) thread : u32,
) {
  let outer = group.z / u.innerBatch;
  let inside = group.z % u.innerBatch;
  let left_start = outer * u.leftOuter + inside * u.leftInner;
  let right_start = outer * u.rightOuter + inside * u.rightInner;
  let first_row = group.y * ${extent}u;
  let first_column = group.x * ${extent}u;
${each(i => `  var sums${i} = ${vector}();`)}
  for (var depth = 0u; depth < u.inner; depth += u.strip) {${load('left', 'rows', 'first_row')}${load('right', 'columns', 'first_column')}
    workgroupBarrier();
    for (var k = 0u; k < u.strip; k += ${UNROLLED}u) {${Array.from({ length: UNROLLED }, (_, step) => multiply(step)).join('')}
    }
    workgroupBarrier();
  }
  let row = first_row + local.y * ${tile}u;
  let column = first_column + local.x * ${tile}u;
  let place = group.z * u.rows * u.columns + row * u.columns + column;
${each(i => each(j => `  if (row + ${i}u < u.rows && column + ${j}u < u.columns) { result[place + ${i}u * u.columns + ${j}u] = ${part(`sums${i}`, j)} * u.scale; }`))}
}
`;
}

/** A product of two tensors, as the graph's operation has it. @param products how the device multiplies */
export function product(
  left: TensorValue,
  right: TensorValue,
  result: TensorValue,
  sizes: ProductSizes,
  attributes: MatmulAttributes,
  products: Products,
): Step {
  const { rows, columns, inner, batch } = sizes;
  const large = Math.min(rows, columns) >= LARGE_EXTENT;
  const tile = large ? LARGE : SMALL;
  const onMatrices = products.kind === 'subgroup' && large;
  const extent = onMatrices ? MATRIX_EXTENT : THREADS * tile;
  const { transposeA, transposeB, scale } = attributes;
  const leftSide = transposeA ? [1, rows, 0] : [inner, 1, 1];
  const rightSide = transposeB ? [inner, 1, 1] : [1, columns, 0];
  const words = new DataView(new ArrayBuffer(64));
  [rows, columns, inner, batch[1], ...sizes.left, ...sizes.right, ...leftSide, ...rightSide, THREADS].forEach(
    (word, i) => {
      words.setUint32(4 * i, word, true);
    },
  );
  words.setFloat32(60, scale, true);
  return {
    name: `matmul ${rows} × ${inner} × ${columns}`,
    code: onMatrices ? matrixProductCode(products) : productCode(tile, products.kind !== 'float32'),
    uniforms: words.buffer,
    reads: [left.value, right.value],
    writes: [result.value],
    groups: [Math.ceil(columns / extent), Math.ceil(rows / extent), batch[0] * batch[1]],
    runOnCpu([a, b], [out]) {
      const type = { dtype: 'float32', shape: result.shape } as const;
      out.set(matmul.evaluate([toNdArray(a, left), toNdArray(b, right)], attributes, type));
    },
  };
}
