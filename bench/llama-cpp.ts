/**
 * Tokens that a GGUF file's model samples in a second of processor time on one thread: with frozen weights in the file's blocks,
 * with float32 weights, and in llama.cpp. Processor time does not count other programs on the machine.
 *
 *     RAGEN_PYTHON=<python> npm run bench:llama-cpp -- --model $(npm run -s model:smollm2) [--rounds 5 --batches 1,8,32 --tokens 48]
 *
 * Then the difference between the log-probabilities of tokens as blocks sample them and as their scores are: the mean size in
 * nats, the mean, and the divergence.
 *
 * They take turns, a round each, and the median counts. The interpreter has llama-cpp-python (pip install llama-cpp-python);
 * without it ragen is measured alone.
 */

import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { mean } from '../trainer/algorithms/statistics.ts';
import { GenerationEngine } from '../trainer/generation/engine.ts';
import { storedParameters } from '../trainer/models/frozen-weights.ts';
import { parameterSpecs } from '../trainer/models/parameters.ts';
import { loadTokenizer } from '../trainer/models/tokenizer/load.ts';
import { readBase, storedBlocks } from '../trainer/policy/checkpoint/checkpoint.ts';
import { readConfig } from '../trainer/policy/checkpoint/model-folder.ts';
import { LocalPolicy } from '../trainer/policy/local-policy.ts';
import { OnnxRuntime } from '../trainer/tensor/runtime/onnx/onnx-runtime.ts';
import { ParameterStore } from '../trainer/tensor/runtime/parameter-store.ts';
import { positiveInteger, scriptFlags } from './flags.ts';
import { cpuMsSince, median } from './measuring.ts';

const PROMPT = 16;
const GAP_SEQUENCES = 8;
const QUESTION = '<|im_start|>user\nWhich number is larger, 658 or 311?<|im_end|>\n<|im_start|>assistant\n';
const PYTHON = process.env.RAGEN_PYTHON ?? 'python3';
const SCRIPT = new URL('llama-cpp/decode.py', import.meta.url).pathname;

const { values: flags } = scriptFlags(import.meta.filename, {
  options: {
    model: { type: 'string' },
    rounds: { type: 'string', default: '5' },
    batches: { type: 'string', default: '1,8,32' },
    tokens: { type: 'string', default: '48' },
  },
});
if (flags.model === undefined) throw new RangeError('--model names a GGUF file: $(npm run -s model:smollm2)');
const { model } = flags;
const [rounds, tokens] = (['rounds', 'tokens'] as const).map(name => positiveInteger(name, flags[name]));

/** Samples this many sequences and gives tokens per second of processor time. */
type Measure = (batch: number) => Promise<number>;

const runtime = new OnnxRuntime({ threads: 1 });
const plain = await readConfig(model);

async function ragen(inBlocks: boolean): Promise<Measure> {
  const blocks = inBlocks ? await storedBlocks(model, plain) : undefined;
  if (inBlocks && blocks === undefined) throw new RangeError(`${model} has no weights in blocks`);
  const config = blocks === undefined ? plain : { ...plain, blocks };
  const parameters = new ParameterStore(storedParameters(parameterSpecs(config, false), config));
  await readBase(model, config, parameters);
  const engine = new GenerationEngine({
    config,
    valueHead: false,
    runtime,
    parameters,
    maxSequenceLength: PROMPT + tokens + 2,
    maxOpenSequences: Math.max(...batches),
  });
  return batch => sample(engine, batch);
}

async function sample(engine: GenerationEngine, batch: number): Promise<number> {
  const sampling = { temperature: 1, topK: 0, topP: 1, maxNewTokens: tokens + 1, stopTokenIds: [] };
  const all = Array.from({ length: batch }, (_, sequenceId) => {
    const append = Int32Array.from({ length: PROMPT }, (_, i) => 100 + ((i * 37 + sequenceId * 11) % 40_000));
    return new Promise((resolve, reject) =>
      engine.submit({ sequenceId, append, sampling, seed: sequenceId }, resolve, reject),
    );
  });
  while (engine.statistics.sampled < batch) await engine.tick();
  const before = engine.statistics.sampled;
  const started = process.cpuUsage();
  while (engine.busy) await engine.tick();
  const seconds = cpuMsSince(started) / 1000;
  const count = engine.statistics.sampled - before;
  await Promise.all(all);
  for (let sequenceId = 0; sequenceId < batch; sequenceId++) engine.release(sequenceId);
  engine.statistics.sampled = 0;
  return count / seconds;
}

/** Change of log-probabilities by rounding activations to 8 bits: those of samples less those of scores. */
async function rounding(): Promise<string> {
  const prompt = (await loadTokenizer(model)).encode(QUESTION);
  const policy = await LocalPolicy.create({
    model,
    seed: 0,
    valueHead: false,
    workers: 1,
    generationOnly: true,
    basePrecision: 'blocks',
    maxSequenceLength: prompt.length + tokens + 1,
  });
  const sampling = { temperature: 1, topK: 0, topP: 1, maxNewTokens: tokens, stopTokenIds: [] };
  const generations = await Promise.all(
    Array.from({ length: GAP_SEQUENCES }, (_, sequenceId) =>
      policy.generate({ sequenceId, append: Int32Array.from(prompt), sampling, seed: sequenceId }),
    ),
  );
  const sequences = generations.map(({ tokenIds }) => ({
    tokenIds: Int32Array.from([...prompt, ...tokenIds]),
    lossMask: Uint8Array.from([...prompt.map(() => 0), ...Array.from(tokenIds, () => 1)]),
  }));
  const scores = await policy.score(sequences);
  await policy.close();
  const gaps = generations.flatMap(({ logProbs }, i) =>
    Array.from(logProbs, (logProb, j) => logProb - scores[i].logProbs[prompt.length + j]),
  );
  const [size, bias, divergence] = [Math.abs, (x: number) => x, (x: number) => Math.exp(-x) - 1 + x].map(of =>
    mean(gaps.map(of)),
  );
  return `${gaps.length} tokens: off by ${size.toFixed(3)} nats, bias ${bias.toFixed(4)}, divergence ${divergence.toFixed(4)}`;
}

/** The process that samples with llama.cpp. */
class LlamaCpp {
  readonly #child: ChildProcessWithoutNullStreams;
  readonly #lines: AsyncIterator<string>;

  constructor() {
    this.#child = spawn(PYTHON, [SCRIPT, model], { env: { ...process.env, OMP_NUM_THREADS: '1' } });
    this.#child.on('error', () => {});
    this.#child.stdin.on('error', () => {});
    this.#lines = createInterface(this.#child.stdout)[Symbol.asyncIterator]();
  }

  /** Its next line; undefined once it has ended. */
  async line(): Promise<string | undefined> {
    const { value, done } = await this.#lines.next();
    return done ? undefined : value;
  }

  async measure(batch: number): Promise<number> {
    this.#child.stdin.write(`${batch} ${tokens}\n`);
    const line = await this.line();
    if (line === undefined) throw new Error(`llama.cpp ended at a batch of ${batch}`);
    return Number(line);
  }

  close(): void {
    this.#child.stdin.end();
  }
}

const batches = flags.batches.split(',').map(text => positiveInteger('batches', text));
const llama = new LlamaCpp();
const version = await llama.line();
const measures: Record<string, Measure> = { blocks: await ragen(true), float32: await ragen(false) };
if (version === undefined) {
  console.log(`llama.cpp is left out: ${PYTHON} has no llama-cpp-python (RAGEN_PYTHON names an interpreter)`);
} else measures[version] = batch => llama.measure(batch);
for (const batch of batches) {
  const rates = new Map<string, number[]>();
  for (let round = 0; round <= rounds; round++) {
    for (const [name, measure] of Object.entries(measures)) {
      const rate = await measure(batch);
      // The first round compiles.
      if (round > 0) rates.set(name, [...(rates.get(name) ?? []), rate]);
    }
  }
  const medians = [...rates].map(([name, values]) => [name, median(values)] as const);
  const ours = medians[0][1];
  const shown = medians.map(([name, rate]) => `${name} ${rate.toFixed(1)}`).join(', ');
  const ratios = medians.slice(1).map(([name, rate]) => `${(ours / rate).toFixed(2)} × ${name}`);
  console.log(`×${batch}: ${shown} tokens/s; blocks are ${ratios.join(', ')}`);
}
console.log(await rounding());
llama.close();
await runtime.close();
