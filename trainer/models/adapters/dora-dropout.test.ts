import t, { type Test } from 'tap';
import { GraphBuilder } from '../../tensor/graph/graph.ts';
import type { Quantization } from '../../tensor/graph/operations/blocks.ts';
import { OnnxRuntime } from '../../tensor/runtime/onnx/onnx-runtime.ts';
import { joinParameters, ParameterStore } from '../../tensor/runtime/parameter-store.ts';
import type { Runtime } from '../../tensor/runtime/runtime.ts';
import { KernelCpuRuntime } from '../../tensor/runtime/webgpu/cpu-runtime.test-data.ts';
import { WebGpuRuntime } from '../../tensor/runtime/webgpu/webgpu-runtime.ts';
import { parseConfig } from '../config-json.ts';
import { goldenAdapter, gradientDifference, largestDifference } from '../families.test-data.ts';
import { isQuantizable, storedParameters, storeQuantized } from '../frozen-weights.ts';
import { buildLoss, goldenBatch, goldenWeights, read } from '../golden.test-data.ts';
import { initialize, loraSpecs, parameterSpecs } from '../parameters.ts';
import { scaleRows, squaredNorms, startMagnitudes } from './dora.ts';
import {
  declareDropout,
  dropOut,
  fillDropoutRows,
  hasAdapter,
  loraNames,
  loraScale,
  magnitudeName,
  mergedWeight,
} from './lora.ts';
import { parsePeftConfig } from './peft.ts';

/** Cases of test/golden/make-adapters.py on qwen2-tiny. */
const MODEL = 'qwen2-tiny';
const DROPOUT = 'dropout';
const CASES: readonly (readonly ['lora' | 'dora', Quantization | typeof DROPOUT | null])[] = [
  ['lora', 'int8'],
  ['lora', 'nf4'],
  ['lora', DROPOUT],
  ['dora', null],
  ['dora', 'int8'],
  ['dora', 'nf4'],
  ['dora', DROPOUT],
];
const PROBABILITY = 0.3;

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
/** Numbers of rows as the script has them. */
const dropoutRows = Float32Array.from(
  [...inputs.ids.keys()].flatMap(i => [1 + ((37 * i) % 508), (101 * i) % 509]),
);

/** The golden base, with its linear weights rounded where that is requested. */
async function frozen(quantization: Quantization | undefined): Promise<ParameterStore> {
  const weights = await goldenWeights(MODEL, plain);
  if (quantization === undefined) return weights;
  const specs = parameterSpecs(plain, false);
  const base = new ParameterStore(storedParameters(specs, { quantization }));
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

async function checkCase(t: Test, runtime: Runtime, [kind, variant]: (typeof CASES)[number]): Promise<void> {
  const dropped = variant === DROPOUT;
  const name = variant === null ? kind : `${kind} ${dropped ? 'with' : 'over'} ${variant}`;
  const golden = expected[name];
  const { config, specs, parameters } = await adaptedCase(kind, dropped ? undefined : (variant ?? undefined));
  const graph = buildLoss(config, batch, specs, dropped ? PROBABILITY : undefined);
  const executable = await runtime.compile(graph, { parameters });
  const out = await executable.run(dropped ? { ...inputs, dropoutRows } : inputs);
  t.ok(Math.abs(out.loss[0] - golden.loss_mean_over_valid) < 1e-5, `${name}: loss ${out.loss[0]}`);
  checkLogits(t, out.logits as Float32Array, golden.logits_last_valid_row0);
  t.same(Object.keys(golden.grads).sort(), specs.map(spec => spec.name).sort());
  for (const spec of specs) {
    const difference = gradientDifference(out[spec.name] as Float32Array, golden.grads[spec.name]);
    t.ok(difference < 1e-4, `${name}: gradient of ${spec.name}: ${difference}`);
  }
}

t.test(
  'DoRA, dropout and adapters over rounded weights are what PEFT computes, gradients included',
  async t => {
    for (const each of CASES) await checkCase(t, onnx, each);
  },
);
t.test('DoRA and dropout on gpu.js are what PEFT computes', async t => {
  await checkCase(t, kernels, ['dora', null]);
  await checkCase(t, kernels, ['lora', DROPOUT]);
});
t.test(
  'DoRA and dropout on WebGPU are what PEFT computes',
  { skip: gpu === null ? 'no GPU here that Dawn can use' : false },
  async t => {
    await checkCase(t, gpu!, ['dora', null]);
    await checkCase(t, gpu!, ['dora', DROPOUT]);
  },
);

t.test(
  'dropout drops the share that is requested, of rows and columns alike, and draws by the seed',
  async t => {
    const g = new GraphBuilder();
    const [tokens, inputs] = [256, 96];
    const x = g.constant(new Float32Array(tokens * inputs).fill(1), [tokens, inputs]);
    g.output('y', dropOut(g, declareDropout(g, 0.1, tokens), x, 'model.layers.0.self_attn.q_proj'));
    const executable = await onnx.compile(g.build(), { parameters: new ParameterStore([]) });
    const draw = async (...seed: number[]) => {
      const rows = new Float32Array(2 * tokens);
      fillDropoutRows(rows, ...seed);
      return Float32Array.from((await executable.run({ dropoutRows: rows })).y as Float32Array);
    };
    const y = await draw(1, 2, 3);
    const differences = (other: Float32Array) => y.filter((value, i) => value !== other[i]).length;
    t.equal(differences(await draw(1, 2, 3)), 0);
    t.ok(differences(await draw(1, 3, 3)) > y.length / 10);
    const dropped = (indices: number[]) => indices.filter(i => y[i] === 0).length / indices.length;
    const all = [...y.keys()];
    t.ok(Math.abs(dropped(all) - 51 / 509) < 0.01, `${dropped(all)} dropped`);
    t.ok(Math.abs(y.reduce((sum, value) => sum + value, 0) / y.length - 1) < 0.01, 'the mean stays');
    const shares = [
      ...Array.from({ length: tokens }, (_, row) => dropped(all.filter(i => Math.floor(i / inputs) === row))),
      ...Array.from({ length: inputs }, (_, column) => dropped(all.filter(i => i % inputs === column))),
    ];
    t.ok(Math.max(...shares) < 0.3, `at most ${Math.max(...shares)} of a row or column`);
  },
);

t.test('merged weights compute the same as DoRA, and fresh magnitudes change nothing', async t => {
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
