import t from 'tap';
import { compileExponentials } from './exponentials.ts';
import { compileGatedSilu, compileNorm } from './row-kernels.ts';

const memory = new WebAssembly.Memory({ initial: 2, maximum: 2 });
const floats = (address: number, count: number) => new Float32Array(memory.buffer, address, count);
const closeTo = (a: number, b: number, relative: number) => Math.abs(a - b) <= relative * Math.abs(b);

t.test('the norm divides by the root mean square of each row and leaves the padding 0', async t => {
  const [rows, width, stride, epsilon] = [3, 6, 8, 1e-3];
  const x = floats(0, rows * stride).map((_, i) => (i % stride < width ? Math.sin(i + 1) : 0));
  const weight = Float32Array.from({ length: stride }, (_, i) => (i < width ? 1 + i / 10 : 0));
  floats(0, x.length).set(x);
  floats(1024, stride).set(weight);
  compileNorm(memory)({ rows, x: 0, stride: 4 * stride, width, weight: 1024, epsilon, result: 2048 });
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
  compileGatedSilu(memory)(0, 8192, count);
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
  const total = compileExponentials(memory, 0)(64, count, 0, 2);
  const exact = [...x].map(value => Math.exp(2 * value));
  t.ok(floats(64, count).every((value, i) => closeTo(value, exact[i], 2e-6)));
  const sum = exact.reduce((a, b) => a + b);
  t.ok(closeTo(total, sum, 1e-6), `${total}, should be ${sum}`);
});
