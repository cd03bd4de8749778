import t from 'tap';
import { Random } from '../../../../shared/random.ts';
import { MemoryPlan } from './memory-plan.ts';
import { compileProduct, PANEL_OUTPUTS, packedSize, packMatrix, roundUp } from './product.ts';

const MAX_ROWS = 11;
const memory = new WebAssembly.Memory({ initial: 4, maximum: 4 });
const product = compileProduct(memory);
const rng = Random.fromSeed(11);
const random = (count: number) => Float32Array.from({ length: count }, () => rng.normal());
const floats = (address: number, count: number) => new Float32Array(memory.buffer, address, count);

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
  product({ ...places, ...strides, rows, inputs, outputs, accumulate: before !== 0 });
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
