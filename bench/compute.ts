/**
 * Training steps and decoding of small policies, in milliseconds and tokens a second, beside PyTorch and transformers
 * on the same shapes where a Python with both is found.
 *
 *     npm run bench:compute [-- --rounds 5]
 *     RAGEN_PYTHON=/path/to/venv/bin/python npm run bench:compute
 *
 * A training step is forward, backward, clipping and AdamW through the local policy, which splits the batch over as
 * many workers as there are threads. Both sides take turns, a round each, and the median of all their steps counts; the
 * best step tells more on a machine that has other work.
 */

import { parseArgs } from 'node:util';
import { Random } from '../shared/random.ts';
import { DEFAULT_LOSS_SETTINGS } from '../trainer/algorithms/losses/settings.ts';
import { GraphBuilder } from '../trainer/graph/graph.ts';
import { LocalPolicy } from '../trainer/policy/local/local-policy.ts';
import type { TrainingSequence, UpdateSettings } from '../trainer/policy/policy.ts';
import { OnnxRuntime } from '../trainer/runtime/onnx/onnx-runtime.ts';
import { Reference } from './compute/reference.ts';
import { configOf, SHAPES, type Shape, trainingOperations } from './compute/shapes.ts';

const STEPS_A_ROUND = 5;
const THREADS = [1, 2];
const PEAK_EXTENT = 1024;
const PEAK_REPEATS = 10;

const SETTINGS: UpdateSettings = {
  loss: { ...DEFAULT_LOSS_SETTINGS, policy: 'cross_entropy', entropyCoefficient: 0 },
  optimizer: { learningRate: 1e-4, beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weightDecay: 0.01, clipNorm: 1 },
  temperature: 1,
};

type Task = 'train' | 'decode';

const { values: flags } = parseArgs({ options: { rounds: { type: 'string', default: '3' } } });
const rounds = Number(flags.rounds);
if (!(Number.isInteger(rounds) && rounds > 0))
  throw new RangeError(`--rounds must be a positive integer, got ${flags.rounds}`);

const python = process.env.RAGEN_PYTHON ?? 'python3';
const reference = await Reference.start(python);
console.log(
  reference === null
    ? `No ratio: ${python} has no torch and transformers (set RAGEN_PYTHON to one that has).`
    : `Beside ${reference.versions}; ratios above 1 mean that we are faster.`,
);
for (const threads of THREADS) {
  const peak = await matrixPeak(threads);
  console.log(
    `\n${threads} thread${threads > 1 ? 's' : ''}: a matrix product of ${PEAK_EXTENT}³ runs at ${peak.toFixed(0)} GFLOP/s`,
  );
  for (const shape of SHAPES) await compare(shape, threads, peak);
}
reference?.stop();

async function compare(shape: Shape, threads: number, peak: number): Promise<void> {
  const policy = await LocalPolicy.create({
    model: configOf(shape),
    seed: 0,
    workers: threads,
    valueHead: false,
    maxOpenSequences: 2 * shape.batch,
  });
  const ours: Record<Task, number[]> = { train: [], decode: [] };
  const theirs: Record<Task, number[]> = { train: [], decode: [] };
  for (let round = 0; round < rounds; round++) {
    for (const task of ['train', 'decode'] as const) {
      const run = task === 'train' ? () => trainOnce(policy, shape) : () => decodeOnce(policy, shape);
      ours[task].push(...(await measure(run)));
      if (reference !== null)
        theirs[task].push(...(await reference.measure(task, shape, threads, STEPS_A_ROUND)));
    }
  }
  const trainTokens = shape.batch * shape.time;
  const speed = trainingOperations(shape, policy.parameterCount) / median(ours.train) / 1e6;
  report(
    `${shape.name} training, ${shape.batch} × ${shape.time} tokens`,
    trainTokens,
    ours.train,
    theirs.train,
  );
  console.log(
    `    ${speed.toFixed(0)} GFLOP/s, ${((100 * speed) / peak).toFixed(0)} % of the matrix product's`,
  );
  report(
    `${shape.name} decoding, ${shape.batch} sequences, ${shape.prompt} + ${shape.generated} tokens`,
    shape.batch * shape.generated,
    ours.decode,
    theirs.decode,
  );
  await policy.close();
}

function report(title: string, tokens: number, ours: readonly number[], theirs: readonly number[]): void {
  const line = (times: readonly number[]): string => {
    const rate = Math.round((tokens / median(times)) * 1000).toLocaleString('en');
    return `${median(times).toFixed(1)} ms (best ${Math.min(...times).toFixed(1)}), ${rate} tokens/s`;
  };
  console.log(`  ${title}: ${line(ours)}`);
  if (theirs.length === 0) return;
  const ratio = median(theirs) / median(ours);
  const best = Math.min(...theirs) / Math.min(...ours);
  console.log(`    reference ${line(theirs)}; ratio ${ratio.toFixed(2)} (best to best ${best.toFixed(2)})`);
}

async function trainOnce(policy: LocalPolicy, shape: Shape): Promise<void> {
  const rng = Random.fromSeed(1);
  const length = shape.time + 1;
  const sequences = Array.from({ length: shape.batch }, (): TrainingSequence => {
    const mask = new Uint8Array(length).fill(1);
    mask[0] = 0;
    return {
      tokenIds: Int32Array.from({ length }, () => rng.integer(shape.vocabulary)),
      mask,
      logProbs: new Float32Array(length),
      advantages: new Float32Array(length),
    };
  });
  await policy.update({ sequences }, SETTINGS);
}

async function decodeOnce(policy: LocalPolicy, shape: Shape): Promise<void> {
  const rng = Random.fromSeed(2);
  const sampling = { temperature: 1, topK: 0, topP: 1, maxNewTokens: shape.generated, stopTokenIds: [] };
  const requests = Array.from({ length: shape.batch }, (_, sequenceId) => {
    const append = Int32Array.from({ length: shape.prompt }, () => rng.integer(shape.vocabulary));
    return policy.generate({ sequenceId, append, sampling, seed: sequenceId });
  });
  await Promise.all(requests);
  for (let sequenceId = 0; sequenceId < shape.batch; sequenceId++) policy.release(sequenceId);
}

/** Milliseconds of each step of a round, after one to warm up. */
async function measure(run: () => Promise<void>): Promise<number[]> {
  await run();
  const times: number[] = [];
  for (let step = 0; step < STEPS_A_ROUND; step++) {
    const start = performance.now();
    await run();
    times.push(performance.now() - start);
  }
  return times;
}

/** GFLOP/s of the largest product of square matrices the runtime is likely to be good at. */
async function matrixPeak(threads: number): Promise<number> {
  const runtime = new OnnxRuntime({ threads });
  const g = new GraphBuilder();
  const extents = [PEAK_EXTENT, PEAK_EXTENT];
  g.output('product', g.matmul(g.input('a', 'float32', extents), g.input('b', 'float32', extents)));
  const executable = await runtime.compile(g.build());
  const matrix = new Float32Array(PEAK_EXTENT ** 2).fill(0.5);
  let best = Number.POSITIVE_INFINITY;
  for (let repeat = 0; repeat < PEAK_REPEATS; repeat++) {
    const start = performance.now();
    await executable.run({ a: matrix, b: matrix });
    best = Math.min(best, performance.now() - start);
  }
  await runtime.close();
  return (2 * PEAK_EXTENT ** 3) / best / 1e6;
}

function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[values.length >> 1];
}
