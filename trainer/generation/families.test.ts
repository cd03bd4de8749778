import t from 'tap';
import { parseConfig } from '../models/config-json.ts';
import { FAMILY_MODELS, goldenFamily } from '../models/families.test-data.ts';
import { goldenWeights, read } from '../models/golden.test-data.ts';
import { OnnxRuntime } from '../tensor/runtime/onnx/onnx-runtime.ts';
import type { Runtime } from '../tensor/runtime/runtime.ts';
import { WebGpuRuntime } from '../tensor/runtime/webgpu/webgpu-runtime.ts';
import { GenerationEngine } from './engine.ts';
import type { GenerateRequest, Generation } from './generation.ts';
import type { DecodeProgramKind } from './programs/decode-program.ts';
import { kernelsCompute } from './programs/kernel-program.ts';

const onnx = new OnnxRuntime();
/** Null where this machine has none. */
const gpu = await WebGpuRuntime.open();
t.after(async () => {
  await onnx.close();
  await gpu?.close();
});

const places: readonly (readonly [DecodeProgramKind, Runtime | null])[] = [
  ['kernels', onnx],
  ['segments', onnx],
  ['device', gpu],
];

async function finish(engine: GenerationEngine, request: GenerateRequest): Promise<Generation> {
  const result = new Promise<Generation>((resolve, reject) => engine.submit(request, resolve, reject));
  result.catch(() => {});
  while (engine.busy) await engine.tick();
  return result;
}

for (const [program, runtime] of places) {
  for (const model of FAMILY_MODELS) {
    const config = parseConfig(read(model, 'config.json'));
    if (program === 'kernels' && !kernelsCompute(config)) continue;
    const options = { skip: runtime === null ? 'no GPU here that Dawn can use' : false };
    // Vulkan in software is slow; `npm run bench:families` asks it for 64 tokens.
    const count = program === 'device' ? 12 : 64;
    const kept = count >> 1;
    t.test(
      `${model} in ${program} writes transformers' tokens, from a shared prefix too`,
      options,
      async t => {
        const { greedy } = goldenFamily(model);
        const engine = new GenerationEngine({
          config,
          valueHead: false,
          runtime: runtime!,
          parameters: await goldenWeights(model, config),
          maxSequenceLength: 96,
          maxOpenSequences: 3,
          maxRows: 32,
          program,
        });
        const sampling = { temperature: 0, topK: 0, topP: 1, stopTokenIds: [] };
        const request = (sequenceId: number, append: readonly number[], maxNewTokens: number) =>
          finish(engine, { sequenceId, append, sampling: { ...sampling, maxNewTokens }, seed: 0 });
        const whole = await request(1, greedy.prompt_ids, count);
        t.same([...whole.tokenIds], greedy.generated_ids.slice(0, count));
        // A second turn; the cache holds the first.
        const turn = greedy.generated_ids.slice(0, kept);
        const again = await request(2, [...greedy.prompt_ids, ...turn], count - kept);
        t.same([...again.tokenIds], greedy.generated_ids.slice(kept, count));
        t.ok(engine.statistics.shared > 0, 'the prefix was shared');
        again.logProbs.forEach((logProb, i) => {
          const first = whole.logProbs[kept + i];
          if (Math.abs(logProb - first) > 1e-5) t.fail(`log-probability ${i}: ${logProb}, alone ${first}`);
        });
      },
    );
  }
}

t.test('the kernels refuse a family that they do not compute', async t => {
  const config = parseConfig(read('families/gemma2', 'config.json'));
  const parameters = await goldenWeights('families/gemma2', config);
  const options = { config, parameters, valueHead: false, maxSequenceLength: 32, maxOpenSequences: 1 };
  t.throws(
    () => new GenerationEngine({ ...options, runtime: onnx, program: 'kernels' }),
    /kernels do not compute models of type gemma2: choose segments/,
  );
});
