import t, { type Test } from 'tap';
import { OnnxRuntime } from '../../tensor/runtime/onnx/onnx-runtime.ts';
import { joinParameters, ParameterStore } from '../../tensor/runtime/parameter-store.ts';
import type { Runtime } from '../../tensor/runtime/runtime.ts';
import { KernelCpuRuntime } from '../../tensor/runtime/webgpu/cpu-runtime.test-data.ts';
import { WebGpuRuntime } from '../../tensor/runtime/webgpu/webgpu-runtime.ts';
import { parseConfig } from '../config-json.ts';
import { SafetensorsReader } from '../files/safetensors.ts';
import { buildLoss, folderOf, goldenBatch, goldenWeights, read } from '../golden.test-data.ts';
import { initialize, loraSpecs, parameterSpecs } from '../parameters.ts';
import { hasAdapter, loraNames, loraScale, mergedWeight } from './lora.ts';
import { PEFT_PREFIX, parsePeftConfig } from './peft.ts';

const MODEL = 'qwen2-tiny';
/** Null where this machine has none. */
const runtimes: readonly (readonly [string, Runtime | null])[] = [
  ['ONNX Runtime', new OnnxRuntime()],
  ['WebGPU', await WebGpuRuntime.open()],
  ['gpu.js cpu', new KernelCpuRuntime()],
];
t.after(async () => {
  for (const [, runtime] of runtimes) await runtime?.close();
});

const { lora } = parsePeftConfig(read(MODEL, 'lora/adapter_config.json'));
const base = parseConfig(read(MODEL, 'config.json'));
const config = { ...base, lora };
const specs = loraSpecs(base, lora);
const { forward, lora: golden } = read(MODEL, 'expected.json');
const batch = goldenBatch(MODEL);
const time = batch.ids[0].length;
const inputs = { ids: Int32Array.from(batch.ids.flat()), mask: Float32Array.from(batch.mask.flat()) };

async function goldenAdapter(): Promise<ParameterStore> {
  const store = new ParameterStore(specs);
  const path = new URL('lora/adapter_model.safetensors', folderOf(MODEL)).pathname;
  await using file = await SafetensorsReader.open(path);
  t.equal(file.tensors.size, specs.length);
  for (const { name } of specs) await file.read(PEFT_PREFIX + name, store.array(name));
  return store;
}

function checkLogits(t: Test, logits: ArrayLike<number>, expected: readonly number[]): void {
  const start = batch.mask[0].lastIndexOf(1) * base.vocabularySize;
  const worst = expected.reduce((max, x, i) => Math.max(max, Math.abs(x - logits[start + i])), 0);
  t.ok(worst < 1e-4, `logits: error ${worst}`);
}

for (const [place, runtime] of runtimes) {
  const options = { skip: runtime === null ? 'no GPU here that Dawn can use' : false };
  t.test(`a LoRA adapter on ${place} is PEFT's in logits, loss and gradients`, options, async t => {
    const adapter = await goldenAdapter();
    const parameters = joinParameters(await goldenWeights(MODEL, base), adapter);
    const executable = await runtime!.compile(buildLoss(config, batch, specs), { parameters });
    const out = await executable.run(inputs);
    t.ok(Math.abs(out.loss[0] - golden.loss_mean_over_valid) < 1e-5, `loss ${out.loss[0]}`);
    checkLogits(t, out.logits, golden.logits_last_valid_row0);
    for (const { name } of specs) {
      const wanted = golden.grads[name.replace(/\.weight$/, '.default.weight')];
      const norm = Math.hypot(...Float64Array.from(out[name]));
      t.ok(Math.abs(norm - wanted.norm) < 1e-4 * wanted.norm + 1e-6, `norm of ${name}`);
      t.ok(
        wanted.head.every((x: number, i: number) => Math.abs(x - out[name][i]) < 1e-4 * Math.abs(x) + 2e-6),
        `first elements of ${name}`,
      );
    }
    for (const { name } of specs) adapter.array(name).fill(0);
    adapter.touch();
    checkLogits(t, (await executable.run(inputs)).logits, forward.logits_last_valid_row0);
  });
}

t.test('merged weights compute the same as base and adapter', async t => {
  const adapter = await goldenAdapter();
  const weights = await goldenWeights(MODEL, base);
  for (const { name } of weights.layout) {
    const linear = name.replace(/\.weight$/, '');
    if (!hasAdapter(lora, linear)) continue;
    const { a, b } = loraNames(linear);
    const matrices = { a: adapter.array(a), b: adapter.array(b) };
    weights
      .array(name)
      .set(mergedWeight(weights.array(name), { ...matrices, rank: lora.rank, scale: loraScale(lora) }));
  }
  const [[, runtime]] = runtimes;
  const executable = await runtime!.compile(buildLoss(base, batch, parameterSpecs(base, false)), {
    parameters: weights,
  });
  const { loss, logits } = await executable.run(inputs);
  t.ok(Math.abs(loss[0] - golden.loss_mean_over_valid) < 1e-5);
  t.equal(logits.length, batch.ids.length * time * base.vocabularySize);
  checkLogits(t, logits, golden.logits_last_valid_row0);
});

t.test('a fresh adapter has A within 1/√inputs and B 0, on the named modules alone', async t => {
  const some = loraSpecs(base, { ...lora, modules: ['q_proj', 'down_proj'] });
  t.equal(some.length, 2 * 2 * base.layers);
  const store = new ParameterStore(some);
  initialize(store, some, base.initializerRange, 5);
  for (const { name, shape } of some) {
    const array = store.array(name);
    t.match(name, /^model\.layers\.\d\.(self_attn\.q_proj|mlp\.down_proj)\.lora_[AB]\.weight$/);
    if (name.includes('lora_B')) t.ok(array.every(x => x === 0));
    else {
      const bound = 1 / Math.sqrt(shape[1]);
      const spread = Math.sqrt(array.reduce((sum, x) => sum + x * x, 0) / array.length);
      t.ok(array.every(x => Math.abs(x) <= bound) && Math.abs(spread * Math.sqrt(3) - bound) < 0.2 * bound);
    }
  }
});

t.test('parameters of several stores are found once each', async t => {
  const weights = new ParameterStore(parameterSpecs(base, true));
  const adapter = new ParameterStore(specs);
  const joined = joinParameters(weights, adapter);
  t.equal(joined.storeOf('value_head.bias'), weights);
  t.equal(joined.array(specs[0].name), adapter.array(specs[0].name));
  t.throws(() => joined.array('w'), /no parameter 'w' in the stores/);
  t.throws(() => joinParameters(weights, weights), /is in two stores/);
});
