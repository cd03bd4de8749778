/**
 * The GPU runtime's kernels at the shapes of a model, one by one: milliseconds, TFLOP/s and GB/s, and the share of what the
 * card can do at most.
 *
 *     npm run bench:gpu                                      Qwen2.5-0.5B, 4096 tokens (a GPU in software: tiny)
 *     npm run bench:gpu -- --shape tiny --precision float16  factors of products in float16, on tensor cores where there are
 *     npm run bench:gpu -- --tflops 67 --gigabytes 3350      limits of a card that is not known by name
 *
 * `--repeats` runs of a kernel are queued, 20 by default.
 * A kernel's result is added to an array on the device, so that nothing comes back; many runs are queued and the time until
 * the last one is done counts. Whole training steps and decoding: bench:compute.
 */

import { PRECISIONS } from '../trainer/tensor/runtime/choice.ts';
import { WebGpuRuntime } from '../trainer/tensor/runtime/webgpu/webgpu-runtime.ts';
import { limitsOf } from './compute/peaks.ts';
import { scriptFlags } from './flags.ts';
import { KernelBench } from './gpu/kernel-bench.ts';
import { kernels, SHAPES } from './gpu/kernels.ts';

const { values: flags } = scriptFlags(import.meta.filename, {
  options: {
    shape: { type: 'string' },
    precision: { type: 'string', default: 'float32' },
    repeats: { type: 'string', default: '20' },
    tflops: { type: 'string' },
    gigabytes: { type: 'string' },
  },
});
const precision = PRECISIONS.find(name => name === flags.precision);
if (precision === undefined) {
  throw new RangeError(`--precision ${flags.precision} is not known; choose ${PRECISIONS.join(', ')}`);
}
const repeats = positive('repeats', flags.repeats);
const runtime = await WebGpuRuntime.open(precision);
if (runtime === null) throw new Error('there is no GPU here that WebGPU can use: install its Vulkan driver');
const name = flags.shape ?? (runtime.software ? 'tiny' : 'qwen2.5-0.5b');
const shape = SHAPES[name];
if (shape === undefined) {
  throw new RangeError(`no shape is named ${name}; choose ${Object.keys(SHAPES).join(', ')}`);
}
const known = limitsOf(runtime.description);
const limits = {
  tflops: flags.tflops === undefined ? known?.tflops : positive('tflops', flags.tflops),
  gigabytes: flags.gigabytes === undefined ? known?.gigabytes : positive('gigabytes', flags.gigabytes),
};
console.log(runtime.description);
console.log(
  limits.tflops === undefined || limits.gigabytes === undefined
    ? 'No shares: this card is not known by name (give --tflops and --gigabytes).'
    : `Shares of ${limits.tflops} TFLOP/s and ${limits.gigabytes} GB/s, of the one that allows less.`,
);
console.log(
  `\n| ${name}, ${shape.tokens} tokens | ms | TFLOP/s | GB/s | share |\n| --- | --- | --- | --- | --- |`,
);
const bench = new KernelBench(runtime);
for (const kernel of kernels(shape)) {
  const ms = await bench.measure(kernel, repeats);
  const least = Math.max(
    kernel.operations / (limits.tflops ?? Number.NaN) / 1e9,
    kernel.bytes / (limits.gigabytes ?? Number.NaN) / 1e6,
  );
  const share = Number.isNaN(least) ? '' : `${((100 * least) / ms).toFixed(1)} %`;
  const [tflops, gigabytes] = [kernel.operations / ms / 1e9, kernel.bytes / ms / 1e6];
  console.log(
    `| ${kernel.name} | ${ms.toFixed(3)} | ${tflops.toFixed(3)} | ${gigabytes.toFixed(2)} | ${share} |`,
  );
}
await runtime.close();

function positive(flag: string, text: string): number {
  const value = Number(text);
  if (value > 0 && Number.isFinite(value)) return value;
  throw new RangeError(`--${flag} must be a positive number, got ${text}`);
}
