import t from 'tap';
import { Random } from '../../../shared/random.ts';
import { scratchConfig } from '../../models/config.ts';
import { parseConfig } from '../../models/config-json.ts';
import { goldenWeights, read } from '../../models/golden.test-data.ts';
import { parameterSpecs } from '../../models/parameters.ts';
import { OnnxRuntime } from '../../tensor/runtime/onnx/onnx-runtime.ts';
import { ParameterStore } from '../../tensor/runtime/parameter-store.ts';
import type { Runtime } from '../../tensor/runtime/runtime.ts';
import { KernelCpuRuntime } from '../../tensor/runtime/webgpu/cpu-runtime.test-data.ts';
import { WebGpuRuntime } from '../../tensor/runtime/webgpu/webgpu-runtime.ts';
import { type EngineOptions, GenerationEngine } from '../engine.ts';
import type { GenerateRequest, Generation } from '../generation.ts';

const MODELS = ['qwen2-tiny', 'qwen3-tiny', 'llama-tiny'];
const onnx = new OnnxRuntime();
/** Null where this machine has none; kernels in JavaScript continue one model by a few tokens only. */
const devices: readonly (readonly [string, Runtime | null, readonly string[], number])[] = [
  ['WebGPU', await WebGpuRuntime.open(), MODELS, Infinity],
  ['gpu.js cpu', new KernelCpuRuntime(), MODELS.slice(0, 1), 3],
];
t.after(async () => {
  for (const [, runtime] of devices) await runtime?.close();
  await onnx.close();
});

async function runAll(engine: GenerationEngine, requests: readonly GenerateRequest[]): Promise<Generation[]> {
  const results = Promise.all(
    requests.map(
      request => new Promise<Generation>((resolve, reject) => engine.submit(request, resolve, reject)),
    ),
  );
  results.catch(() => {});
  while (engine.busy) await engine.tick();
  return results;
}

const config = scratchConfig({ vocabularySize: 20, hiddenSize: 32, heads: 4, keyValueHeads: 2, layers: 2 });

function engineOn(runtime: Runtime, parameters: ParameterStore, options: Partial<EngineOptions> = {}) {
  return new GenerationEngine({
    config,
    valueHead: true,
    runtime,
    parameters,
    maxSequenceLength: 96,
    maxOpenSequences: 6,
    ...options,
  });
}

/** Two groups that begin alike inside, then a second turn of everybody. */
async function playGroups(engine: GenerationEngine): Promise<Generation[]> {
  const sampling = { temperature: 1, topK: 0, topP: 1, maxNewTokens: 5, stopTokenIds: [] };
  const prompt = (seed: number, length: number) => {
    const rng = Random.fromSeed(seed);
    return Array.from({ length }, () => rng.integer(config.vocabularySize));
  };
  const first = [0, 1, 2, 3].map(i => ({
    sequenceId: i,
    append: [...prompt(i % 2, 20 + 15 * (i % 2)), i],
    sampling,
    seed: i,
  }));
  const second = [3, 1, 0, 2].map(i => ({
    sequenceId: i,
    append: prompt(9 + i, 4 + i),
    sampling,
    seed: 9 + i,
  }));
  return [...(await runAll(engine, first)), ...(await runAll(engine, second))];
}

for (const [place, runtime, models, most] of devices) {
  const options = { skip: runtime === null ? 'no GPU here that Dawn can use' : false };
  for (const model of models) {
    t.test(
      `${model} on ${place} continues the golden prompt greedily as transformers does`,
      options,
      async t => {
        const { greedy } = read(model, 'expected.json');
        const goldenConfig = parseConfig(read(model, 'config.json'));
        const engine = engineOn(runtime!, await goldenWeights(model, goldenConfig), {
          config: goldenConfig,
          valueHead: false,
          maxSequenceLength: 200,
          maxOpenSequences: 2,
        });
        const tokens = greedy.generated_ids.slice(0, most);
        const sampling = { temperature: 0, topK: 0, topP: 1, maxNewTokens: tokens.length, stopTokenIds: [] };
        const request = { sequenceId: 1, append: greedy.prompt_ids, sampling, seed: 0 };
        const [generation] = await runAll(engine, [request]);
        t.same([...generation.tokenIds], tokens);
      },
    );
  }
}

const [[, gpu]] = devices;
t.test(
  'groups and turns come out on a device as on the processor',
  {
    skip: gpu === null ? 'no GPU here that Dawn can use' : false,
  },
  async t => {
    const parameters = new ParameterStore(parameterSpecs(config, true));
    const rng = Random.fromSeed(1);
    for (const { name } of parameters.layout) {
      const array = parameters.array(name);
      for (let i = 0; i < array.length; i++) array[i] = Number(name.includes('norm')) + 0.3 * rng.normal();
    }
    const [own, wanted] = [engineOn(gpu!, parameters), engineOn(onnx, parameters)];
    const [given, expected] = [await playGroups(own), await playGroups(wanted)];
    t.same(own.statistics, wanted.statistics, 'what was computed, and what was shared');
    t.ok(own.statistics.shared > 0);
    given.forEach((generation, i) => {
      t.same(generation.tokenIds, expected[i].tokenIds, `tokens of ${i}`);
      for (const name of ['logProbs', 'values'] as const) {
        const worst = Math.max(...generation[name]!.map((x, at) => Math.abs(x - expected[i][name]![at])));
        t.ok(worst < 1e-4, `${name} of ${i} differ by ${worst}`);
      }
    });
    const alone = engineOn(gpu!, parameters);
    for (const i of [0, 1]) {
      const sampling = { temperature: 1, topK: 0, topP: 1, maxNewTokens: 5, stopTokenIds: [] };
      const prompt = Random.fromSeed(i % 2);
      const append = [
        ...Array.from({ length: 20 + 15 * (i % 2) }, () => prompt.integer(config.vocabularySize)),
        i,
      ];
      const [generation] = await runAll(alone, [{ sequenceId: i, append, sampling, seed: i }]);
      t.same(generation, given[i], `to the bit what it is in company, ${i}`);
    }
  },
);

t.test('a runtime without device memory runs no program there', async t => {
  const parameters = new ParameterStore(parameterSpecs(config, true));
  t.throws(
    () => engineOn(onnx, parameters, { program: 'device' }),
    /runtime onnx has no device memory: choose kernels or segments/,
  );
});
