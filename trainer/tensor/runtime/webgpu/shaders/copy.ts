import {
  ALIGNMENT,
  cutBox,
  type DeviceValue,
  isBindable,
  type KernelDispatch,
  offsetOf,
  ROW_THREADS,
  type ScratchSpace,
  sliceOf,
  spanOf,
  windowOf,
  workgroupGrid,
} from '../lowering/program.ts';

/** Axes a copy can walk. */
export const MAX_COPY_AXES = 6;
const AXIS_WORDS = 4;
const HEAD_WORDS = 8;

/** Elements of a box in an array: where it begins, and its strides along the axes, innermost first. */
export interface CopyBox {
  readonly value: DeviceValue;
  readonly start: number;
  readonly strides: readonly number[];
}

const code = `
struct Uniforms {
  count : u32,
  width : u32,
  sourceStart : u32,
  resultStart : u32,
  axes : u32,
  pad0 : u32,
  pad1 : u32,
  pad2 : u32,
  // extent, source stride and result stride of each axis, innermost first
  walk : array<vec4<u32>, ${MAX_COPY_AXES}>,
}
@group(0) @binding(0) var<uniform> u : Uniforms;
@group(0) @binding(1) var<storage, read> source : array<f32>;
@group(0) @binding(2) var<storage, read_write> result : array<f32>;

@compute @workgroup_size(${ROW_THREADS})
fn main(@builtin(global_invocation_id) id : vec3<u32>) {
  let index = id.x + id.y * u.width;
  if (index >= u.count) { return; }
  var rest = index;
  var source_at = u.sourceStart;
  var result_at = u.resultStart;
  for (var axis = 0u; axis < u.axes; axis++) {
    let walk = u.walk[axis];
    let at = rest % walk.x;
    rest = rest / walk.x;
    source_at += at * walk.y;
    result_at += at * walk.z;
  }
  result[result_at] = source[source_at];
}
`;

/**
 * Copies a box of one array to a box of another with the same extents; the strides transpose, repeat, cut out or
 * insert. The rest of the result keeps its contents.
 * @param extents innermost first; at most six
 * @returns a step for each piece that a shader can bind
 */
export function copyBox(
  extents: readonly number[],
  source: CopyBox,
  result: CopyBox,
  { most }: ScratchSpace,
): KernelDispatch[] {
  const whole = ({ value }: CopyBox) => value.length <= most && value.part === undefined;
  if (whole(source) && whole(result)) return [copyPiece(extents, source, result)];
  // Windows begin up to an alignment before the first element.
  return cutBox(extents, [source.strides, result.strides], most - ALIGNMENT + 1).map(piece => {
    const window = ({ value, start, strides }: CopyBox): CopyBox => ({
      ...windowOf(value, start + offsetOf(piece, strides), spanOf(piece.extents, strides)),
      strides,
    });
    return copyPiece(piece.extents, window(source), window(result));
  });
}

function copyPiece(extents: readonly number[], source: CopyBox, result: CopyBox): KernelDispatch {
  const count = extents.reduce((a, b) => a * b, 1);
  const { groups, width } = workgroupGrid(count);
  const words = new Uint32Array(HEAD_WORDS + MAX_COPY_AXES * AXIS_WORDS);
  words.set([count, width, source.start, result.start, extents.length]);
  extents.forEach((extent, axis) => {
    words.set([extent, source.strides[axis], result.strides[axis]], HEAD_WORDS + axis * AXIS_WORDS);
  });
  return {
    name: 'copy',
    code,
    uniforms: words.buffer,
    reads: [source.value],
    writes: [result.value],
    groups,
  };
}

const REPLACE_ROWS = `
struct Uniforms {
  count : u32,
  // threads of a row of workgroups
  threads : u32,
  // elements of a row
  width : u32,
}
@group(0) @binding(0) var<uniform> u : Uniforms;
@group(0) @binding(1) var<storage, read> rows : array<f32>;
@group(0) @binding(2) var<storage, read> places : array<f32>;
@group(0) @binding(3) var<storage, read_write> table : array<f32>;

@compute @workgroup_size(${ROW_THREADS})
fn main(@builtin(global_invocation_id) id : vec3<u32>) {
  let index = id.x + id.y * u.threads;
  if (index >= u.count) { return; }
  let row = index / u.width;
  table[u32(places[row]) * u.width + index % u.width] = rows[index];
}
`;

/** Overwrites rows of a table in place. */
export function replaceRows(table: DeviceValue, rows: DeviceValue, places: DeviceValue): KernelDispatch {
  const width = rows.length / places.length;
  const { groups, width: threads } = workgroupGrid(rows.length);
  return {
    name: 'put rows',
    code: REPLACE_ROWS,
    uniforms: Uint32Array.of(rows.length, threads, width).buffer,
    reads: [rows, places],
    writes: [table],
    groups,
  };
}

/** An array in rows of `width` elements. */
export interface ArrayRows {
  readonly value: DeviceValue;
  readonly width: number;
}

/**
 * A kernel over independent rows, on as many rows at a time as a shader can bind. If that is all of them, it runs once
 * over the unchanged arrays.
 * @param operands each `rows` rows
 * @param make steps for some of the rows: their number, operands and result
 */
export function inRowSlices(
  scratch: ScratchSpace,
  rows: number,
  operands: readonly ArrayRows[],
  result: ArrayRows,
  make: (rows: number, operands: readonly DeviceValue[], result: DeviceValue) => readonly KernelDispatch[],
): KernelDispatch[] {
  const all = [...operands, result];
  if (all.every(({ value }) => isBindable(value, scratch))) {
    return [
      ...make(
        rows,
        operands.map(({ value }) => value),
        result.value,
      ),
    ];
  }
  const fitting = Math.max(1, Math.floor(scratch.most / Math.max(...all.map(({ width }) => width))));
  const size = fitting > ALIGNMENT ? fitting - (fitting % ALIGNMENT) : fitting;
  const steps: KernelDispatch[] = [];
  for (let first = 0; first < rows; first += size) {
    const count = Math.min(size, rows - first);
    const part = ({ value, width }: ArrayRows) => sliceOf(value, first * width, count * width);
    const given = operands.map(operand => bindable(scratch, part(operand), steps));
    steps.push(...writeBindable(scratch, part(result), own => make(count, given, own)));
  }
  return steps;
}

/**
 * A part that a shader can bind: the part itself, or a copy where it begins at an offset at which no binding may begin.
 */
export function bindable(scratch: ScratchSpace, part: DeviceValue, steps: KernelDispatch[]): DeviceValue {
  if (isBindable(part, scratch) || part.length > scratch.most) return part;
  const copy = scratch.allocate(part.length);
  steps.push(...copyBox([part.length], flat(part), flat(copy), scratch));
  return copy;
}

/**
 * Steps that write a part; through a separate array where the part begins at an offset at which no binding may begin.
 */
export function writeBindable(
  scratch: ScratchSpace,
  part: DeviceValue,
  make: (own: DeviceValue) => readonly KernelDispatch[],
): KernelDispatch[] {
  if (isBindable(part, scratch) || part.length > scratch.most) return [...make(part)];
  const own = scratch.allocate(part.length);
  return [...make(own), ...copyBox([part.length], flat(own), flat(part), scratch)];
}

function flat(value: DeviceValue) {
  return { value, start: 0, strides: [1] };
}
