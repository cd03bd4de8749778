import { createRequire } from 'node:module';
import { forEachQuery, type NdArray } from '../../graph/attention-reference.test-data.ts';
import { evaluate } from '../../graph/reference.test-data.ts';
import type { Attributes, DType, Shape } from '../../graph/tensor.ts';
import { extentsOf, type KernelCall, LOOP_BOUND } from './lowering/kernel.ts';
import type { KernelDispatch } from './lowering/program.ts';

type Arrays = readonly Float32Array[];

/** Does what one dispatch does on a device, from the arrays and uniforms that a device gets. */
export function runOnCpu(step: KernelDispatch, reads: Arrays, writes: Arrays): void {
  if ('kernel' in step) runKernel(step as KernelCall, reads, writes[0]);
  else shaderOf(step.name)(step, reads, writes);
}

type Shader = (step: KernelDispatch, reads: Arrays, writes: Arrays) => void;

const shaders: readonly (readonly [start: string, shader: Shader])[] = [
  ['copy', copy],
  ['put rows', putRows],
  ['matmul', multiply],
  ['attention over pages', attendPages],
  ['attention forward', attend],
  ['attention query', attentionGradients],
  ['attention keyValue', attentionGradients],
  ['sample', sample],
];

function shaderOf(name: string): Shader {
  const found = shaders.find(([start]) => name.startsWith(start));
  if (found === undefined) throw new Error(`no shader is known as '${name}'`);
  return found[1];
}

/** Uniforms as unsigned words; numbers of floats by their word. */
function uniformsOf({ uniforms }: KernelDispatch) {
  const view = new DataView(uniforms);
  const words = Array.from({ length: uniforms.byteLength / 4 }, (_, i) => view.getUint32(4 * i, true));
  return { words, float: (word: number) => view.getFloat32(4 * word, true) };
}

function toNdArray(data: Float32Array, shape: Shape, dtype: DType = 'float32'): NdArray {
  return { dtype, shape, data: Float64Array.from(data) };
}

function copy(step: KernelDispatch, [from]: Arrays, [to]: Arrays): void {
  const [count, , sourceStart, resultStart, axes, , , , ...walk] = uniformsOf(step).words;
  for (let index = 0; index < count; index++) {
    let rest = index;
    let [sourceAt, resultAt] = [sourceStart, resultStart];
    for (let axis = 0; axis < axes; axis++) {
      const [extent, source, result] = walk.slice(4 * axis);
      const at = rest % extent;
      rest = Math.floor(rest / extent);
      sourceAt += at * source;
      resultAt += at * result;
    }
    to[resultAt] = from[sourceAt];
  }
}

function putRows(step: KernelDispatch, [rows, places]: Arrays, [table]: Arrays): void {
  const [, , width] = uniformsOf(step).words;
  places.forEach((place, row) => {
    table.set(rows.subarray(row * width, (row + 1) * width), place * width);
  });
}

function multiply(step: KernelDispatch, [a, b]: Arrays, [out]: Arrays): void {
  const { words, float } = uniformsOf(step);
  const [rows, columns, inner, batch, leftOuter, leftInside, rightOuter, rightInside] = words;
  const [leftStride, leftInner, , rightStride, rightInner] = words.slice(8);
  const scale = float(15);
  const [leftStart, rightStart, resultStart, resultStride, resultBatch, adding] = words.slice(16);
  for (let matrix = 0; matrix < step.groups[2]; matrix++) {
    const [outer, inside] = [Math.floor(matrix / batch), matrix % batch];
    const left = leftStart + outer * leftOuter + inside * leftInside;
    const right = rightStart + outer * rightOuter + inside * rightInside;
    for (let row = 0; row < rows; row++) {
      for (let column = 0; column < columns; column++) {
        let sum = 0;
        for (let k = 0; k < inner; k++) {
          sum +=
            a[left + row * leftStride + k * leftInner] * b[right + column * rightStride + k * rightInner];
        }
        const at = resultStart + matrix * resultBatch + row * resultStride + column;
        out[at] = (adding === 1 ? out[at] : 0) + sum * scale;
      }
    }
  }
}

function attentionOf(step: KernelDispatch, [q, k, v, bias]: Arrays) {
  const { words, float } = uniformsOf(step);
  const [batch, queries, keys, heads, keyHeads, causal, biasBatch, biasQuery, biasKey, , vectors] = words;
  const size = 4 * vectors;
  const own = (stride: number, extent: number): number => (stride === 0 ? 1 : extent);
  const biasShape = [own(biasBatch, batch), 1, own(biasQuery, queries), own(biasKey, keys)];
  const inputs = [
    toNdArray(q, [batch, queries, heads, size]),
    toNdArray(k, [batch, keys, keyHeads, size]),
    toNdArray(v, [batch, keys, keyHeads, size]),
    toNdArray(bias, biasShape),
  ];
  return { inputs, attributes: { causal: causal === 1, scale: float(9) }, heads, keyHeads, size };
}

/** Log-sums stay unwritten: the gradients below compute the weights again. */
function attend(step: KernelDispatch, reads: Arrays, [out]: Arrays): void {
  const { inputs, attributes } = attentionOf(step, reads);
  out.set(evaluate('attention', inputs, attributes, inputs[0]));
}

function attentionGradients(step: KernelDispatch, reads: Arrays, results: Arrays): void {
  const [, , , , upstream, , shifts] = reads;
  const { inputs, attributes, heads, keyHeads, size } = attentionOf(step, reads);
  const [q, k, v, bias] = inputs;
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
        if (step.name === 'attention query') sums[0][queryOffset + i] += score * k.data[from + i];
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

function attendPages(step: KernelDispatch, reads: Arrays, [out]: Arrays): void {
  const { words, float } = uniformsOf(step);
  const [heads, keyHeads, blocks, vectors, blockSize, , window] = words;
  const size = 4 * vectors;
  const shapes = [
    [reads[0].length / heads / size, heads, size],
    ...[reads[1], reads[2]].map(({ length }) => [length / keyHeads / size, keyHeads, size]),
    [reads[3].length / blocks, blocks],
    [reads[4].length],
    [reads[5].length],
  ];
  const inputs = reads.map((array, i) => toNdArray(array, shapes[i], i < 4 ? 'float32' : 'int32'));
  const attributes = { blockSize, scale: float(5), window, softcap: float(7) };
  out.set(evaluate('pagedAttention', inputs, attributes, inputs[0]));
}

function sample(step: KernelDispatch, [logits, , settings]: Arrays, [out]: Arrays): void {
  const [width] = uniformsOf(step).words;
  const rows = logits.length / width;
  const inputs = [toNdArray(logits, [rows, width]), toNdArray(settings, [rows, settings.length / rows])];
  const none: Attributes = {};
  out.set(evaluate('sample', inputs, none, { dtype: 'float32', shape: [rows, out.length / rows] }));
}

/** A kernel compiled to JavaScript: extents of the result, innermost first, and arguments; gives nested rows. */
type CpuKernel = (...args: readonly (number | object)[]) => Float32Array | NestedArray;
type NestedArray = readonly (Float32Array | NestedArray)[];

const gpujs = createRequire(import.meta.url)('gpu.js') as {
  readonly GPU: new (settings: {
    mode: 'cpu';
  }) => {
    addFunction(source: string): void;
    createKernel(source: string, settings: object): CpuKernel;
  };
  input(values: Float32Array, extents: readonly number[]): object;
};

const compiled = new Map<string, CpuKernel>();

function runKernel({ kernel, extents, args }: KernelCall, reads: Arrays, result: Float32Array): void {
  const sources = [...reads];
  if (kernel.inPlace !== null) sources.splice(kernel.inPlace, 0, result.slice());
  const { source, functions, argumentTypes } = kernel.source;
  const shapes = args.map(argument => (typeof argument === 'number' ? '' : extentsOf(argument)));
  const key = `${extents} of ${shapes.join(' ')}: ${source} ${functions.join(' ')}`;
  let run = compiled.get(key);
  if (run === undefined) {
    const gpu = new gpujs.GPU({ mode: 'cpu' });
    for (const text of functions) gpu.addFunction(text);
    run = gpu.createKernel(source, {
      argumentTypes: argumentTypes.map(type => (type === 'Array' ? 'Input' : type)),
      output: extents,
      loopMaxIterations: LOOP_BOUND,
    });
    compiled.set(key, run);
  }
  let array = 0;
  const values = args.map(argument =>
    typeof argument === 'number' ? argument : gpujs.input(sources[array++], extentsOf(argument)),
  );
  flatten(run(...values), result, 0);
}

function flatten(rows: Float32Array | NestedArray, into: Float32Array, at: number): number {
  if (rows instanceof Float32Array) {
    into.set(rows, at);
    return at + rows.length;
  }
  return rows.reduce((next: number, row) => flatten(row, into, next), at);
}
