import { SAMPLE_RESULTS, SAMPLE_SETTINGS } from '../../../graph/operations/device.ts';
import type { DeviceValue, KernelDispatch, ScratchSpace } from '../lowering/program.ts';
import { inRowSlices } from './copy.ts';

const THREADS = 256;
/** Bits of a float32 that distinguish weights: all but the sign. */
const BITS = 31;

/**
 * A workgroup samples for one row. Weights are ordered by their bits. The threshold of top-k and top-p is found bit by
 * bit, each time over the whole row. The sample is narrowed down to one of 256 parts at a time, which are summed in
 * order: equal runs give equal bits.
 */
const code = `
struct Uniforms {
  width : u32,
}
@group(0) @binding(0) var<uniform> u : Uniforms;
@group(0) @binding(1) var<storage, read> logits : array<f32>;
@group(0) @binding(2) var<storage, read> weights : array<f32>;
@group(0) @binding(3) var<storage, read> settings : array<f32>;
@group(0) @binding(4) var<storage, read_write> result : array<f32>;

struct Measure {
  count : u32,
  mass : f32,
}
struct Place {
  // tokens among which the sample falls
  first : u32,
  last : u32,
  // weights at the edge before them
  seen : u32,
  // what is left of the number sampled, below 0 before it is sampled
  rest : f32,
  total : f32,
}
var<workgroup> masses : array<f32, ${THREADS}>;
var<workgroup> counts : array<u32, ${THREADS}>;
var<workgroup> measured : Measure;
var<workgroup> place : Place;

fn is_nan(x : f32) -> bool {
  return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;
}

// Number and sum of the weights that have at least these bits.
fn measure(thread : u32, start : u32, least : u32) -> Measure {
  var own = Measure(0u, 0.0);
  for (var i = thread; i < u.width; i += ${THREADS}u) {
    let weight = weights[start + i];
    if (bitcast<u32>(weight) >= least) {
      own.count++;
      own.mass += weight;
    }
  }
  counts[thread] = own.count;
  masses[thread] = own.mass;
  for (var half = ${THREADS / 2}u; half > 0u; half /= 2u) {
    workgroupBarrier();
    if (thread < half) {
      counts[thread] += counts[thread + half];
      masses[thread] += masses[thread + half];
    }
  }
  if (thread == 0u) { measured = Measure(counts[0], masses[0]); }
  return workgroupUniformLoad(&measured);
}

// The token of the largest logit, the first of equals; the row's width if one is NaN.
fn largest(thread : u32, start : u32) -> u32 {
  var token = u.width;
  var most = -3.4e38;
  var broken = false;
  for (var i = thread; i < u.width; i += ${THREADS}u) {
    let logit = logits[start + i];
    if (is_nan(logit)) { broken = true; }
    if (token == u.width || logit > most) {
      token = i;
      most = logit;
    }
  }
  counts[thread] = select(token, u.width, broken);
  masses[thread] = select(most, 3.4e38, broken);
  for (var half = ${THREADS / 2}u; half > 0u; half /= 2u) {
    workgroupBarrier();
    if (thread < half) {
      let other = masses[thread + half];
      // A thread beyond the row has no token; a broken one has none either, and more than all others.
      let none = counts[thread] == u.width && masses[thread] < 0.0;
      if (none || other > masses[thread] || (other == masses[thread] && counts[thread + half] < counts[thread])) {
        masses[thread] = other;
        counts[thread] = counts[thread + half];
      }
    }
  }
  if (thread == 0u) { measured = Measure(counts[0], 0.0); }
  return workgroupUniformLoad(&measured).count;
}

// A weight that is kept, 0 for others; counts those at the edge as they come.
fn kept(weight : f32, edge : u32, equals : u32, seen : ptr<function, u32>) -> f32 {
  let bits = bitcast<u32>(weight);
  if (bits > edge) { return weight; }
  if (bits < edge || edge == 0u) { return 0.0; }
  *seen += 1u;
  return select(0.0, weight, *seen <= equals);
}

// Narrows the place of the sample down to one of 256 parts.
fn narrow(thread : u32, start : u32, now : Place, edge : u32, equals : u32, uniform_number : f32) {
  let size = (now.last - now.first + ${THREADS - 1}u) / ${THREADS}u;
  let first = min(now.first + thread * size, now.last);
  let last = min(first + size, now.last);
  var edges = 0u;
  for (var i = first; i < last; i++) {
    if (bitcast<u32>(weights[start + i]) == edge) { edges++; }
  }
  counts[thread] = edges;
  workgroupBarrier();
  var seen = now.seen;
  for (var i = 0u; i < thread; i++) { seen += counts[i]; }
  var mass = 0.0;
  for (var i = first; i < last; i++) { mass += kept(weights[start + i], edge, equals, &seen); }
  masses[thread] = mass;
  workgroupBarrier();
  if (thread != 0u) { return; }
  var next = now;
  if (now.rest < 0.0) {
    for (var i = 0u; i < ${THREADS}u; i++) { next.total += masses[i]; }
    next.rest = uniform_number * next.total;
  }
  var rest = next.rest;
  var before = now.seen;
  for (var i = 0u; i < ${THREADS}u; i++) {
    if (masses[i] > 0.0) {
      next.first = now.first + i * size;
      next.last = min(next.first + size, now.last);
      next.seen = before;
      next.rest = rest;
      if (rest < masses[i]) { break; }
      rest -= masses[i];
    }
    before += counts[i];
  }
  place = next;
}

@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) group : vec3<u32>, @builtin(local_invocation_index) thread : u32) {
  let row = group.x;
  let start = row * u.width;
  let own = row * ${SAMPLE_SETTINGS}u;
  let most = u32(settings[own + 1u]);
  let share = settings[own + 2u];
  let uniform_number = settings[own + 3u];
  let least_share = settings[own + 4u];
  let best = largest(thread, start);
  if (best == u.width || uniform_number < 0.0) {
    if (thread == 0u) {
      let broken = best == u.width;
      result[row * ${SAMPLE_RESULTS}u] = select(f32(best), -1.0, broken);
      result[row * ${SAMPLE_RESULTS}u + 1u] = select(1.0, 0.0, broken);
      result[row * ${SAMPLE_RESULTS}u + 2u] = 1.0;
    }
    return;
  }
  // Kept are weights above the edge, and the first \`equals\` of those at it.
  var edge = 0u;
  var equals = 0u;
  if (most > 0u && most < u.width) {
    for (var bit = ${BITS}u; bit > 0u; bit--) {
      let candidate = edge | (1u << (bit - 1u));
      if (measure(thread, start, candidate).count >= most) { edge = candidate; }
    }
    if (edge > 0u) { equals = most - measure(thread, start, edge + 1u).count; }
  }
  if (share < 1.0) {
    let total = measure(thread, start, edge + 1u).mass + f32(equals) * bitcast<f32>(edge);
    let wanted = share * total;
    var least = 0u;
    for (var bit = ${BITS}u; bit > 0u; bit--) {
      let candidate = least | (1u << (bit - 1u));
      let mass = select(measure(thread, start, candidate).mass, total, candidate <= edge);
      if (mass >= wanted) { least = candidate; }
    }
    if (least > 0u) {
      let at = measure(thread, start, least);
      let above = measure(thread, start, least + 1u);
      let available = select(at.count - above.count, equals, least == edge);
      let needed = ceil((wanted - above.mass) / bitcast<f32>(least));
      equals = u32(clamp(needed, 1.0, f32(available)));
      edge = least;
    }
  }
  // The largest weight is 1: weights below the least share are cut.
  let least_bits = bitcast<u32>(least_share);
  if (least_bits > edge) {
    edge = least_bits - 1u;
    equals = 0u;
  }
  if (thread == 0u) { place = Place(0u, u.width, 0u, -1.0, 0.0); }
  loop {
    let now = workgroupUniformLoad(&place);
    if (now.last - now.first <= 1u && now.rest >= 0.0) { break; }
    narrow(thread, start, now, edge, equals, uniform_number);
  }
  if (thread == 0u) {
    result[row * ${SAMPLE_RESULTS}u] = f32(place.first);
    result[row * ${SAMPLE_RESULTS}u + 1u] = weights[start + place.first];
    result[row * ${SAMPLE_RESULTS}u + 2u] = place.total;
  }
}
`;

/**
 * Samples a token of each row.
 * @param logits [rows, width]
 * @param weights exp((logit − largest) / temperature), of the same shape
 * @param settings [rows, {@link SAMPLE_SETTINGS}]
 * @param result [rows, {@link SAMPLE_RESULTS}]
 */
export function sampleRows(
  {
    logits,
    weights,
    settings,
  }: { readonly logits: DeviceValue; readonly weights: DeviceValue; readonly settings: DeviceValue },
  width: number,
  result: DeviceValue,
  scratch: ScratchSpace,
): KernelDispatch[] {
  const operands = [
    { value: logits, width },
    { value: weights, width },
    { value: settings, width: SAMPLE_SETTINGS },
  ];
  return inRowSlices(
    scratch,
    settings.length / SAMPLE_SETTINGS,
    operands,
    { value: result, width: SAMPLE_RESULTS },
    (rows, own, out) => [
      {
        name: `sample of ${width} tokens`,
        code,
        uniforms: Uint32Array.of(width).buffer,
        reads: own,
        writes: [out],
        groups: [rows, 1, 1],
      },
    ],
  );
}
