import { SUBGROUP_TILE, type SubgroupShape } from '../device/device.ts';
import { over, productBindings, tilePlace } from './shader-text.ts';

/** Subgroups of a workgroup along rows and along columns. */
const SUBGROUPS = 2;
/** Inner extent of a strip. */
const DEPTH = 32;
/** Elements of a load, and elements between the rows of a strip, so that they lie in other banks of shared memory. */
const VECTOR = 4;
const PADDING = 8;
/** Rows and columns of a large workgroup's results, and of a small one's. */
const LARGE = 128;
const SMALL = SUBGROUPS * SUBGROUP_TILE;
/** Large workgroups that keep a GPU busy; fewer are split into small ones. */
export const BUSY = 128;

/** Layout of a product's sides, which decides its text. */
export interface MatrixProductForm {
  /** Rows and columns that a workgroup computes. */
  readonly extent: number;
  readonly left: SideForm;
  readonly right: SideForm;
}

export interface SideForm {
  /** True if neighbors in memory are neighbors along the inner axis; otherwise along the axis that the result keeps. */
  readonly innerFast: boolean;
  /** True if each load of four neighbors begins at a multiple of four. */
  readonly aligned: boolean;
}

/** Extent of a workgroup's results: the largest that still keeps all of a GPU busy. */
export function extentFor(rows: number, columns: number, matrices: number): number {
  const large = Math.ceil(rows / LARGE) * Math.ceil(columns / LARGE) * matrices;
  return large >= BUSY ? LARGE : SMALL;
}

/**
 * A product on tensor cores: a workgroup of four subgroups computes a square of results. Each subgroup computes a
 * quarter of it, in matrices that its threads hold together. Strips of both sides are rounded to float16 in shared
 * memory, in their memory order; the next strips load while a strip is multiplied. Sums are float32. Takes the same
 * arrays and uniforms as the product in registers. Elements past the inner extent are zeros. Rows and columns past the
 * result's extent hold garbage that is not written.
 */
export function matrixProductCode(
  { rows, columns, inner, threads }: SubgroupShape,
  { extent, ...form }: MatrixProductForm,
): string {
  const size = threads * SUBGROUPS * SUBGROUPS;
  const own = extent / SUBGROUPS;
  const tall = own / rows;
  const wide = own / columns;
  const left = strip('left', form.left, extent, size);
  const right = strip('right', form.right, extent, size);
  const each = (line: (i: number, j: number) => string): string =>
    over(tall, i => over(wide, j => line(i, j)));
  const load = (side: typeof left, type: string, place: string, k: number): string => {
    // A strip of the left side is rows by inner entries, of the right side inner entries by columns.
    const major = (side.name === 'left') === side.innerFast ? 'row_major' : 'col_major';
    const at = side.innerFast ? `(${place}) * ${side.stride}u + ${k}u` : `${k * side.stride}u + ${place}`;
    return `subgroupMatrixLoad<${type}, ${major}>(&${side.name}_strip, (${at}) / ${VECTOR}u, ${side.stride / VECTOR}u)`;
  };
  const multiply = (k: number): string => `    {
${over(tall, i => `      let a${i} = ${load(left, `subgroup_matrix_left<f16, ${inner}, ${rows}>`, `own_row + ${i * rows}u`, k)};`)}
${over(wide, j => `      let b${j} = ${load(right, `subgroup_matrix_right<f16, ${columns}, ${inner}>`, `own_column + ${j * columns}u`, k)};`)}
${each((i, j) => `      sums${i}_${j} = subgroupMatrixMultiplyAccumulate(a${i}, b${j}, sums${i}_${j});`)}
    }`;
  const results = rows * columns;
  return `
enable f16;
enable subgroups;
enable chromium_experimental_subgroup_matrix;
diagnostic(off, chromium.subgroup_matrix_uniformity);
${productBindings(form.left.aligned, form.right.aligned)}
${left.memory}
${right.memory}
var<workgroup> results : array<f32, ${SUBGROUPS * SUBGROUPS * results}>;
const COMPONENTS = vec4<u32>(0u, 1u, 2u, 3u);

@compute @workgroup_size(${threads}, ${SUBGROUPS * SUBGROUPS})
fn main(
  @builtin(workgroup_id) group : vec3<u32>,
  @builtin(local_invocation_id) local : vec3<u32>,
  @builtin(local_invocation_index) thread : u32,
) {
${tilePlace(extent)}
  let own_row = (local.y / ${SUBGROUPS}u) * ${own}u;
  let own_column = (local.y % ${SUBGROUPS}u) * ${own}u;
${left.variables}
${right.variables}
${each((i, j) => `  var sums${i}_${j} : subgroup_matrix_result<f32, ${columns}, ${rows}>;`)}
${left.fetch('0u')}
${right.fetch('0u')}
  for (var depth = 0u; depth < u.inner; depth += ${DEPTH}u) {
${left.put}
${right.put}
    workgroupBarrier();
    let next = depth + ${DEPTH}u;
${left.fetch('next')}
${right.fetch('next')}
${over(DEPTH / inner, step => multiply(step * inner))}
    workgroupBarrier();
  }
${each(
  (i, j) => `  subgroupMatrixStore<row_major>(&results, local.y * ${results}u, sums${i}_${j}, ${columns}u);
  workgroupBarrier();
  for (var at = local.x; at < ${results}u; at += ${threads}u) {
    let row = first_row + own_row + ${i * rows}u + at / ${columns}u;
    let column = first_column + own_column + ${j * columns}u + at % ${columns}u;
    if (row < u.rows && column < u.columns) {
      put(group.z, row, column, results[local.y * ${results}u + at] * u.scale);
    }
  }
  workgroupBarrier();`,
)}
}
`;
}

/** Texts that bring one side's strips into shared memory, four neighbors at a time. */
function strip(name: 'left' | 'right', { innerFast, aligned }: SideForm, extent: number, threads: number) {
  const across = name === 'left' ? 'rows' : 'columns';
  const first = name === 'left' ? 'first_row' : 'first_column';
  const length = innerFast ? DEPTH : extent;
  const stride = length + PADDING;
  const loads = (extent * DEPTH) / VECTOR / threads;
  /** Row of load n in the strip; `column` is the first of its four elements there. */
  const row = (n: number): string => `(thread + ${n * threads}u) / ${length / VECTOR}u`;
  const column = (n: number): string => `(thread + ${n * threads}u) % ${length / VECTOR}u`;
  const fetch = (depth: string): string =>
    over(loads, n => {
      const fast = `(${column(n)}) * ${VECTOR}u`;
      const [place, along] = innerFast
        ? [`${first} + ${row(n)}`, `${depth} + ${fast}`]
        : [`${first} + ${fast}`, `${depth} + ${row(n)}`];
      const last = innerFast || !aligned ? 1 : VECTOR;
      const value = aligned
        ? `${name}[at / ${VECTOR}u]`
        : `vec4<f32>(${name}[at], ${name}[at + 1u], ${name}[at + 2u], ${name}[at + 3u])`;
      const offsets = innerFast ? ' + COMPONENTS' : '';
      return `    {
      let along = ${along};
      let place = min(${place}, u.${across} - ${last}u);
      let at = ${name}_start + place * u.${name}Stride + min(along, u.inner - 1u) * u.${name}InnerStride;
      ${name}${n} = select(vec4<f32>(), ${value}, vec4<u32>(along)${offsets} < vec4<u32>(u.inner));
    }`;
    });
  return {
    name,
    innerFast,
    stride,
    memory: `var<workgroup> ${name}_strip : array<vec4<f16>, ${((innerFast ? extent : DEPTH) * stride) / VECTOR}>;`,
    variables: over(loads, n => `  var ${name}${n} : vec4<f32>;`),
    fetch,
    put: over(
      loads,
      n => `    ${name}_strip[(${row(n)}) * ${stride / VECTOR}u + ${column(n)}] = vec4<f16>(${name}${n});`,
    ),
  };
}
