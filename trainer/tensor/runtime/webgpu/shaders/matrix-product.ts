import { SUBGROUP_TILE, type SubgroupShape } from '../device/precision.ts';
import { PRODUCT_BINDINGS, tilePlace } from './product-bindings.ts';

/** Subgroups of a workgroup along rows and along columns. */
const SUBGROUPS = 2;
/** Rows and columns that a workgroup computes. */
export const MATRIX_EXTENT = SUBGROUPS * SUBGROUP_TILE;
/** Inner extent of a strip. */
const DEPTH = SUBGROUP_TILE;

/**
 * A product on tensor cores: a workgroup of four subgroups computes 64 × 64 results, each subgroup a square of 32 × 32 in
 * matrices that its threads hold together. Strips of both sides are rounded to float16 in shared memory; sums are float32.
 * Takes the same arrays and uniforms as the product in registers.
 */
export function matrixProductCode({ rows, columns, inner, threads }: SubgroupShape): string {
  const size = threads * SUBGROUPS * SUBGROUPS;
  const tall = SUBGROUP_TILE / rows;
  const wide = SUBGROUP_TILE / columns;
  const over = (count: number, line: (i: number) => string): string =>
    Array.from({ length: count }, (_, i) => line(i)).join('\n');
  const each = (line: (i: number, j: number) => string): string =>
    over(tall, i => over(wide, j => line(i, j)));
  const load = (side: 'left' | 'right', across: 'rows' | 'columns', first: string): string => `
    for (var i = thread; i < ${MATRIX_EXTENT * DEPTH}u; i += ${size}u) {
      let fast = u.${side}InnerFast == 1u;
      let inner = select(i / ${MATRIX_EXTENT}u, i % ${DEPTH}u, fast);
      let place = select(i % ${MATRIX_EXTENT}u, i / ${DEPTH}u, fast);
      var value = 0.0;
      if (depth + inner < u.inner && ${first} + place < u.${across}) {
        value = ${side}[${side}_start + (depth + inner) * u.${side}InnerStride + (${first} + place) * u.${side}Stride];
      }
      ${side}_strip[${side === 'left' ? `place * ${DEPTH}u + inner` : `inner * ${MATRIX_EXTENT}u + place`}] = f16(value);
    }`;
  return `
enable f16;
enable subgroups;
enable chromium_experimental_subgroup_matrix;
diagnostic(off, chromium.subgroup_matrix_uniformity);
${PRODUCT_BINDINGS}
var<workgroup> left_strip : array<f16, ${MATRIX_EXTENT * DEPTH}>;
var<workgroup> right_strip : array<f16, ${MATRIX_EXTENT * DEPTH}>;
var<workgroup> results : array<f32, ${MATRIX_EXTENT ** 2}>;

@compute @workgroup_size(${threads}, ${SUBGROUPS * SUBGROUPS})
fn main(
  @builtin(workgroup_id) group : vec3<u32>,
  @builtin(local_invocation_id) local : vec3<u32>,
  @builtin(local_invocation_index) thread : u32,
) {
${tilePlace(MATRIX_EXTENT)}
  let own_row = (local.y / ${SUBGROUPS}u) * ${SUBGROUP_TILE}u;
  let own_column = (local.y % ${SUBGROUPS}u) * ${SUBGROUP_TILE}u;
${each((i, j) => `  var sums${i}_${j} : subgroup_matrix_result<f32, ${columns}, ${rows}>;`)}
  for (var depth = 0u; depth < u.inner; depth += ${DEPTH}u) {${load('left', 'rows', 'first_row')}${load('right', 'columns', 'first_column')}
    workgroupBarrier();
    for (var k = 0u; k < ${DEPTH}u; k += ${inner}u) {
${over(tall, i => `      let a${i} = subgroupMatrixLoad<subgroup_matrix_left<f16, ${inner}, ${rows}>>(&left_strip, (own_row + ${i * rows}u) * ${DEPTH}u + k, false, ${DEPTH}u);`)}
${over(wide, j => `      let b${j} = subgroupMatrixLoad<subgroup_matrix_right<f16, ${columns}, ${inner}>>(&right_strip, k * ${MATRIX_EXTENT}u + own_column + ${j * columns}u, false, ${MATRIX_EXTENT}u);`)}
${each((i, j) => `      sums${i}_${j} = subgroupMatrixMultiplyAccumulate(a${i}, b${j}, sums${i}_${j});`)}
    }
    workgroupBarrier();
  }
${each((i, j) => `  subgroupMatrixStore(&results, (own_row + ${i * rows}u) * ${MATRIX_EXTENT}u + own_column + ${j * columns}u, sums${i}_${j}, false, ${MATRIX_EXTENT}u);`)}
  workgroupBarrier();
  for (var i = thread; i < ${MATRIX_EXTENT ** 2}u; i += ${size}u) {
    let row = first_row + i / ${MATRIX_EXTENT}u;
    let column = first_column + i % ${MATRIX_EXTENT}u;
    if (row < u.rows && column < u.columns) {
      put(group.z, row, column, results[i] * u.scale);
    }
  }
}
`;
}
