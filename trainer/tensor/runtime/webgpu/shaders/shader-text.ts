import type { Shape } from '../../../graph/tensor.ts';
import type { DeviceValue } from '../lowering/program.ts';

/** Lines of a shader's text, one for each number below `count`. */
export function over(count: number, line: (i: number) => string): string {
  return list(count, line, '\n');
}

/** Parts of a line of a shader's text, one for each number below `count`. */
export function list(count: number, item: (i: number) => string, separator = ', '): string {
  return Array.from({ length: count }, (_, i) => item(i)).join(separator);
}

/** An array on the device as a tensor. */
export interface TensorValue {
  readonly value: DeviceValue;
  readonly shape: Shape;
}

/** Bindings of every product; a side consists of vectors of four, or of numbers. */
export const productBindings = (leftVectors: boolean, rightVectors: boolean): string => `
struct Uniforms {
  rows : u32,
  columns : u32,
  inner : u32,
  innerBatch : u32,
  leftOuter : u32,
  leftInner : u32,
  rightOuter : u32,
  rightInner : u32,
  leftStride : u32,
  leftInnerStride : u32,
  leftInnerFast : u32,
  rightStride : u32,
  rightInnerStride : u32,
  rightInnerFast : u32,
  // inner entries of a strip
  strip : u32,
  scale : f32,
  // elements before the first of each side, and of the result
  leftStart : u32,
  rightStart : u32,
  resultStart : u32,
  // from a row of the result to the next, and from a matrix to the next
  resultStride : u32,
  resultBatch : u32,
  // 1 adds to what the result holds
  adding : u32,
}
@group(0) @binding(0) var<uniform> u : Uniforms;
@group(0) @binding(1) var<storage, read> left : array<${leftVectors ? 'vec4<f32>' : 'f32'}>;
@group(0) @binding(2) var<storage, read> right : array<${rightVectors ? 'vec4<f32>' : 'f32'}>;
@group(0) @binding(3) var<storage, read_write> result : array<f32>;

fn put(matrix : u32, row : u32, column : u32, value : f32) {
  let at = u.resultStart + matrix * u.resultBatch + row * u.resultStride + column;
  if (u.adding == 1u) { result[at] += value; } else { result[at] = value; }
}
`;

/** In `main`: where a workgroup's tile of this many rows and columns lies, in which factors and from which row and column on. */
export const tilePlace = (extent: number): string => `let outer = group.z / u.innerBatch;
  let inside = group.z % u.innerBatch;
  let left_start = u.leftStart + outer * u.leftOuter + inside * u.leftInner;
  let right_start = u.rightStart + outer * u.rightOuter + inside * u.rightInner;
  let first_row = group.y * ${extent}u;
  let first_column = group.x * ${extent}u;`;

/** Elements of a vector; head sizes are multiples of it. */
export const VECTOR = 4;
/** Threads of a workgroup along both sides of a tile of scores. */
export const GRID = 8;
const THREADS = GRID * GRID;

/** Head sizes with one shader text each: a head uses the first that is large enough. */
const SIZES = [32, 64, 128];

/** Tile sizes of a shader's text: three tiles of rows and one of scores fit into 32 KiB of shared memory. */
export interface TileForm {
  /** Rows of a tile, and its rows and columns that one thread computes. */
  readonly tile: number;
  readonly own: number;
  /**
   * Vectors of the largest head that uses the text, and of a row in shared memory, so that rows begin in different
   * banks.
   */
  readonly vectors: number;
  readonly stride: number;
  /** Vectors of a row that one thread sums up. */
  readonly parts: number;
}

export function formOf(size: number): TileForm {
  const most = SIZES.find(each => each >= size) ?? Math.ceil(size / (GRID * VECTOR)) * GRID * VECTOR;
  const own = most > 128 ? 1 : most > 64 ? 2 : 4;
  const vectors = most / VECTOR;
  return { tile: GRID * own, own, vectors, stride: vectors + 1, parts: vectors / GRID };
}

export function tileMemory({ tile, stride }: TileForm, ...names: readonly string[]): string {
  return names.map(name => `var<workgroup> ${name} : array<vec4<f32>, ${tile * stride}>;\n`).join('');
}

/**
 * Fills a tile with rows of an array, with all loads in flight at once. Rows and vectors past the end hold earlier
 * contents; they have no weight.
 */
export function load(
  { tile, vectors, stride }: TileForm,
  into: string,
  array: string,
  rows: 'query' | 'key',
  first: string,
): string {
  const [count, place] = rows === 'query' ? ['u.queries', 'query_at'] : ['u.keys', 'key_at'];
  const loads = Math.ceil((tile * vectors) / THREADS);
  const row = (n: number): string => `(thread + ${n * THREADS}u) / ${vectors}u`;
  const column = (n: number): string => `(thread + ${n * THREADS}u) % ${vectors}u`;
  const line = (n: number): string =>
    `let row${n} = ${array}[${place}(batch, min(${first} + ${row(n)}, ${count} - 1u), head) + min(${column(n)}, u.vectors - 1u)];`;
  return `{
${over(loads, line)}
${over(loads, n => `${into}[(${row(n)}) * ${stride}u + ${column(n)}] = row${n};`)}
    }`;
}

/**
 * Products of the thread's rows of one tile with its rows of another: `NAME0` holds those of its first row
 * there with each that it owns here.
 */
export function products({ own, stride }: TileForm, name: string, a: string, b: string): string {
  const column = (component: string): string => `Rows(${list(own, r => `a${r}.${component}`)})`;
  return `
${over(own, c => `    var ${name}${c} = Rows();`)}
    for (var i = 0u; i < u.vectors; i++) {
${over(own, r => `      let a${r} = ${a}[(own + ${r}u) * ${stride}u + i];`)}
${over(own, c => `      let b${c} = ${b}[(other + ${c * GRID}u) * ${stride}u + i];`)}
${['x', 'y', 'z', 'w'].map(at => over(own, c => `      ${name}${c} = fma(${column(at)}, Rows(b${c}.${at}), ${name}${c});`)).join('\n')}
    }`;
}

/** Puts weights where {@link mixed} reads them. */
export const put = ({ own }: TileForm, name: string): string =>
  over(own, c => `    weights[(other + ${c * GRID}u) * ${GRID + 1}u + local.y] = ${name}${c};`);

export const sums = ({ own, parts }: TileForm, name: string): string =>
  over(own, r => over(parts, at => `  var ${name}${r}_${at} = vec4<f32>();`));

/** Adds Σ weights[row, own] · tile[row] to the sums of the thread's rows. */
export function mixed({ own, parts, stride }: TileForm, name: string, tile: string): string {
  return `
    for (var row = 0u; row < u.tile; row++) {
      let weight = weights[row * ${GRID + 1}u + local.y];
${over(parts, at => `      let value${at} = ${tile}[row * ${stride}u + other + ${at * GRID}u];`)}
${over(own, r => over(parts, at => `      ${name}${r}_${at} = fma(vec4<f32>(${part('weight', own, r)}), value${at}, ${name}${r}_${at});`))}
    }`;
}

/** Writes the sums of the thread's existing rows where `place` says. */
export function store(
  { own, parts }: TileForm,
  name: string,
  array: string,
  rows: 'query' | 'key',
  factor: (row: number) => string,
): string {
  const [count, place] = rows === 'query' ? ['u.queries', 'query_at'] : ['u.keys', 'key_head_at'];
  const line = (r: number, at: number): string =>
    `    if (other + ${at * GRID}u < u.vectors) { ${array}[place + other + ${at * GRID}u] = ${name}${r}_${at} * ${factor(r)}; }`;
  return over(
    own,
    r => `  if (first + own + ${r}u < ${count}) {
    let place = ${place}(batch, first + own + ${r}u, head);
${over(parts, at => line(r, at))}
  }`,
  );
}

/** A row's number of `Rows`. */
export const part = (name: string, own: number, row: number): string =>
  own === 1 ? name : `${name}[${row}]`;
