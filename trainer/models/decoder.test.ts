import t from 'tap';
import { adamwFactors, clipFactor } from '../policy/learning/adamw.ts';
import { GraphBuilder } from '../tensor/graph/graph.ts';
import { OnnxRuntime } from '../tensor/runtime/onnx/onnx-runtime.ts';
import { ParameterStore } from '../tensor/runtime/parameter-store.ts';
import type { Runtime } from '../tensor/runtime/runtime.ts';
import { adamwKernel } from '../tensor/runtime/wasm/kernels.ts';
import { KernelCpuRuntime } from '../tensor/runtime/webgpu/cpu-runtime.test-data.ts';
import { WebGpuRuntime } from '../tensor/runtime/webgpu/webgpu-runtime.ts';
import { parseConfig } from './config-json.ts';
import { decoderHidden, decoderLogits, decoderValues } from './decoder.ts';
import { buildLoss, goldenBatch, goldenWeights, read } from './golden.test-data.ts';
import { parameterSpecs } from './parameters.ts';
import { rightPadded } from './sequence-layout.ts';

/** Null where this machine has none. */
const runtimes: readonly (readonly [string, Runtime | null])[] = [
  ['ONNX Runtime', new OnnxRuntime()],
  ['WebGPU', await WebGpuRuntime.open()],
];
t.after(async () => {
  for (const [, runtime] of runtimes) await runtime?.close();
});

const MODELS = ['qwen2-tiny', 'qwen3-tiny', 'llama-tiny'];

for (const [place, runtime] of runtimes) {
  const options = { skip: runtime === null ? 'no GPU here that Dawn can use' : false };
  for (const model of MODELS) {
    t.test(
      `${model} on ${place} is transformers' in logits, log-probabilities, loss and gradients`,
      options,
      async t => {
        const config = parseConfig(read(model, 'config.json'));
        const { forward, cross_entropy } = read(model, 'expected.json');
        const batch = goldenBatch(model);
        const [rows, time] = [batch.ids.length, batch.ids[0].length];
        const executable = await runtime!.compile(buildLoss(config, batch, parameterSpecs(config, false)), {
          parameters: await goldenWeights(model, config),
        });
        const out = await executable.run({
          ids: Int32Array.from(batch.ids.flat()),
          mask: Float32Array.from(batch.mask.flat()),
        });
        for (let row = 0; row < rows; row++) {
          const last = batch.mask[row].lastIndexOf(1);
          const expected: number[] = forward[`logits_last_valid_row${row}`];
          const start = (row * time + last) * config.vocabularySize;
          const worst = expected.reduce((max, x, i) => Math.max(max, Math.abs(x - out.logits[start + i])), 0);
          t.ok(worst < 1e-4, `logits of row ${row}: error ${worst}`);
          for (let p = 0; p + 1 < time; p++) {
            if (!batch.mask[row][p] || !batch.mask[row][p + 1]) continue;
            const error = Math.abs(forward.next_token_logprob[row][p] - out.logProbs[row * (time - 1) + p]);
            if (error > 1e-5) t.fail(`log-probability at ${row}, ${p}: error ${error}`);
          }
        }
        t.ok(Math.abs(out.loss[0] - cross_entropy.loss_mean_over_valid) < 1e-5, `loss ${out.loss[0]}`);
        for (const [name, wanted] of Object.entries(
          cross_entropy.grads as Record<string, Record<string, number>>,
        )) {
          const grad = Float64Array.from(out[name]);
          const norm = Math.hypot(...grad);
          t.ok(Math.abs(norm - wanted.norm) < 1e-4 * wanted.norm + 1e-6, `norm of ${name}`);
          const sum = grad.reduce((a, b) => a + b, 0);
          t.ok(Math.abs(sum - wanted.sum) < 1e-4 * (Math.abs(wanted.sum) + wanted.norm), `sum of ${name}`);
          const head = wanted.head as unknown as number[];
          t.ok(
            head.every((x, i) => Math.abs(x - grad[i]) < 1e-4 * Math.abs(x) + 2e-6),
            `first elements of ${name}`,
          );
        }
      },
    );
  }
}

for (const model of MODELS) {
  t.test(`${model} on ONNX Runtime takes transformers' ten AdamW steps`, async t => {
    const config = parseConfig(read(model, 'config.json'));
    const { adamw } = read(model, 'expected.json');
    const batch = goldenBatch(model);
    const parameters = await goldenWeights(model, config);
    const grads = parameters.emptyLike();
    const outputs = Object.fromEntries(grads.layout.map(({ name }) => [name, grads.array(name)]));
    const executable = await runtimes[0][1]!.compile(
      buildLoss(config, batch, parameterSpecs(config, false)),
      {
        parameters,
        outputs,
      },
    );
    const inputs = { ids: Int32Array.from(batch.ids.flat()), mask: Float32Array.from(batch.mask.flat()) };
    const moments = { first: grads.emptyLike().flat, second: grads.emptyLike().flat };
    const settings = {
      learningRate: adamw.lr,
      beta1: adamw.betas[0],
      beta2: adamw.betas[1],
      epsilon: adamw.eps,
      weightDecay: adamw.weight_decay,
      clipNorm: adamw.clip_grad_norm,
    };
    for (let step = 1; step <= adamw.losses.length; step++) {
      const { loss } = await executable.run(inputs);
      const norm = Math.sqrt(grads.flat.reduce((sum, x) => sum + x * x, 0));
      const expected = adamw.losses[step - 1];
      t.ok(
        Math.abs(loss[0] - expected) < 1e-5 * Math.max(1, expected),
        `loss ${loss[0]} before step ${step}`,
      );
      t.ok(Math.abs(norm / adamw.grad_norms[step - 1] - 1) < 1e-4, `gradient norm ${norm} of step ${step}`);
      const arrays = { weights: parameters.flat, gradients: grads.flat, ...moments };
      const factors = adamwFactors(step, clipFactor(norm, settings.clipNorm), settings);
      adamwKernel(arrays, factors, 0, parameters.flat.length);
      parameters.touch();
    }
  });
}

for (const [place, runtime, models, steps] of [
  ['WebGPU', runtimes[1][1], MODELS, 10],
  ['gpu.js cpu', new KernelCpuRuntime(), MODELS.slice(0, 1), 2],
] as const) {
  for (const model of models) {
    const options = { skip: runtime === null ? 'no GPU here that Dawn can use' : false };
    t.test(`${model} takes them on ${place} without leaving the device`, options, async t => {
      const config = parseConfig(read(model, 'config.json'));
      const { adamw } = read(model, 'expected.json');
      const batch = goldenBatch(model);
      const weights = await goldenWeights(model, config);
      const before = weights.flat.slice();
      const [first, second] = [weights.emptyLike(), weights.emptyLike()];
      const learner = await runtime!.memory!.learner({ weights, first, second });
      const sums = learner.gradients;
      const executable = await runtime!.compile(buildLoss(config, batch, parameterSpecs(config, false)), {
        parameters: weights,
        sums,
      });
      const inputs = { ids: Int32Array.from(batch.ids.flat()), mask: Float32Array.from(batch.mask.flat()) };
      const settings = {
        learningRate: adamw.lr,
        beta1: adamw.betas[0],
        beta2: adamw.betas[1],
        epsilon: adamw.eps,
        weightDecay: adamw.weight_decay,
        clipNorm: adamw.clip_grad_norm,
      };
      for (let step = 1; step <= steps; step++) {
        learner.clear();
        const { loss } = await executable.run(inputs);
        const expected = adamw.losses[step - 1];
        t.ok(
          Math.abs(loss[0] - expected) < 1e-5 * Math.max(1, expected),
          `loss ${loss[0]} before step ${step}`,
        );
        const norm = Math.sqrt(await learner.sumOfSquares());
        t.ok(Math.abs(norm / adamw.grad_norms[step - 1] - 1) < 1e-4, `gradient norm ${norm} of step ${step}`);
        await learner.step(adamwFactors(step, clipFactor(norm, settings.clipNorm), settings));
      }
      await learner.download();
      t.ok(
        weights.flat.some((x, i) => x !== before[i]),
        'weights come back',
      );
      t.ok(first.flat.some(x => x !== 0) && second.flat.some(x => x > 0), 'and moments');
    });
  }
}

t.test('rows padded on the right need no mask, and the value head starts at 0', async t => {
  const model = 'qwen3-tiny';
  const config = parseConfig(read(model, 'config.json'));
  const { forward } = read(model, 'expected.json');
  const store = new ParameterStore(parameterSpecs(config, true));
  const golden = await goldenWeights(model, config);
  for (const { name } of golden.layout) store.array(name).set(golden.array(name));
  const [rows, time] = [2, forward.input_ids[0].length];
  const g = new GraphBuilder();
  const ids = g.input('ids', 'int32', [rows, time]);
  const hidden = decoderHidden(g, config, ids, rightPadded(g, config, rows, time));
  g.output('logits', decoderLogits(g, config, hidden));
  g.output('values', decoderValues(g, config, hidden));
  const [[, runtime]] = runtimes;
  const executable = await runtime!.compile(g.build(), { parameters: store });
  const padded = Int32Array.from([...forward.input_ids[0], ...forward.input_ids[2]]);
  const { logits, values } = await executable.run({ ids: padded });
  [0, 2].forEach((source, row) => {
    const last = forward.attention_mask[source].lastIndexOf(1);
    const start = (row * time + last) * config.vocabularySize;
    const expected: number[] = forward[`logits_last_valid_row${source}`];
    t.ok(
      expected.every((x, i) => Math.abs(x - logits[start + i]) < 1e-4),
      `row ${source}`,
    );
  });
  t.ok(values.every(value => value === 0));
});
