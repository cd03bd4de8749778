/**
 * Steps of GRPO-like training a second through `ragen serve --tinker`, as a share of the same adapter trained in process. A step samples
 * `--sequences` responses, adds the gradient of PPO over them and steps; both ways take turns on this machine, in one run.
 *
 *     npm run bench:tinker [-- --shape 0.8M --sequences 64 --rounds 5 --steps 3 --workers 2]
 *
 * A round has `--steps` steps of each way; the first warms up. The share is the median over the rounds.
 */

import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Random } from '../shared/random.ts';
import { DEFAULT_LOSS_SETTINGS } from '../trainer/algorithms/losses/settings.ts';
import type { TrainingSequence } from '../trainer/algorithms/training-sequence.ts';
import { LORA_MODULES } from '../trainer/models/adapters/lora.ts';
import { buildWordTokenizer } from '../trainer/models/tokenizer/builder.ts';
import { LocalPolicy } from '../trainer/policy/local-policy.ts';
import { sample, sampleBody, WireClient, type WireModel } from '../trainer/serve/tinker/tinker.test-data.ts';
import type { WireTensor } from '../trainer/tinker/proto.ts';
import { configOf, shapeNamed } from './compute/shapes.ts';
import { positiveInteger, scriptFlags } from './flags.ts';
import { median } from './measuring.ts';
import { startServe } from './server-process.ts';

const RANK = 8;
const SPECIAL_TOKENS = 3;
const RATE = 1e-4;
const { values: flags } = scriptFlags(import.meta.filename, {
  options: {
    shape: { type: 'string', default: '0.8M' },
    sequences: { type: 'string', default: '64' },
    rounds: { type: 'string', default: '5' },
    steps: { type: 'string', default: '3' },
    workers: { type: 'string', default: '2' },
  },
});
const shape = shapeNamed(flags.shape);
const [count, rounds, steps, workers] = (['sequences', 'rounds', 'steps', 'workers'] as const).map(name =>
  positiveInteger(name, flags[name]),
);
const context = shape.prompt + shape.generated;

/** Prompts of a step, new ones each time so that no cache helps. */
function prompts(step: number): number[][] {
  const rng = Random.fromSeed(step);
  const token = () => SPECIAL_TOKENS + rng.integer(shape.vocabulary - SPECIAL_TOKENS);
  return Array.from({ length: count }, () => Array.from({ length: shape.prompt }, token));
}

/** Advantage of a response: its own and arbitrary, as no environment is part of the measurement. */
const advantageOf = (index: number): number => (index % 2 === 0 ? 1 : -1);

async function stepInProcess(policy: LocalPolicy, step: number): Promise<void> {
  const sampling = { temperature: 1, topK: 0, topP: 1, maxNewTokens: shape.generated, stopTokenIds: [] };
  const sequences = await Promise.all(
    prompts(step).map(async (prompt, i): Promise<TrainingSequence> => {
      const request = { sequenceId: i, append: prompt, sampling, seed: step * count + i };
      const { tokenIds, logProbs } = await policy.generate(request);
      policy.release(i);
      const behind = (values: ArrayLike<number>) => {
        const all = new Float32Array(prompt.length + values.length);
        all.set(values, prompt.length);
        return all;
      };
      return {
        tokenIds: Int32Array.from([...prompt, ...tokenIds]),
        lossMask: Uint8Array.from(behind(tokenIds.map(() => 1))),
        logProbs: behind(logProbs),
        advantages: behind(logProbs.map(() => advantageOf(i))),
      };
    }),
  );
  const optimizer = {
    learningRate: RATE,
    beta1: 0.9,
    beta2: 0.95,
    epsilon: 1e-8,
    weightDecay: 0,
    clipNorm: 1,
  };
  const loss = { ...DEFAULT_LOSS_SETTINGS, dualClip: 0, entropyCoefficient: 0 };
  await policy.update({ sequences }, { loss, optimizer, temperature: 1 });
}

async function stepThroughServer(model: WireModel, sampler: string, step: number): Promise<string> {
  const sampling_params = { max_tokens: shape.generated, temperature: 1, stop: [] };
  const data = await Promise.all(
    prompts(step).map(async (prompt, i) => {
      const chunks = [{ type: 'encoded_text', tokens: prompt }];
      const body = { prompt: { chunks }, sampling_params: { ...sampling_params, seed: step * count + i } };
      const [{ tokens, logprobs }] = (await sample(model.client, sampleBody(sampler, i, body))).sequences;
      const all = [...prompt, ...tokens];
      const shifted = (values: ArrayLike<number>) => {
        const own = new Float32Array(all.length - 1);
        own.set(values, prompt.length - 1);
        return { values: own, shape: [own.length] };
      };
      return {
        tokens: Int32Array.from(all.slice(0, -1)),
        inputs: new Map<string, WireTensor>([
          ['target_tokens', { values: Int32Array.from(all.slice(1)), shape: [all.length - 1] }],
          ['logprobs', shifted(logprobs!)],
          ['advantages', shifted(logprobs!.map(() => advantageOf(i) / (count * shape.generated)))],
        ]),
      };
    }),
  );
  const lossConfig = { clip_low_threshold: 0.8, clip_high_threshold: 1.28 };
  const gradient = model.forwardBackward(data, { lossFn: 'ppo', lossConfig });
  const taken = model.step({ learning_rate: RATE, eps: 1e-8, grad_clip_norm: 1 });
  const next = model.sampler(step);
  await Promise.all([gradient, taken]);
  return next;
}

async function main(): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), 'ragen-tinker-bench-'));
  const config = configOf(shape);
  const words = Array.from({ length: shape.vocabulary - SPECIAL_TOKENS }, (_, i) => `w${i}.`);
  const { files } = buildWordTokenizer(words);
  const base = await LocalPolicy.create({ model: config, seed: 0, valueHead: false, files });
  await base.save(join(folder, 'model'));
  await base.close();
  const model = join(folder, 'model');
  const lora = { rank: RANK, alpha: 32, rankStabilized: false, dora: false, modules: [...LORA_MODULES] };
  const own = await LocalPolicy.create({
    model,
    lora,
    seed: 1,
    workers,
    valueHead: false,
    maxSequenceLength: context,
  });
  const args = ['--tinker', '--workers', `${workers}`, '--context', `${context}`, '--checkpoints', folder];
  const { url, child } = await startServe(model, args);
  try {
    const client = new WireClient(url);
    const trained = await client.model(model, 1, RANK);
    let sampler = await trained.sampler(0);
    const shares: number[] = [];
    let step = 1;
    for (let round = 0; round <= rounds; round++) {
      const began = performance.now();
      for (let i = 0; i < steps; i++) await stepInProcess(own, step + i);
      const between = performance.now();
      for (let i = 0; i < steps; i++) sampler = await stepThroughServer(trained, sampler, step + i);
      const [inProcess, served] = [between - began, performance.now() - between].map(
        ms => (1000 * steps) / ms,
      );
      step += steps;
      const share = served / inProcess;
      const what = round === 0 ? 'warm-up' : `round ${round} of ${rounds}`;
      console.error(
        `${what}: ${inProcess.toFixed(3)} steps/s in process, ${served.toFixed(3)} through the server`,
      );
      if (round > 0) shares.push(share);
    }
    console.log(
      `${shape.name}, ${count} sequences of ${shape.prompt} + ${shape.generated} tokens: through the server ${median(shares).toFixed(2)} of in process`,
    );
  } finally {
    child.kill();
    await own.close();
    await rm(folder, { recursive: true });
  }
}

await main();
