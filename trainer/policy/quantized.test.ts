import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { LORA_MODULES, type LoraConfig } from '../models/adapters/lora.ts';
import { SafetensorsReader, writeSafetensors } from '../models/files/safetensors.ts';
import { isQuantizable, storedBytes } from '../models/frozen-weights.ts';
import { parameterSpecs } from '../models/parameters.ts';
import {
  dequantize,
  QUANTIZATIONS,
  type Quantization,
  quantize,
  quantizedLayout,
} from '../tensor/graph/operations/blocks.ts';
import type { LocalPolicy, LocalPolicyOptions } from './local-policy.ts';
import { closing, config, largestDifference, play, policyWith, settingsWith } from './policies.test-data.ts';

const folder = await mkdtemp(join(tmpdir(), 'ragen-quantized-'));
t.after(() => rm(folder, { recursive: true }));

const lora: LoraConfig = { rank: 2, alpha: 4, rankStabilized: false, dora: false, modules: LORA_MODULES };
const base = join(folder, 'base');
const sizes = { hiddenSize: 64, intermediateSize: 96 };
const model = { ...config, ...sizes };
await (async () => {
  const policy = await policyWith({ model, seed: 11 });
  await policy.save(base);
  await policy.close();
})();

const adapted = (options: Partial<LocalPolicyOptions>): Promise<LocalPolicy> =>
  policyWith({ model: base, lora, ...options });

/** The base with its quantized weights written as float32. */
async function dequantized(kind: Quantization): Promise<string> {
  const policy = await closing(t, policyWith({ model: base }));
  const out = join(folder, kind);
  await policy.save(out);
  await using file = await SafetensorsReader.open(join(base, 'model.safetensors'));
  const tensors = [];
  for (const { name, shape } of file.tensors.values()) {
    let data = await file.read(name);
    if (isQuantizable(name)) {
      const layout = quantizedLayout(kind, shape);
      const codes = kind === 'int8' ? new Int8Array(data.length) : new Uint8Array(data.length / 2);
      const scales = new Float32Array(layout.scales.shape.reduce((a, b) => a * b, 1));
      quantize(kind, data, shape[1], codes, scales);
      const close = dequantize(kind, codes, scales, shape);
      const most = kind === 'int8' ? 0.5 / 127 : 0.16;
      t.ok(largestDifference(data, close) <= most * Math.max(...data.map(Math.abs)), `${kind} of ${name}`);
      data = close;
    }
    tensors.push({ name, shape, data });
  }
  await writeSafetensors(join(out, 'model.safetensors'), tensors);
  return out;
}

for (const kind of QUANTIZATIONS) {
  t.test(
    `LoRA over a base in ${kind} samples, scores and learns as over its dequantized weights`,
    async t => {
      const quantized = await closing(t, adapted({ quantization: kind, workers: 2, recompute: true }));
      const plain = await closing(t, adapted({ model: await dequantized(kind), workers: 2 }));
      t.equal(quantized.parameterCount, plain.parameterCount);
      t.match(quantized.description, new RegExp(`the others as ${kind}`));
      const sequences = await play(quantized, 4);
      for (let step = 0; step < 3; step++) {
        const [a, b] = await Promise.all(
          [quantized, plain].map(policy =>
            policy.update({ sequences }, settingsWith({}, { learningRate: 1e-2 })),
          ),
        );
        for (const [name, value] of Object.entries(b)) {
          t.ok(Math.abs(a[name] - value) <= 1e-4 * Math.max(1, Math.abs(value)), `step ${step}: ${name}`);
        }
        const [x, y] = await Promise.all([quantized.score(sequences), plain.score(sequences)]);
        x.forEach(({ logProbs }, i) => {
          t.ok(largestDifference(logProbs, y[i].logProbs) < 1e-3, `step ${step}: sequence ${i}`);
        });
      }
      const again = await play(quantized, 4);
      const scores = await quantized.score(again);
      again.forEach(({ logProbs }, i) => {
        t.ok(largestDifference(scores[i].logProbs, logProbs) < 1e-4, `sampled as scored, ${i}`);
      });
      const saved = join(folder, `${kind}-saved`);
      await quantized.save(saved);
      const resumed = await closing(
        t,
        adapted({ model: saved, quantization: kind, workers: 2, recompute: true }),
      );
      await resumed.load(saved);
      for (const policy of [quantized, resumed]) await policy.update({ sequences }, settingsWith());
      const files = await Promise.all(
        [quantized, resumed].map(async (policy, i) => {
          const out = join(folder, `${kind}-${i}`);
          await policy.save(out);
          return readFile(join(out, 'adapter_model.safetensors'));
        }),
      );
      t.ok(files[0].equals(files[1]), 'it resumes bit for bit');
    },
  );
}

t.test('the base takes a quarter or less, and what cannot be quantized is refused', async t => {
  const specs = parameterSpecs({ ...model, vocabularySize: 8, tiedEmbeddings: true }, false);
  const float = storedBytes(specs, {});
  t.ok(storedBytes(specs, { quantization: 'int8' }) < 0.35 * float);
  t.ok(storedBytes(specs, { quantization: 'nf4' }) < 0.25 * float);
  await t.rejects(policyWith({ model: base, quantization: 'nf4' }), /it takes a model's folder and LoRA/);
  await t.rejects(policyWith({ model, lora, quantization: 'nf4' }), /it takes a model's folder and LoRA/);
});
