import t, { type Test } from 'tap';
import type { Quantization } from '../../tensor/graph/operations/quantized/blockwise.ts';
import { OnnxRuntime } from '../../tensor/runtime/onnx/onnx-runtime.ts';
import { joinParameters, ParameterStore } from '../../tensor/runtime/parameter-store.ts';
import type { Runtime } from '../../tensor/runtime/runtime.ts';
import { KernelCpuRuntime } from '../../tensor/runtime/webgpu/cpu-runtime.ts';
import { WebGpuRuntime } from '../../tensor/runtime/webgpu/webgpu-runtime.ts';
import { parseConfig } from '../config-json.ts';
import { goldenAdapter, gradientDifference, largestDifference } from '../families/families.test-data.ts';
import { buildLoss, goldenBatch, goldenWeights, read } from '../golden.test-data.ts';
import { initialize, loraSpecs, parameterSpecs } from '../parameters.ts';
import { isQuantizable, storedParameters, storeQuantized } from '../quantized.ts';
import { scaleRows, squaredNorms, startMagnitudes } from './dora.ts';
import { hasAdapter, loraNames, loraScale, magnitudeName, mergedWeight } from './lora.ts';
import { parsePeftConfig } from './peft.ts';

/** Cases of test/golden/make-adapters.py on qwen2-tiny. */
const MODEL = 'qwen2-tiny';
const CASES: readonly (readonly ['lora' | 'dora', Quantization | undefined])[] = [
  ['lora', 'int8'],
  ['lora', 'nf4'],
  ['dora', undefined],
  ['dora', 'int8'],
  ['dora', 'nf4'],
];

const onnx = new OnnxRuntime();
const gpu = await WebGpuRuntime.open();
const kernels = new KernelCpuRuntime();
t.after(async () => {
  for (const runtime of [onnx, gpu, kernels]) await runtime?.close();
});
const expected = read(MODEL, 'adapters.json');
const plain = parseConfig(read(MODEL, 'config.json'));
const batch = goldenBatch(MODEL);
const inputs = { ids: Int32Array.from(batch.ids.flat()), mask: Float32Array.from(batch.mask.flat()) };

/** The golden base, with its linear weights rounded where that is asked for. */
async function frozen(quantization: Quantization | undefined): Promise<ParameterStore> {
  const weights = await goldenWeights(MODEL, plain);
  if (quantization === undefined) return weights;
  const specs = parameterSpecs(plain, false);
  const base = new ParameterStore(storedParameters(specs, quantization));
  for (const spec of specs) {
    const array = weights.array(spec.name);
    if (isQuantizable(spec.name)) storeQuantized(base, spec, array, quantization);
    else base.array(spec.name).set(array);
  }
  return base;
}

async function adaptedCase(kind: 'lora' | 'dora', quantization: Quantization | undefined) {
  const { lora } = parsePeftConfig(read(MODEL, `${kind}/adapter_config.json`));
  const config = { ...plain, lora, ...(quantization === undefined ? {} : { quantization }) };
  const specs = loraSpecs(plain, lora);
  const base = await frozen(quantization);
  const norms = squaredNorms(config, base);
  const adapter = await goldenAdapter(MODEL, specs, kind);
  const parameters = joinParameters(base, ...(norms ? [norms] : []), adapter);
  return { config, lora, specs, base, norms, adapter, parameters };
}

function checkLogits(t: Test, logits: Float32Array, wanted: readonly number[]): void {
  const start = batch.mask[0].lastIndexOf(1) * plain.vocabularySize;
  const error = largestDifference(logits.subarray(start, start + plain.vocabularySize), wanted);
  t.ok(error < 1e-4, `logits: error ${error}`);
}

async function checkCase(
  t: Test,
  runtime: Runtime,
  [kind, quantization]: (typeof CASES)[number],
): Promise<void> {
  const name = quantization === undefined ? kind : `${kind} over ${quantization}`;
  const golden = expected[name];
  const { config, specs, parameters } = await adaptedCase(kind, quantization);
  const executable = await runtime.compile(buildLoss(config, batch, specs), { parameters });
  const out = await executable.run(inputs);
  t.ok(Math.abs(out.loss[0] - golden.loss_mean_over_valid) < 1e-5, `${name}: loss ${out.loss[0]}`);
  checkLogits(t, out.logits as Float32Array, golden.logits_last_valid_row0);
  t.same(Object.keys(golden.grads).sort(), specs.map(spec => spec.name).sort());
  for (const spec of specs) {
    const difference = gradientDifference(out[spec.name] as Float32Array, golden.grads[spec.name]);
    t.ok(difference < 1e-4, `${name}: gradient of ${spec.name}: ${difference}`);
  }
}

t.test('DoRA, and adapters over rounded weights, are what PEFT computes, gradients included', async t => {
  for (const each of CASES) await checkCase(t, onnx, each);
});
t.test('DoRA on gpu.js is what PEFT computes', async t => checkCase(t, kernels, ['dora', undefined]));
t.test(
  'DoRA on WebGPU is what PEFT computes',
  { skip: gpu === null ? 'no GPU here that Dawn can use' : false },
  async t => checkCase(t, gpu!, ['dora', undefined]),
);

t.test('merged weights compute what DoRA does, and fresh magnitudes change nothing', async t => {
  const { lora, specs, config, adapter, norms, base } = await adaptedCase('dora', undefined);
  const fresh = new ParameterStore(specs);
  initialize(fresh, specs, plain.initializerRange, 3);
  startMagnitudes(config, norms!, fresh);
  const started = await onnx.compile(buildLoss(config, batch, specs), {
    parameters: joinParameters(base, norms!, fresh),
  });
  const untouched = await onnx.compile(buildLoss(plain, batch, parameterSpecs(plain, false)), {
    parameters: base,
  });
  const before = await untouched.run(inputs);
  const error = largestDifference((await started.run(inputs)).logits, [...before.logits]);
  t.ok(error < 1e-5, `a fresh adapter changes logits by ${error}`);
  for (const { name } of base.layout) {
    const linear = name.replace(/\.weight$/, '');
    if (linear === name || !hasAdapter(lora, linear)) continue;
    const { a, b } = loraNames(linear);
    const matrices = { a: adapter.array(a), b: adapter.array(b) };
    const sum = mergedWeight(base.array(name), { ...matrices, rank: lora.rank, scale: loraScale(lora) });
    base.array(name).set(scaleRows(sum, adapter.array(magnitudeName(linear))));
  }
  const { loss, logits } = await untouched.run(inputs);
  t.ok(Math.abs(loss[0] - expected.dora.loss_mean_over_valid) < 1e-5);
  checkLogits(t, logits as Float32Array, expected.dora.logits_last_valid_row0);
});
