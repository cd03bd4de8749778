/** Queries of a tile, and keys of a tile: a workgroup has a thread for each pair. */
export const TILE = 16;
const THREADS = TILE * TILE;
/** Elements of a vector; head sizes are multiples of it. */
export const VECTOR = 4;

/** Which of an attention's three passes. */
export type AttentionPass = 'forward' | 'query' | 'keyValue';

const READS: Readonly<Record<AttentionPass, readonly string[]>> = {
  forward: ['q', 'k', 'v', 'bias'],
  query: ['q', 'k', 'v', 'bias', 'upstream', 'logSums', 'dots'],
  keyValue: ['q', 'k', 'v', 'bias', 'upstream', 'logSums', 'dots'],
};
const WRITES: Readonly<Record<AttentionPass, readonly string[]>> = {
  forward: ['result', 'logSums'],
  query: ['queryGradient'],
  keyValue: ['keyGradient', 'valueGradient'],
};
/** Arrays with one number for every query, or for every score; the others hold vectors. */
const SCALARS = new Set(['logSums', 'dots', 'bias']);

/** Head sizes that share a text: up to the first that is enough. */
const SIZES = [64, 128];

/**
 * WGSL of one pass. A workgroup owns 16 queries (or keys) of one head and streams tiles of 16 of the others through shared
 * memory; scores of a tile exist only there (Dao et al., 2022). Loops run to uniforms, so that no compiler unrolls them all.
 *
 * @param size of a head
 */
export function attentionCode(pass: AttentionPass, size: number): string {
  const body = { forward: forwardBody, query: queryBody, keyValue: keyValueBody }[pass];
  return `${declarations(pass)}${tileConstants(mostVectors(size))}${places()}${body()}`;
}

function declarations(pass: AttentionPass): string {
  const binding = (name: string, i: number, access: string): string =>
    `@group(0) @binding(${i}) var<storage, ${access}> ${name} : array<${SCALARS.has(name) ? 'f32' : 'vec4<f32>'}>;\n`;
  const reads = READS[pass];
  return `
struct Uniforms {
  batch : u32,
  queries : u32,
  keys : u32,
  heads : u32,
  keyHeads : u32,
  causal : u32,
  biasBatch : u32,
  biasQuery : u32,
  biasKey : u32,
  scale : f32,
  // vectors of a head
  vectors : u32,
  // rows of a tile
  tile : u32,
}
@group(0) @binding(0) var<uniform> u : Uniforms;
${reads.map((name, i) => binding(name, 1 + i, 'read')).join('')}${WRITES[pass]
  .map((name, i) => binding(name, 1 + reads.length + i, 'read_write'))
  .join('')}`;
}

/** Vectors of the largest head that shares a text with heads of `size`. */
export function mostVectors(size: number): number {
  return (SIZES.find(each => each >= size) ?? Math.ceil(size / TILE) * TILE) / VECTOR;
}

/** Constants, and the scores of a tile. @param vectors of the largest head that shares the text */
export function tileConstants(vectors: number): string {
  return `
const MAX_VECTORS : u32 = ${vectors}u;
// vectors of a row that one thread mixes
const PARTS : u32 = ${Math.ceil(vectors / TILE)}u;
// a score for each pair of the tile that the workgroup owns and the one that streams by
var<workgroup> weights : array<f32, ${THREADS}>;
`;
}

function places(): string {
  return `
fn query_at(batch : u32, query : u32, head : u32) -> u32 {
  return ((batch * u.queries + query) * u.heads + head) * u.vectors;
}
fn key_at(batch : u32, key : u32, head : u32) -> u32 {
  return ((batch * u.keys + key) * u.keyHeads + head / (u.heads / u.keyHeads)) * u.vectors;
}
fn row_at(batch : u32, query : u32, head : u32) -> u32 {
  return (batch * u.queries + query) * u.heads + head;
}
fn sees(query : u32, key : u32) -> bool {
  return query < u.queries && key < u.keys && (u.causal == 0u || key <= query);
}
fn bias_of(batch : u32, query : u32, key : u32) -> f32 {
  return bias[batch * u.biasBatch + query * u.biasQuery + key * u.biasKey];
}
`;
}

/** Tiles in shared memory. */
export function tileMemory(...names: readonly string[]): string {
  return names.map(name => `var<workgroup> ${name} : array<vec4<f32>, ${TILE}u * MAX_VECTORS>;\n`).join('');
}

/** A function that fills a tile with 16 rows of an array. */
function loading(tile: string, array: string, rows: 'query' | 'key'): string {
  const [count, place] = rows === 'query' ? ['u.queries', 'query_at'] : ['u.keys', 'key_at'];
  return `
fn load_${tile}_${array}(thread : u32, batch : u32, first : u32, head : u32) {
  for (var at = thread; at < ${TILE}u * u.vectors; at += ${THREADS}u) {
    let row = first + at / u.vectors;
    var value = vec4<f32>();
    if (row < ${count}) { value = ${array}[${place}(batch, row, head) + at % u.vectors]; }
    ${tile}[at] = value;
  }
}
`;
}

/** A function for the product of a row of one tile with a row of another. */
export function dot(a: string, b: string): string {
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

/** The entry, with the thread's place in its tile as `own` and `other`. */
const ENTRY = `
@compute @workgroup_size(${TILE}, ${TILE})
fn main(
  @builtin(workgroup_id) group : vec3<u32>,
  @builtin(local_invocation_id) local : vec3<u32>,
  @builtin(local_invocation_index) thread : u32,
) {
  let batch = group.z;
  let first = group.x * ${TILE}u;
  let own = local.y;
  let other = local.x;
`;

/** A function for Σ weights[own, i] · tile[i] at one vector of a row. */
export function mixing(tile: string): string {
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
export function eachPart(statement: string): string {
  return `for (var part = 0u; part < PARTS; part++) { let at = part * ${TILE}u + other; ${statement} }`;
}

function store(sums: string, array: string, place: string, factor: string): string {
  return eachPart(`if (at < u.vectors) { ${array}[${place} + at] = ${sums}[part] * ${factor}; }`);
}

function forwardBody(): string {
  return `${tileMemory('own_tile', 'stream')}
${loading('own_tile', 'q', 'query')}${loading('stream', 'k', 'key')}${loading('stream', 'v', 'key')}
${dot('own_tile', 'stream')}${mixing('stream')}
${ENTRY}
  let head = group.y;
  let query = first + own;
  load_own_tile_q(thread, batch, first, head);
  var sums : array<vec4<f32>, PARTS>;
  var largest = -3.0e38;
  var total = 0.0;
  let end = select(u.keys, min(u.keys, first + ${TILE}u), u.causal == 1u);
  for (var start = 0u; start < end; start += ${TILE}u) {
    workgroupBarrier();
    load_stream_k(thread, batch, start, head);
    workgroupBarrier();
    let key = start + other;
    let seen = sees(query, key);
    var score = -3.0e38;
    if (seen) { score = dot_own_tile_stream(own, other) * u.scale + bias_of(batch, query, key); }
    weights[own * ${TILE}u + other] = score;
    workgroupBarrier();
    load_stream_v(thread, batch, start, head);
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
  if (query < u.queries) {
    ${store('sums', 'result', 'query_at(batch, query, head)', '(1.0 / total)')}
    if (other == 0u) { logSums[row_at(batch, query, head)] = largest + log(total); }
  }
}
`;
}

function queryBody(): string {
  return `${tileMemory('own_tile', 'own_upstream', 'stream')}
${loading('own_tile', 'q', 'query')}${loading('own_upstream', 'upstream', 'query')}
${loading('stream', 'k', 'key')}${loading('stream', 'v', 'key')}
${dot('own_tile', 'stream')}${dot('own_upstream', 'stream')}${mixing('stream')}
${ENTRY}
  let head = group.y;
  let query = first + own;
  load_own_tile_q(thread, batch, first, head);
  load_own_upstream_upstream(thread, batch, first, head);
  var sums : array<vec4<f32>, PARTS>;
  let row = row_at(batch, min(query, u.queries - 1u), head);
  let log_sum = logSums[row];
  let shift = dots[row];
  let end = select(u.keys, min(u.keys, first + ${TILE}u), u.causal == 1u);
  for (var start = 0u; start < end; start += ${TILE}u) {
    workgroupBarrier();
    load_stream_v(thread, batch, start, head);
    workgroupBarrier();
    let inner = dot_own_upstream_stream(own, other) - shift;
    workgroupBarrier();
    load_stream_k(thread, batch, start, head);
    workgroupBarrier();
    let key = start + other;
    var gradient = 0.0;
    if (sees(query, key)) {
      let score = dot_own_tile_stream(own, other) * u.scale + bias_of(batch, query, key);
      gradient = exp(score - log_sum) * inner * u.scale;
    }
    weights[own * ${TILE}u + other] = gradient;
    workgroupBarrier();
    ${eachPart('sums[part] += mix_stream(own, at);')}
  }
  if (query < u.queries) {
    ${store('sums', 'queryGradient', 'query_at(batch, query, head)', '1.0')}
  }
}
`;
}

function keyValueBody(): string {
  return `${tileMemory('own_keys', 'own_values', 'stream')}
${loading('own_keys', 'k', 'key')}${loading('own_values', 'v', 'key')}
${loading('stream', 'q', 'query')}${loading('stream', 'upstream', 'query')}
${dot('own_keys', 'stream')}${dot('own_values', 'stream')}${mixing('stream')}
${ENTRY}
  let groups = u.heads / u.keyHeads;
  let key = first + own;
  load_own_keys_k(thread, batch, first, group.y * groups);
  load_own_values_v(thread, batch, first, group.y * groups);
  var key_sums : array<vec4<f32>, PARTS>;
  var value_sums : array<vec4<f32>, PARTS>;
  let begin = select(0u, first, u.causal == 1u);
  for (var head = group.y * groups; head < (group.y + 1u) * groups; head++) {
    for (var start = begin; start < u.queries; start += ${TILE}u) {
      workgroupBarrier();
      load_stream_q(thread, batch, start, head);
      workgroupBarrier();
      let query = start + other;
      let row = row_at(batch, min(query, u.queries - 1u), head);
      var weight = 0.0;
      if (sees(query, key)) {
        let score = dot_own_keys_stream(own, other) * u.scale + bias_of(batch, query, key);
        weight = exp(score - logSums[row]);
      }
      weights[own * ${TILE}u + other] = weight;
      workgroupBarrier();
      load_stream_upstream(thread, batch, start, head);
      workgroupBarrier();
      let gradient = weight * (dot_own_values_stream(own, other) - dots[row]) * u.scale;
      ${eachPart('value_sums[part] += mix_stream(own, at);')}
      workgroupBarrier();
      weights[own * ${TILE}u + other] = gradient;
      load_stream_q(thread, batch, start, head);
      workgroupBarrier();
      ${eachPart('key_sums[part] += mix_stream(own, at);')}
    }
  }
  if (key < u.keys) {
    let place = key_at(batch, key, group.y * groups);
    ${store('key_sums', 'keyGradient', 'place', '1.0')}
    ${store('value_sums', 'valueGradient', 'place', '1.0')}
  }
}
`;
}
