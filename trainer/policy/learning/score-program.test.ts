import t from 'tap';
import { Random } from '../../../shared/random.ts';
import { scratchConfig } from '../../models/config.ts';
import { initialize, parameterSpecs } from '../../models/parameters.ts';
import { OnnxRuntime } from '../../tensor/runtime/onnx/onnx-runtime.ts';
import { ParameterStore } from '../../tensor/runtime/parameter-store.ts';
import { KernelCpuRuntime } from '../../tensor/runtime/webgpu/cpu-runtime.test-data.ts';
import { vocabularySize } from '../policies.test-data.ts';
import { planMicroBatches, shapeKey } from './micro-batches.ts';
import { ScoreProgram, scoreContinuations } from './score-program.ts';

const runtimes = [new OnnxRuntime(), new KernelCpuRuntime()];
t.after(async () => {
  for (const runtime of runtimes) await runtime.close();
});

const shape = scratchConfig({
  vocabularySize,
  hiddenSize: 16,
  heads: 4,
  keyValueHeads: 2,
  layers: 2,
  initializerRange: 0.3,
});
const rng = Random.fromSeed(5);
const tokens = (length: number) => Int32Array.from({ length }, () => rng.integer(vocabularySize));

for (const runtime of runtimes) {
  t.test(`${runtime.name} scores continuations of shared prompts as it scores whole sequences`, async t => {
    const specs = parameterSpecs(shape, false);
    const parameters = new ParameterStore(specs);
    initialize(parameters, specs, shape.initializerRange, 3);
    const options = {
      config: shape,
      runtime,
      parameters,
      valueHead: false,
      critic: false,
      grammars: new Map(),
      tokenBudget: 1024,
    };
    const continuations = [1, 4, 2, 9, 1, 5, 3].map(tokens);
    const requests = [3, 60, 41, 55].map(length => ({ prompt: tokens(length), continuations }));
    const packed = new ScoreProgram({ ...options, packing: true });
    const shapes: string[] = [];
    const shared = await scoreContinuations(
      requests,
      { maxSequenceLength: 70, vocabularySize },
      sequences => {
        const settings = { config: shape, tokenBudget: options.tokenBudget, packing: true };
        for (const batch of planMicroBatches(sequences, settings))
          if (batch.packed?.shared) shapes.push(shapeKey(batch));
        return packed.run(sequences, 0.7);
      },
    );
    t.ok(shapes.length > 0, 'prompts are computed once for several continuations');
    const whole = requests.flatMap(({ prompt }) =>
      continuations.map(continuation => {
        const tokenIds = Int32Array.of(...prompt, ...continuation);
        return { tokenIds, lossMask: new Uint8Array(tokenIds.length).fill(1, prompt.length) };
      }),
    );
    const scores = await new ScoreProgram({ ...options, packing: false }).run(whole, 0.7);
    scores.forEach(({ logProbs }, n) => {
      const { length } = continuations[n % continuations.length];
      const sum = logProbs.reduce((total, x) => total + x, 0);
      const own = shared[Math.floor(n / continuations.length)][n % continuations.length];
      t.ok(Math.abs(own - sum) <= 1e-5 * length, `${n}: ${own} and ${sum}`);
    });
  });
}
