import t, { type Test } from 'tap';
import { OnnxRuntime } from '../tensor/runtime/onnx/onnx-runtime.ts';
import { joinParameters } from '../tensor/runtime/parameter-store.ts';
import type { Runtime } from '../tensor/runtime/runtime.ts';
import { WebGpuRuntime } from '../tensor/runtime/webgpu/webgpu-runtime.ts';
import { configToJson, FAMILIES, parseConfig } from './config-json.ts';
import {
  FAMILY_MODELS,
  type GoldenLoss,
  goldenAdapter,
  goldenFamily,
  goldenLora,
  gradientDifference,
  largestDifference,
} from './families.test-data.ts';
import { SafetensorsReader } from './files/safetensors.ts';
import { buildLoss, folderOf, goldenBatch, goldenWeights, read } from './golden.test-data.ts';
import { loraSpecs, parameterSpecs } from './parameters.ts';

/** Null where this machine has none. */
const runtimes: readonly (readonly [string, Runtime | null])[] = [
  ['ONNX Runtime', new OnnxRuntime()],
  ['WebGPU', await WebGpuRuntime.open()],
];
t.after(async () => {
  for (const [, runtime] of runtimes) await runtime?.close();
});

function checkGradients(test: Test, out: Readonly<Record<string, unknown>>, golden: GoldenLoss): void {
  const loss = (out.loss as Float32Array)[0];
  const expected = golden.loss_mean_over_valid;
  test.ok(Math.abs(loss - expected) < 2e-6 * Math.max(5, expected), `loss ${loss}, expected ${expected}`);
  for (const [name, gradient] of Object.entries(golden.grads)) {
    const difference = gradientDifference(out[name] as Float32Array, gradient);
    test.ok(difference < 1e-4, `gradient of ${name}: ${difference}`);
  }
}

t.test('every family has a golden model that is read, written and read again, tensors by name', async t => {
  for (const model of FAMILY_MODELS) {
    const config = parseConfig(read(model, 'config.json'));
    t.same(parseConfig(configToJson(config)), config, model);
    await using file = await SafetensorsReader.open(new URL('model.safetensors', folderOf(model)).pathname);
    const names = parameterSpecs(config, false).map(({ name }) => name);
    t.same([...file.tensors.keys()].sort(), names.sort(), model);
  }
  const types = new Set(FAMILY_MODELS.map(model => read(model, 'config.json').model_type));
  t.same(
    FAMILIES.map(({ type }) => type).filter(type => !types.has(type)),
    [],
  );
});

for (const [place, runtime] of runtimes) {
  const options = { skip: runtime === null ? 'no GPU here that Dawn can use' : false };
  for (const model of FAMILY_MODELS) {
    t.test(`${model} on ${place} is transformers' and PEFT's in logits and gradients`, options, async t => {
      const config = parseConfig(read(model, 'config.json'));
      const golden = goldenFamily(model);
      const batch = goldenBatch(model);
      const time = batch.ids[0].length;
      const weights = await goldenWeights(model, config);
      const inputs = { ids: Int32Array.from(batch.ids.flat()), mask: Float32Array.from(batch.mask.flat()) };
      const graph = buildLoss(config, batch, parameterSpecs(config, false));
      const out = await (await runtime!.compile(graph, { parameters: weights })).run(inputs);
      for (let row = 0; row < batch.ids.length; row++) {
        const start = (row * time + batch.mask[row].lastIndexOf(1)) * config.vocabularySize;
        const error = largestDifference(
          out.logits.subarray(start, start + config.vocabularySize),
          golden.forward[`logits_last_valid_row${row}`],
        );
        t.ok(error < 1e-4, `logits of row ${row}: ${error}`);
      }
      checkGradients(t, out, golden.cross_entropy);

      const lora = goldenLora(model);
      const specs = loraSpecs(config, lora);
      const parameters = joinParameters(weights, await goldenAdapter(model, specs));
      const adapted = buildLoss({ ...config, lora }, batch, specs);
      checkGradients(t, await (await runtime!.compile(adapted, { parameters })).run(inputs), golden.lora);
    });
  }
}
