import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { Random } from '../../../../shared/random.ts';
import { lacksPython, PYTHON } from '../../../../test/python.test-data.ts';
import { buildKernels } from './build.ts';
import {
  type AdamwArrays,
  adamwKernel,
  MemoryPlan,
  normalize,
  openExponentials,
  openKernels,
  PANEL_OUTPUTS,
  packedSize,
  packMatrix,
  product,
  roundUp,
} from './kernels.ts';

const MAX_ROWS = 11;
const memory = new WebAssembly.Memory({ initial: 4, maximum: 4 });
const kernels = openKernels(memory);
const rng = Random.fromSeed(11);
const random = (count: number) => Float32Array.from({ length: count }, () => rng.normal());
const floats = (address: number, count: number) => new Float32Array(memory.buffer, address, count);
const closeTo = (a: number, b: number, relative: number) => Math.abs(a - b) <= relative * Math.abs(b);

/** Runs the kernel on x [rows, inputs] and weight [outputs, inputs]; adds to `before` where it is not 0. */
function run(x: Float32Array, weight: Float32Array, bias: Float32Array, rows: number, before: number) {
  const outputs = bias.length;
  const inputs = weight.length / outputs;
  const width = roundUp(outputs, PANEL_OUTPUTS);
  const plan = new MemoryPlan();
  const places = {
    x: plan.place(rows * inputs),
    weight: plan.place(packedSize(outputs, inputs)),
    bias: plan.place(width),
    result: plan.place(rows * width),
  };
  floats(0, plan.end / 4).fill(0);
  floats(places.x, rows * inputs).set(x);
  packMatrix(weight, outputs, inputs, floats(places.weight, packedSize(outputs, inputs)));
  floats(places.bias, outputs).set(bias);
  const result = floats(places.result, rows * width).fill(before);
  const strides = { xStride: 4 * inputs, resultStride: 4 * width };
  product(kernels, { ...places, ...strides, rows, inputs, outputs, accumulate: before !== 0 });
  return (row: number, output: number) => result[row * width + output];
}

for (const [inputs, outputs] of [
  [8, 8],
  [24, 16],
  [13, 5],
  [40, 46],
]) {
  t.test(`rows of ${inputs} by ${outputs} outputs`, async t => {
    const [x, weight, bias] = [random(MAX_ROWS * inputs), random(outputs * inputs), random(outputs)];
    for (const before of [0, 2]) {
      const at = run(x, weight, bias, MAX_ROWS, before);
      let worst = 0;
      for (let row = 0; row < MAX_ROWS; row++) {
        for (let output = 0; output < outputs; output++) {
          let sum = bias[output] + before;
          for (let i = 0; i < inputs; i++) sum += x[row * inputs + i] * weight[output * inputs + i];
          worst = Math.max(worst, Math.abs(sum - at(row, output)));
        }
      }
      t.ok(worst < 1e-5, `on top of ${before}: error ${worst}`);
    }
  });
}

t.test('a row gives the same bits for any number of rows', async t => {
  const [inputs, outputs] = [37, 24];
  const [x, weight, bias] = [random(8 * inputs), random(outputs * inputs), random(outputs)];
  const all = run(x, weight, bias, 8, 0);
  const last = Array.from({ length: outputs }, (_, output) => all(7, output));
  const alone = run(x.subarray(7 * inputs), weight, bias, 1, 0);
  t.strictSame(
    last.map((_, output) => alone(0, output)),
    last,
  );
});

t.test('the norm divides by the root mean square of each row and leaves the padding 0', async t => {
  const [rows, width, stride, epsilon] = [3, 6, 8, 1e-3];
  const x = floats(0, rows * stride).map((_, i) => (i % stride < width ? Math.sin(i + 1) : 0));
  const weight = Float32Array.from({ length: stride }, (_, i) => (i < width ? 1 + i / 10 : 0));
  floats(0, x.length).set(x);
  floats(1024, stride).set(weight);
  normalize(kernels, { rows, x: 0, stride: 4 * stride, width, weight: 1024, epsilon, result: 2048 });
  const result = floats(2048, rows * stride);
  for (let row = 0; row < rows; row++) {
    const entries = x.subarray(row * stride, row * stride + width);
    const root = Math.sqrt(entries.reduce((sum, v) => sum + v * v, 0) / width + epsilon);
    entries.forEach((value, i) => {
      t.ok(closeTo(result[row * stride + i], (value / root) * weight[i], 1e-6), `${row}, ${i}`);
    });
    t.strictSame([...result.subarray(row * stride + width, (row + 1) * stride)], [0, 0]);
  }
});

t.test('gated silu from −100 to 100', async t => {
  const count = 804;
  const gate = Float32Array.from({ length: count }, (_, i) => (i - count / 2) / 4);
  floats(0, count).set(gate);
  floats(8192, count).fill(3);
  kernels.gatedSilu(0, 8192, count);
  const wrong = [...floats(0, count)].filter((value, i) => {
    const expected = (3 * gate[i]) / (1 + Math.exp(-gate[i]));
    return Math.abs(value - expected) > 1e-6 * Math.abs(expected) + 1e-12;
  });
  t.strictSame(wrong, []);
});

t.test('exponentials sum up over more than one chunk', async t => {
  const count = 9001;
  const x = Float32Array.from({ length: count }, (_, i) => -8 * Math.abs(Math.sin(i)));
  floats(64, count).set(x);
  floats(64 + 4 * count, 3).fill(-Infinity);
  const total = openExponentials(memory, 0)(64, count, 0, 2);
  const exact = [...x].map(value => Math.exp(2 * value));
  t.ok(floats(64, count).every((value, i) => closeTo(value, exact[i], 2e-6)));
  const sum = exact.reduce((a, b) => a + b);
  t.ok(closeTo(total, sum, 1e-6), `${total}, should be ${sum}`);
});

t.test('kernels.wasm is what kernels.c compiles to', { skip: lacksPython('ziglang') }, async t => {
  const output = join(t.testdir(), 'kernels.wasm');
  buildKernels(PYTHON, output);
  t.ok(
    readFileSync(output).equals(readFileSync(join(import.meta.dirname, 'kernels.wasm'))),
    'npm run kernels',
  );
});

const factors = {
  scale: 0.5,
  beta1: 0.9,
  beta2: 0.999,
  keep: 1 - 1e-4,
  stepSize: 1e-3 / (1 - 0.9 ** 3),
  inverseRoot: 1 / Math.sqrt(1 - 0.999 ** 3),
  epsilon: 1e-8,
};

function arrays(length: number): AdamwArrays {
  const wave = (speed: number, height: number) =>
    Float32Array.from({ length }, (_, i) => height * Math.sin(i * speed + 1));
  const squares = wave(0.3, 0.01).map(x => x * x);
  return { weights: wave(0.7, 1), gradients: wave(1.1, 0.1), first: wave(0.5, 0.05), second: squares };
}

t.test('a step is the formula in doubles, to float32 precision', async t => {
  const before = arrays(10_001);
  const after = arrays(10_001);
  adamwKernel(after, factors, 0, 10_001);
  const worst = { weights: 0, first: 0, second: 0 };
  for (let i = 0; i < before.weights.length; i++) {
    const gradient = before.gradients[i] * factors.scale;
    const first = factors.beta1 * before.first[i] + (1 - factors.beta1) * gradient;
    const second = factors.beta2 * before.second[i] + (1 - factors.beta2) * gradient ** 2;
    const step = (factors.stepSize * first) / (Math.sqrt(second) * factors.inverseRoot + factors.epsilon);
    const expected = { weights: before.weights[i] * factors.keep - step, first, second };
    for (const name of ['weights', 'first', 'second'] as const) {
      const error = Math.abs(after[name][i] - expected[name]) / Math.max(1e-6, Math.abs(expected[name]));
      worst[name] = Math.max(worst[name], error);
    }
  }
  t.ok(worst.first < 1e-4 && worst.second < 1e-5 && worst.weights < 1e-3, JSON.stringify(worst));
  t.strictSame([...after.gradients], [...before.gradients]);
});

t.test('AdamW changes only its range, and slices do not change the result', async t => {
  const whole = arrays(9000);
  adamwKernel(whole, factors, 0, 9000);
  const cut = arrays(9000);
  for (const [start, end] of [
    [0, 1],
    [1, 4999],
    [4999, 9000],
  ])
    adamwKernel(cut, factors, start, end);
  t.strictSame(Buffer.from(cut.weights.buffer), Buffer.from(whole.weights.buffer));
  t.strictSame(Buffer.from(cut.second.buffer), Buffer.from(whole.second.buffer));
  const part = arrays(100);
  adamwKernel(part, factors, 10, 20);
  const untouched = arrays(100);
  t.strictSame([...part.weights.subarray(0, 10)], [...untouched.weights.subarray(0, 10)]);
  t.strictSame([...part.first.subarray(20)], [...untouched.first.subarray(20)]);
  t.not(part.weights[10], untouched.weights[10]);
});
