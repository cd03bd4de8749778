import {
  type AttentionAttributes,
  type AttentionSizes,
  attentionSizes,
} from '../../../graph/operations/attention.ts';
import { RuntimeError } from '../../runtime-error.ts';
import {
  broadcastStrides,
  type DeviceValue,
  type KernelDispatch,
  type Workgroups,
} from '../lowering/program.ts';
import {
  formOf,
  GRID,
  list,
  load,
  mixed,
  over,
  part,
  products,
  put,
  store,
  sums,
  type TensorValue,
  type TileForm,
  tileMemory,
  VECTOR,
} from './shader-text.ts';

/** Operands of an attention: queries, keys, values, and the bias of the scores (a single 0 when there is none). */
export interface AttentionOperands {
  readonly q: TensorValue;
  readonly k: TensorValue;
  readonly v: TensorValue;
  readonly bias: TensorValue;
}

/** Further inputs of attention's gradients. */
export interface AttentionUpstream {
  readonly upstream: TensorValue;
  /** log Σ exp of every query's scores, as the forward pass wrote it, [batch, queries, heads]. */
  readonly logSums: DeviceValue;
  /** Σ upstream ∘ result of every query, [batch, queries, heads]. */
  readonly dots: DeviceValue;
}

/** Result and log-sums of an attention. */
export function attend(
  operands: AttentionOperands,
  attributes: AttentionAttributes,
  result: DeviceValue,
  logSums: DeviceValue,
): KernelDispatch {
  const sizes = sizesOf(operands, attributes);
  const { q, k, v, bias } = operands;
  return {
    ...dispatch('forward', operands, attributes, sizes),
    reads: [q, k, v, bias].map(({ value }) => value),
    writes: [result, logSums],
    groups: [Math.ceil(sizes.queries / attentionTile(sizes.size)), sizes.heads, sizes.batch],
  };
}

/** Gradient with respect to the queries. */
export function queryGradient(
  operands: AttentionOperands,
  upstream: AttentionUpstream,
  attributes: AttentionAttributes,
  result: DeviceValue,
): KernelDispatch {
  const sizes = sizesOf(operands, attributes);
  const groups: Workgroups = [Math.ceil(sizes.queries / attentionTile(sizes.size)), sizes.heads, sizes.batch];
  return backward('query', { ...operands, ...upstream }, attributes, sizes, { writes: [result], groups });
}

/** Gradients with respect to keys and values, apart for every head of the queries: [batch, keys, heads, size]. */
export function keyValueGradients(
  operands: AttentionOperands,
  upstream: AttentionUpstream,
  attributes: AttentionAttributes,
  key: DeviceValue,
  value: DeviceValue,
): KernelDispatch {
  const sizes = sizesOf(operands, attributes);
  const groups: Workgroups = [Math.ceil(sizes.keys / attentionTile(sizes.size)), sizes.heads, sizes.batch];
  return backward('keyValue', { ...operands, ...upstream }, attributes, sizes, {
    writes: [key, value],
    groups,
  });
}

function sizesOf({ q, k, v }: AttentionOperands, attributes: AttentionAttributes): AttentionSizes {
  const types = [q, k, v].map(({ shape }) => ({ dtype: 'float32', shape }) as const);
  const sizes = attentionSizes(types, attributes);
  if (sizes.size % VECTOR !== 0) {
    throw new RuntimeError(
      `the WebGPU runtime needs heads of a multiple of ${VECTOR}, got ${sizes.size}: use policy.runtime onnx`,
    );
  }
  return sizes;
}

function dispatch(
  pass: AttentionPass,
  { bias }: AttentionOperands,
  { causal, scale }: AttentionAttributes,
  { batch, queries, keys, heads, keyHeads, size }: AttentionSizes,
): Pick<KernelDispatch, 'name' | 'code' | 'uniforms'> {
  const full = [batch, 1, queries, keys];
  const [biasBatch, , biasQuery, biasKey] = broadcastStrides(bias.shape, full);
  const words = new DataView(new ArrayBuffer(48));
  [batch, queries, keys, heads, keyHeads, causal ? 1 : 0, biasBatch, biasQuery, biasKey].forEach(
    (word, i) => {
      words.setUint32(4 * i, word, true);
    },
  );
  words.setFloat32(36, scale, true);
  words.setUint32(40, size / VECTOR, true);
  words.setUint32(44, attentionTile(size), true);
  return {
    name: `attention ${pass}`,
    code: attentionCode(pass, size),
    uniforms: words.buffer,
  };
}

function backward(
  pass: 'query' | 'keyValue',
  operands: AttentionOperands & AttentionUpstream,
  attributes: AttentionAttributes,
  sizes: AttentionSizes,
  { writes, groups }: Pick<KernelDispatch, 'writes' | 'groups'>,
): KernelDispatch {
  const { q, k, v, bias, upstream, logSums, dots } = operands;
  return {
    ...dispatch(pass, operands, attributes, sizes),
    reads: [...[q, k, v, bias, upstream].map(({ value }) => value), logSums, dots],
    writes,
    groups,
  };
}

type AttentionPass = 'forward' | 'query' | 'keyValue';

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

/** Queries, or keys, that a workgroup owns. @param size of a head */
const attentionTile = (size: number): number => formOf(size).tile;

/**
 * WGSL of one pass. A workgroup owns a tile of queries (or keys) of one head and streams tiles of the others through
 * shared memory; scores of a tile exist only there (Dao et al., 2022). Each thread computes a square of a tile's scores
 * in registers, in adjacent rows and every eighth column. In a tile of results it computes its rows at every eighth
 * vector. Inner loops run up to uniforms, so no compiler unrolls all of them.
 * @param size of a head
 */
function attentionCode(pass: AttentionPass, size: number): string {
  const form = formOf(size);
  const body = { forward: forwardBody, query: queryBody, keyValue: keyValueBody }[pass];
  return `${declarations(pass)}${places(form)}${body(form)}`;
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

function places({ own }: TileForm): string {
  return `
alias Rows = ${own === 1 ? 'f32' : `vec${own}<f32>`};
const NOTHING = -3.0e38;
// a score for each pair of the tile that the workgroup owns and the one that streams by: [stream][own]
var<workgroup> weights : array<Rows, ${GRID * own * (GRID + 1)}>;

fn query_at(batch : u32, query : u32, head : u32) -> u32 {
  return ((batch * u.queries + query) * u.heads + head) * u.vectors;
}
fn key_at(batch : u32, key : u32, head : u32) -> u32 {
  return ((batch * u.keys + key) * u.keyHeads + head / (u.heads / u.keyHeads)) * u.vectors;
}
// gradients with respect to keys and values, of every head of the queries
fn key_head_at(batch : u32, key : u32, head : u32) -> u32 {
  return ((batch * u.keys + key) * u.heads + head) * u.vectors;
}
fn row_at(batch : u32, query : u32, head : u32) -> u32 {
  return (batch * u.queries + query) * u.heads + head;
}
// the score of a pair with its bias, or nothing where the query does not see the key
fn seen(score : f32, batch : u32, query : u32, key : u32) -> f32 {
  if (query >= u.queries || key >= u.keys || (u.causal == 1u && key > query)) { return NOTHING; }
  var value = score * u.scale;
  // one bias for all scores shifts them alike
  if (u.biasBatch + u.biasQuery + u.biasKey > 0u) {
    value += bias[batch * u.biasBatch + query * u.biasQuery + key * u.biasKey];
  }
  return value;
}
`;
}

/** The entry: the thread owns rows of its tile from `own` on, and `other`, and those 8 apart, of the one that streams by. */
const entry = ({ own, tile }: TileForm): string => `
@compute @workgroup_size(${GRID}, ${GRID})
fn main(
  @builtin(workgroup_id) group : vec3<u32>,
  @builtin(local_invocation_id) local : vec3<u32>,
  @builtin(local_invocation_index) thread : u32,
) {
  let batch = group.z;
  let first = group.x * ${tile}u;
  let own = local.y * ${own}u;
  let other = local.x;
`;

/** Indices of the thread's own queries that exist. */
const ofRows = ({ own }: TileForm, array: string): string =>
  `Rows(${list(own, r => `${array}[row_at(batch, min(first + own + ${r}u, u.queries - 1u), head)]`)})`;

/** Scores of the thread's own queries with the keys that stream by. */
const seenByOwn = ({ own }: TileForm, name: string): string =>
  over(
    own,
    c =>
      `    ${name}${c} = Rows(${list(own, r => `seen(${part(`${name}${c}`, own, r)}, batch, first + own + ${r}u, start + other + ${c * GRID}u)`)});`,
  );

function forwardBody(form: TileForm): string {
  const { own, tile } = form;
  const acrossThreads = (start: string, f: (from: string) => string): string => `
    var across = ${start};
    for (var i = 0u; i < ${GRID}u; i++) { across = ${f(`shared_rows[i * ${GRID + 1}u + local.y]`)}; }`;
  return `${tileMemory(form, 'own_tile', 'stream')}
var<workgroup> shared_rows : array<Rows, ${GRID * (GRID + 1)}>;
${entry(form)}
  let head = group.y;
  ${load(form, 'own_tile', 'q', 'query', 'first')}
${sums(form, 'sum')}
  var largest = Rows(NOTHING);
  // of the keys that this thread has weighed
  var total = Rows();
  let end = select(u.keys, min(u.keys, first + ${tile}u), u.causal == 1u);
  for (var start = 0u; start < end; start += ${tile}u) {
    workgroupBarrier();
    ${load(form, 'stream', 'k', 'key', 'start')}
    workgroupBarrier();${products(form, 'score', 'own_tile', 'stream')}
${seenByOwn(form, 'score')}
    shared_rows[other * ${GRID + 1}u + local.y] = ${Array.from({ length: own }, (_, c) => `score${c}`).reduce((a, b) => `max(${a}, ${b})`)};
    workgroupBarrier();
    ${load(form, 'stream', 'v', 'key', 'start')}${acrossThreads('largest', from => `max(across, ${from})`)}
    let correction = exp(largest - across);
    largest = across;
${over(own, c => `    score${c} = select(Rows(), exp(score${c} - largest), score${c} > Rows(NOTHING));`)}
    total = total * correction + ${list(own, c => `score${c}`, ' + ')};
${put(form, 'score')}
${over(own, r => over(form.parts, at => `    sum${r}_${at} *= ${part('correction', own, r)};`))}
    workgroupBarrier();${mixed(form, 'sum', 'stream')}
  }
  workgroupBarrier();
  shared_rows[other * ${GRID + 1}u + local.y] = total;
  workgroupBarrier();${acrossThreads('Rows()', from => `across + ${from}`)}
${store(form, 'sum', 'result', 'query', r => `(1.0 / ${part('across', own, r)})`)}
  if (other == 0u) {
${over(own, r => `    if (first + own + ${r}u < u.queries) { logSums[row_at(batch, first + own + ${r}u, head)] = ${part('largest', own, r)} + log(${part('across', own, r)}); }`)}
  }
}
`;
}

function queryBody(form: TileForm): string {
  const { own, tile } = form;
  return `${tileMemory(form, 'own_tile', 'own_upstream', 'stream')}
${entry(form)}
  let head = group.y;
  ${load(form, 'own_tile', 'q', 'query', 'first')}
  ${load(form, 'own_upstream', 'upstream', 'query', 'first')}
${sums(form, 'sum')}
  let log_sum = ${ofRows(form, 'logSums')};
  let shift = ${ofRows(form, 'dots')};
  let end = select(u.keys, min(u.keys, first + ${tile}u), u.causal == 1u);
  for (var start = 0u; start < end; start += ${tile}u) {
    workgroupBarrier();
    ${load(form, 'stream', 'v', 'key', 'start')}
    workgroupBarrier();${products(form, 'inner', 'own_upstream', 'stream')}
    workgroupBarrier();
    ${load(form, 'stream', 'k', 'key', 'start')}
    workgroupBarrier();${products(form, 'score', 'own_tile', 'stream')}
${seenByOwn(form, 'score')}
${over(own, c => `    score${c} = select(Rows(), exp(score${c} - log_sum) * (inner${c} - shift) * u.scale, score${c} > Rows(NOTHING));`)}
${put(form, 'score')}
    workgroupBarrier();${mixed(form, 'sum', 'stream')}
  }
${store(form, 'sum', 'queryGradient', 'query', () => '1.0')}
}
`;
}

function keyValueBody(form: TileForm): string {
  const { own, tile } = form;
  return `${tileMemory(form, 'own_keys', 'own_values', 'stream')}
${entry(form)}
  let head = group.y;
  ${load(form, 'own_keys', 'k', 'key', 'first')}
  ${load(form, 'own_values', 'v', 'key', 'first')}
${sums(form, 'key')}
${sums(form, 'value')}
  let begin = select(0u, first, u.causal == 1u);
  for (var start = begin; start < u.queries; start += ${tile}u) {
    workgroupBarrier();
    ${load(form, 'stream', 'q', 'query', 'start')}
    workgroupBarrier();${products(form, 'weight', 'own_keys', 'stream')}
${over(
  own,
  c => `      let query${c} = start + other + ${c * GRID}u;
    let row${c} = row_at(batch, min(query${c}, u.queries - 1u), head);
    weight${c} = Rows(${list(own, r => `seen(${part(`weight${c}`, own, r)}, batch, query${c}, first + own + ${r}u)`)});
    weight${c} = select(Rows(), exp(weight${c} - logSums[row${c}]), weight${c} > Rows(NOTHING));`,
)}
${put(form, 'weight')}
    workgroupBarrier();
    ${load(form, 'stream', 'upstream', 'query', 'start')}
    workgroupBarrier();${products(form, 'inner', 'own_values', 'stream')}${mixed(form, 'value', 'stream')}
${over(own, c => `      weight${c} = weight${c} * (inner${c} - dots[row${c}]) * u.scale;`)}
    workgroupBarrier();
${put(form, 'weight')}
    ${load(form, 'stream', 'q', 'query', 'start')}
    workgroupBarrier();${mixed(form, 'key', 'stream')}
  }
${store(form, 'key', 'keyGradient', 'key', () => '1.0')}
${store(form, 'value', 'valueGradient', 'key', () => '1.0')}
}
`;
}
