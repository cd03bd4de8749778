import t from 'tap';
import { type AdamwArrays, adamwKernel } from './adamw.ts';

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
