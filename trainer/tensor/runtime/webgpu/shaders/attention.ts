import {
  type AttentionAttributes,
  type AttentionSizes,
  attention,
  attentionSizes,
  forEachQuery,
} from '../../../graph/operations/attention.ts';
import type { NdArray } from '../../../graph/tensor.ts';
import { RuntimeError } from '../../runtime-error.ts';
import { broadcastStrides } from '../lowering/layout.ts';
import type { DeviceValue, KernelDispatch, Workgroups } from '../lowering/step.ts';
import { type AttentionPass, attentionCode, attentionTile } from './attention-code.ts';
import { VECTOR } from './attention-tiles.ts';
import { type TensorValue, toNdArray } from './reference.ts';

/** Operands of an attention: queries, keys, values, and what is added to the scores (one 0 when nothing is). */
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
    runOnCpu(arrays, [out]) {
      const inputs = [q, k, v, bias].map((x, i) => toNdArray(arrays[i], x));
      out.set(attention.evaluate(inputs, attributes, { dtype: 'float32', shape: q.shape }));
    },
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
    runOnCpu([qs, ks, vs, biases, up, , shifts], results) {
      const inputs = [toNdArray(qs, q), toNdArray(ks, k), toNdArray(vs, v), toNdArray(biases, bias)];
      gradientsOnCpu(pass, inputs, { upstream: up, shifts }, attributes, results);
    },
  };
}

function gradientsOnCpu(
  pass: 'query' | 'keyValue',
  inputs: readonly NdArray[],
  { upstream, shifts }: { readonly upstream: Float32Array; readonly shifts: Float32Array },
  attributes: AttentionAttributes,
  results: readonly Float32Array[],
): void {
  const [q, k, v, bias] = inputs;
  const [heads, size] = q.shape.slice(-2);
  const keyHeads = k.shape[k.shape.length - 2];
  const sums = results.map(({ length }) => new Float64Array(length));
  forEachQuery(inputs, attributes, bias, ({ queryOffset, keyOffset, weights }) => {
    weights.forEach((weight, key) => {
      const from = keyOffset(key);
      let inner = -shifts[queryOffset / size];
      for (let i = 0; i < size; i++) inner += upstream[queryOffset + i] * v.data[from + i];
      const score = weight * inner * attributes.scale;
      const row = Math.floor(from / size / keyHeads) * heads + ((queryOffset / size) % heads);
      const into = row * size;
      for (let i = 0; i < size; i++) {
        if (pass === 'query') sums[0][queryOffset + i] += score * k.data[from + i];
        else {
          sums[0][into + i] += score * q.data[queryOffset + i];
          sums[1][into + i] += weight * upstream[queryOffset + i];
        }
      }
    });
  });
  results.forEach((result, i) => {
    result.set(sums[i]);
  });
}
