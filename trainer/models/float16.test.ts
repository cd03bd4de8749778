import t from 'tap';
import { WebGpuRuntime } from '../tensor/runtime/webgpu/webgpu-runtime.ts';
import { parseConfig } from './config-json.ts';
import { buildLoss, goldenBatch, goldenWeights, read } from './golden.test-data.ts';
import { parameterSpecs } from './parameters.ts';

/** Factors keep eleven bits: half of the last one is this much of a number. */
const ROUNDING = 2 ** -12;

const runtime = await WebGpuRuntime.open('float16');
t.after(() => runtime?.close());
const skip =
  runtime === null ? 'no GPU here that Dawn can use' : runtime.precision === 'float32' && 'no float16 here';

for (const model of ['qwen2-tiny', 'qwen3-tiny', 'llama-tiny']) {
  t.test(`${model} with products of float16 is transformers' within their rounding`, { skip }, async t => {
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
    let [worst, largest] = [0, 0];
    for (let row = 0; row < rows; row++) {
      const start = (row * time + batch.mask[row].lastIndexOf(1)) * config.vocabularySize;
      (forward[`logits_last_valid_row${row}`] as number[]).forEach((x, i) => {
        worst = Math.max(worst, Math.abs(x - out.logits[start + i]));
        largest = Math.max(largest, Math.abs(x));
      });
    }
    t.ok(worst < 16 * ROUNDING * largest, `logits differ by ${worst} of ${largest}`);
    t.ok(worst > ROUNDING * 1e-3 * largest, 'factors were rounded');
    const off = forward.next_token_logprob.flatMap((own: number[], row: number) =>
      own.map((x, p) =>
        batch.mask[row][p] && batch.mask[row][p + 1] ? Math.abs(x - out.logProbs[row * (time - 1) + p]) : 0,
      ),
    );
    t.ok(Math.max(...off) < 16 * ROUNDING * largest, `log-probabilities differ by ${Math.max(...off)}`);
    t.ok(Math.abs(out.loss[0] - cross_entropy.loss_mean_over_valid) < 1e-3, `loss ${out.loss[0]}`);
    for (const [name, wanted] of Object.entries(
      cross_entropy.grads as Record<string, { readonly norm: number; readonly head: readonly number[] }>,
    )) {
      const grad = Float64Array.from(out[name]);
      const norm = Math.hypot(...grad);
      t.ok(Math.abs(norm - wanted.norm) < 32 * ROUNDING * wanted.norm, `norm of ${name}: ${norm}`);
      const scale = Math.max(...grad.map(Math.abs));
      t.ok(
        wanted.head.every((x, i) => Math.abs(x - grad[i]) < 32 * ROUNDING * scale),
        `first elements of ${name}`,
      );
    }
  });
}
