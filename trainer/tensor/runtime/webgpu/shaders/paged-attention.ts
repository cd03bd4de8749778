import type { PagedAttentionAttributes } from '../../../graph/builder.ts';
import { pagedAttentionSizes } from '../../../graph/operations/device.ts';
import type { TensorType } from '../../../graph/tensor.ts';
import { RuntimeError } from '../../runtime-error.ts';
import type { DeviceValue, KernelDispatch } from '../lowering/program.ts';
import { VECTOR } from './shader-text.ts';

/** Positions of a page: a workgroup has a thread for each of its query heads and each position. */
const TILE = 16;
/** Head sizes with one shader text each: a head uses the first that is large enough. */
const SIZES = [64, 128];

/** Vectors of the largest head that uses the same text as heads of `size`. */
function mostVectors(size: number): number {
  return (SIZES.find(each => each >= size) ?? Math.ceil(size / TILE) * TILE) / VECTOR;
}

/** Constants, and the scores of a tile. @param vectors of the largest head that shares the text */
function tileConstants(vectors: number): string {
  return `
const MAX_VECTORS : u32 = ${vectors}u;
// vectors of a row that one thread mixes
const PARTS : u32 = ${Math.ceil(vectors / TILE)}u;
// a score for each pair of the tile that the workgroup owns and the one that streams by
var<workgroup> weights : array<f32, ${TILE ** 2}>;
`;
}

/** Tiles in shared memory. */
function tileMemory(...names: readonly string[]): string {
  return names.map(name => `var<workgroup> ${name} : array<vec4<f32>, ${TILE}u * MAX_VECTORS>;\n`).join('');
}

/** A function for the product of a row of one tile with a row of another. */
function dot(a: string, b: string): string {
  return `
fn dot_${a}_${b}(own : u32, other : u32) -> f32 {
  var sum = vec4<f32>();
  for (var i = 0u; i < u.vectors; i++) {
    sum = fma(${a}[own * u.vectors + i], ${b}[other * u.vectors + i], sum);
  }
  return sum.x + sum.y + (sum.z + sum.w);
}
`;
}

/** A function for Σ weights[own, i] · tile[i] at one vector of a row. */
function mixing(tile: string): string {
  return `
fn mix_${tile}(own : u32, at : u32) -> vec4<f32> {
  var sum = vec4<f32>();
  if (at >= u.vectors) { return sum; }
  for (var i = 0u; i < u.tile; i++) {
    sum = fma(vec4<f32>(weights[own * ${TILE}u + i]), ${tile}[i * u.vectors + at], sum);
  }
  return sum;
}
`;
}

/** Runs a statement for every vector that the thread mixes. */
function eachPart(statement: string): string {
  return `for (var part = 0u; part < PARTS; part++) { let at = part * ${TILE}u + other; ${statement} }`;
}

/** Tensors of the operation with their arrays, in its order. */
export interface PagedOperand extends TensorType {
  readonly value: DeviceValue;
}

/**
 * A workgroup owns the query heads of one row that share a key head, 16 at most, and streams the row's pages through shared
 * memory: keys and values are read once for all of them.
 *
 * @param owned query heads of a workgroup, 16 threads each
 */
function pagedAttentionCode(size: number, owned: number): string {
  const load = (array: string): string => `
    for (var row_of = own; row_of < u.tile; row_of += ${owned}u) {
      let place = place_of(slot, min(start + row_of, position), group.y);
      ${eachPart(`if (at < u.vectors) { stream[row_of * u.vectors + at] = ${array}[place + at]; }`)}
    }`;
  return `
struct Uniforms {
  heads : u32,
  keyHeads : u32,
  // most pages of a sequence
  pages : u32,
  // vectors of a head
  vectors : u32,
  // positions of a page
  tile : u32,
  scale : f32,
  // positions that a row sees; 0: all
  window : u32,
  softcap : f32,
}
@group(0) @binding(0) var<uniform> u : Uniforms;
@group(0) @binding(1) var<storage, read> q : array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> k : array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> v : array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> lists : array<f32>;
@group(0) @binding(5) var<storage, read> slots : array<f32>;
@group(0) @binding(6) var<storage, read> positions : array<f32>;
@group(0) @binding(7) var<storage, read_write> result : array<vec4<f32>>;
${tileConstants(mostVectors(size))}${tileMemory('own_tile', 'stream')}
${dot('own_tile', 'stream')}${mixing('stream')}
fn place_of(slot : u32, position : u32, head : u32) -> u32 {
  let page = u32(lists[slot * u.pages + position / u.tile]);
  return ((page * u.tile + position % u.tile) * u.keyHeads + head) * u.vectors;
}
@compute @workgroup_size(${TILE}, ${owned})
fn main(@builtin(workgroup_id) group : vec3<u32>, @builtin(local_invocation_id) local : vec3<u32>) {
  let own = local.y;
  let other = local.x;
  let row = group.x;
  let groups = u.heads / u.keyHeads;
  let within = group.z * ${owned}u + own;
  let query = (row * u.heads + group.y * groups + min(within, groups - 1u)) * u.vectors;
  let slot = u32(slots[row]);
  let position = u32(positions[row]);
  ${eachPart('if (at < u.vectors) { own_tile[own * u.vectors + at] = q[query + at]; }')}
  var sums : array<vec4<f32>, PARTS>;
  var largest = -3.0e38;
  var total = 0.0;
  var first = 0u;
  if (u.window > 0u && position >= u.window) { first = position + 1u - u.window; }
  for (var start = first / u.tile * u.tile; start <= position; start += u.tile) {
    workgroupBarrier();${load('k')}
    workgroupBarrier();
    let seen = start + other <= position && start + other >= first;
    var score = -3.0e38;
    if (seen) { score = dot_own_tile_stream(own, other) * u.scale; }
    if (seen && u.softcap > 0.0) { score = u.softcap * tanh(clamp(score / u.softcap, -15.0, 15.0)); }
    weights[own * ${TILE}u + other] = score;
    workgroupBarrier();
${load('v')}
    var tile_largest = largest;
    for (var i = 0u; i < u.tile; i++) { tile_largest = max(tile_largest, weights[own * ${TILE}u + i]); }
    let correction = exp(largest - tile_largest);
    workgroupBarrier();
    weights[own * ${TILE}u + other] = select(0.0, exp(score - tile_largest), seen);
    workgroupBarrier();
    total *= correction;
    for (var i = 0u; i < u.tile; i++) { total += weights[own * ${TILE}u + i]; }
    largest = tile_largest;
    ${eachPart('sums[part] = sums[part] * correction + mix_stream(own, at);')}
  }
  if (within < groups) {
    ${eachPart('if (at < u.vectors) { result[query + at] = sums[part] * (1.0 / total); }')}
  }
}
`;
}

/** Attention over a cache in pages of 16 positions; operands as the graph's operation has them. */
export function attendPages(
  operands: readonly PagedOperand[],
  attributes: PagedAttentionAttributes,
  result: DeviceValue,
): KernelDispatch {
  const { rows, heads, keyHeads, size, blocks } = pagedAttentionSizes(operands);
  if (size % VECTOR !== 0 || attributes.blockSize !== TILE) {
    throw new RuntimeError(
      `the WebGPU runtime needs heads of a multiple of ${VECTOR} and pages of ${TILE}, got ${size} and ${attributes.blockSize}: use policy.runtime onnx`,
    );
  }
  const owned = Math.min(TILE, heads / keyHeads);
  const words = new DataView(new ArrayBuffer(32));
  [heads, keyHeads, blocks, size / VECTOR, TILE].forEach((word, i) => {
    words.setUint32(4 * i, word, true);
  });
  words.setFloat32(20, attributes.scale, true);
  words.setUint32(24, attributes.window, true);
  words.setFloat32(28, attributes.softcap, true);
  return {
    name: 'attention over pages',
    code: pagedAttentionCode(size, owned),
    uniforms: words.buffer,
    reads: operands.map(({ value }) => value),
    writes: [result],
    groups: [rows, keyHeads, Math.ceil(heads / keyHeads / owned)],
  };
}
