/**
 * Training steps and decoding, in milliseconds and tokens a second, next to PyTorch and transformers on the same shapes
 * where a Python with both is found.
 *
 *     npm run bench:compute [-- --rounds 5 --threads 1]
 *     RAGEN_PYTHON=/path/to/venv/bin/python npm run bench:compute
 *     npm run bench:compute -- --shapes 0.1B,0.5B --rounds 1 --threads 2
 *     npm run bench:compute -- --runtime webgpu --precision float16 --shapes 0.5B --batch 64 --time 512 --tokens 4096
 *
 * A training step is forward, backward, clipping and AdamW through the local policy. Small shapes are split over as many
 * workers as there are threads, large ones run on one worker of this many threads, which holds fewer copies of what is as
 * large as the weights. Both sides take turns, a round each (with large shapes the reference goes first: both do not fit
 * in memory), and the median of all their steps counts; the best step says more on a machine with other load. On a GPU
 * the reference runs there, too, in bf16, and shares are also those of the card's data sheet where it is known by name.
 * `--tokens` are those of a micro-batch of a large shape.
 */

import { type ChildProcessByStdio, spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import type { Readable, Writable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { Random } from '../shared/random.ts';
import { PYTHON } from '../test/python.test-data.ts';
import { DEFAULT_LOSS_SETTINGS } from '../trainer/algorithms/losses/settings.ts';
import type { TrainingSequence } from '../trainer/algorithms/training-sequence.ts';
import { LocalPolicy } from '../trainer/policy/local-policy.ts';
import type { UpdateSettings } from '../trainer/policy/policy.ts';
import { PRECISIONS, type RuntimeKind } from '../trainer/tensor/runtime/runtime.ts';
import { copyBandwidth, limitsOf, matrixPeak, PEAK_EXTENTS } from './compute/peaks.ts';
import {
  configOf,
  decodingBytes,
  SHAPES,
  type Shape,
  shapeNamed,
  trainingOperations,
} from './compute/shapes.ts';
import { positiveInteger, scriptFlags } from './flags.ts';
import { median } from './measuring.ts';

const SETTINGS: UpdateSettings = {
  loss: { ...DEFAULT_LOSS_SETTINGS, policy: 'cross_entropy', entropyCoefficient: 0 },
  optimizer: { learningRate: 1e-4, beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weightDecay: 0.01, clipNorm: 1 },
  temperature: 1,
};

/** Members of a group, tokens of the prompt that they have in common, and tokens that each samples. */
export const GROUP = { members: 16, prompt: 256, generated: 8 } as const;

/** One optimizer step on random sequences. */
export async function trainOnce(policy: LocalPolicy, shape: Shape): Promise<void> {
  const rng = Random.fromSeed(1);
  const length = shape.time + 1;
  const sequences = Array.from({ length: shape.batch }, (): TrainingSequence => {
    const lossMask = new Uint8Array(length).fill(1);
    lossMask[0] = 0;
    return {
      tokenIds: Int32Array.from({ length }, () => rng.integer(shape.vocabulary)),
      lossMask: lossMask,
      logProbs: new Float32Array(length),
      advantages: new Float32Array(length),
    };
  });
  await policy.update({ sequences }, SETTINGS);
}

/** A batch of random prompts, all different, and their continuations. */
export async function decodeOnce(policy: LocalPolicy, shape: Shape): Promise<void> {
  const rng = Random.fromSeed(2);
  const prompts = Array.from({ length: shape.batch }, () => randomTokens(rng, shape.prompt, shape));
  await continueAll(policy, prompts, shape.generated);
}

/** A group behind one prompt, or as many sequences behind separate prompts. */
export async function groupOnce(policy: LocalPolicy, shape: Shape, common: boolean): Promise<void> {
  const rng = Random.fromSeed(3);
  const first = randomTokens(rng, GROUP.prompt, shape);
  const prompts = Array.from({ length: GROUP.members }, () =>
    common ? first : randomTokens(rng, GROUP.prompt, shape),
  );
  await continueAll(policy, prompts, GROUP.generated);
}

async function continueAll(
  policy: LocalPolicy,
  prompts: readonly Int32Array[],
  maxNewTokens: number,
): Promise<void> {
  const sampling = { temperature: 1, topK: 0, topP: 1, maxNewTokens, stopTokenIds: [] };
  await Promise.all(
    prompts.map((append, sequenceId) => policy.generate({ sequenceId, append, sampling, seed: sequenceId })),
  );
  for (const sequenceId of prompts.keys()) policy.release(sequenceId);
}

function randomTokens(rng: Random, length: number, shape: Shape): Int32Array {
  return Int32Array.from({ length }, () => rng.integer(shape.vocabulary));
}

const SCRIPT = fileURLToPath(new URL('./compute/reference.py', import.meta.url));

type PythonProcess = ChildProcessByStdio<Writable, Readable, null>;

/** PyTorch and transformers in a Python process that waits for measurements to take. */
export class Reference {
  readonly versions: string;
  /** Devices: `cpu`, and `cuda` where PyTorch sees a GPU. */
  readonly devices: readonly string[];
  readonly #process: PythonProcess;
  readonly #lines: AsyncIterator<string>;

  private constructor(
    process: PythonProcess,
    lines: AsyncIterator<string>,
    versions: string,
    devices: readonly string[],
  ) {
    this.#process = process;
    this.#lines = lines;
    this.versions = versions;
    this.devices = devices;
  }

  /** @returns null where this Python cannot be started or lacks torch or transformers */
  static async start(python: string): Promise<Reference | null> {
    const child = spawn(python, [SCRIPT], { stdio: ['pipe', 'pipe', 'ignore'] });
    child.on('error', () => undefined);
    child.stdin.on('error', () => undefined);
    const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
    const first = await lines.next();
    if (first.done) return null;
    const { torch, transformers, devices } = JSON.parse(first.value) as {
      torch: string;
      transformers: string;
      devices: string[];
    };
    return new Reference(child, lines, `PyTorch ${torch}, transformers ${transformers}`, devices);
  }

  /** @returns milliseconds of each of the steps, after one to warm up */
  async measure(
    task: 'train' | 'decode',
    shape: Shape,
    threads: number,
    steps: number,
    device: 'cpu' | 'cuda',
  ): Promise<number[]> {
    this.#process.stdin.write(`${JSON.stringify({ task, shape, threads, steps, device })}\n`);
    const line = await this.#lines.next();
    if (line.done) throw new Error(`the reference stopped while measuring ${task} of ${shape.name}`);
    return JSON.parse(line.value) as number[];
  }

  stop(): void {
    this.#process.stdin.end();
  }
}

const FLOAT_BYTES = 4;
/** Padded tokens of a micro-batch of a large shape: logits over 150,000 words take 300 MB for this many. */
const LARGE_TOKEN_BUDGET = 512;

type Task = 'train' | 'decode' | 'group' | 'apart';

const { values: flags } = scriptFlags(import.meta.filename, {
  options: {
    rounds: { type: 'string', default: '3' },
    threads: { type: 'string', default: '1,2' },
    shapes: {
      type: 'string',
      default: SHAPES.filter(({ large }) => !large)
        .map(({ name }) => name)
        .join(),
    },
    runtime: { type: 'string', default: 'onnx' },
    precision: { type: 'string', default: 'float32' },
    batch: { type: 'string' },
    time: { type: 'string' },
    tokens: { type: 'string' },
  },
});
const rounds = positiveInteger('rounds', flags.rounds);
const kind: RuntimeKind = flags.runtime === 'webgpu' ? 'webgpu' : 'onnx';
if (kind !== flags.runtime) throw new RangeError(`--runtime must be onnx or webgpu, got ${flags.runtime}`);
const precision = PRECISIONS.find(name => name === flags.precision);
if (precision === undefined)
  throw new RangeError(`--precision must be one of ${PRECISIONS.join(', ')}, got ${flags.precision}`);
const tokenBudget = flags.tokens === undefined ? LARGE_TOKEN_BUDGET : positiveInteger('tokens', flags.tokens);
const threadCounts =
  kind === 'webgpu' ? [1] : flags.threads.split(',').map(each => positiveInteger('threads', each));
const shapes = flags.shapes.split(',').map((name): Shape => {
  const shape = shapeNamed(name);
  return {
    ...shape,
    batch: flags.batch === undefined ? shape.batch : positiveInteger('batch', flags.batch),
    time: flags.time === undefined ? shape.time : positiveInteger('time', flags.time),
  };
});

const reference = await Reference.start(PYTHON);
console.log(
  reference === null
    ? `No ratio: ${PYTHON} has no torch and transformers (set RAGEN_PYTHON to one that has).`
    : `Next to ${reference.versions}; ratios above 1 mean that we are faster.`,
);
const bandwidth = copyBandwidth();
console.log(`A copy in memory reads and writes ${bandwidth.toFixed(1)} GB/s on one thread.`);
for (const threads of threadCounts) {
  const peak = await matrixPeak(kind, threads, precision);
  console.log(
    `\n${kind === 'webgpu' ? 'GPU' : `${threads} thread${threads > 1 ? 's' : ''}`}: a matrix product of ${PEAK_EXTENTS[kind]}³ runs at ${peak.toFixed(0)} GFLOP/s`,
  );
  for (const shape of shapes) await compare(shape, threads, peak);
}
reference?.stop();

async function compare(shape: Shape, threads: number, peak: number): Promise<void> {
  const ours: Record<Task, number[]> = { train: [], decode: [], group: [], apart: [] };
  const theirs: Record<'train' | 'decode', number[]> = { train: [], decode: [] };
  const device = kind === 'webgpu' ? 'cuda' : 'cpu';
  const refer = async (task: Task) => {
    if (!reference?.devices.includes(device) || task === 'group' || task === 'apart') return;
    theirs[task].push(...(await reference.measure(task, shape, threads, shape.steps, device)));
  };
  if (shape.large) {
    for (let round = 0; round < rounds; round++) {
      await refer('train');
      await refer('decode');
    }
  }
  const policy = await LocalPolicy.create({
    model: configOf(shape),
    seed: 0,
    runtime: kind,
    precision,
    ...(shape.large ? { workers: 1, threads, tokenBudget } : { workers: threads }),
    valueHead: false,
    maxOpenSequences: Math.max(2 * shape.batch, GROUP.members),
  });
  console.log(`  ${policy.description}`);
  const limits = limitsOf(policy.description);
  const runs: Readonly<Record<Task, () => Promise<void>>> = {
    train: () => trainOnce(policy, shape),
    decode: () => decodeOnce(policy, shape),
    group: () => groupOnce(policy, shape, true),
    apart: () => groupOnce(policy, shape, false),
  };
  for (let round = 0; round < rounds; round++) {
    for (const task of ['train', 'decode', 'group', 'apart'] as const) {
      ours[task].push(...(await measure(runs[task], shape.steps)));
      if (!shape.large) await refer(task);
    }
  }
  const speed = trainingOperations(shape, policy.parameterCount) / median(ours.train) / 1e6;
  report(
    `${shape.name} training, ${shape.batch} × ${shape.time} tokens`,
    shape.batch * shape.time,
    ours.train,
    theirs.train,
  );
  console.log(
    `    ${speed.toFixed(0)} GFLOP/s, ${((100 * speed) / peak).toFixed(0)} % of the matrix product's${ofCard(speed / 1000, limits?.tflops)}`,
  );
  report(
    `${shape.name} decoding, ${shape.batch} sequences, ${shape.prompt} + ${shape.generated} tokens`,
    shape.batch * shape.generated,
    ours.decode,
    theirs.decode,
  );
  if (shape.large) {
    const rate = decodingBytes(shape, policy.parameterCount, FLOAT_BYTES) / median(ours.decode) / 1e6;
    const share =
      kind === 'onnx'
        ? `, ${((100 * rate) / bandwidth).toFixed(0)} % of the copy's`
        : ofCard(rate, limits?.gigabytes);
    console.log(`    weights and cache read at ${rate.toFixed(1)} GB/s${share}`);
  }
  const [group, apart] = [median(ours.group), median(ours.apart)];
  console.log(
    `  ${shape.name} group of ${GROUP.members} behind a common prompt of ${GROUP.prompt}, ${GROUP.generated} tokens each: ${group.toFixed(1)} ms; behind separate prompts ${apart.toFixed(1)} ms, ${(apart / group).toFixed(1)} times as long`,
  );
  await policy.close();
}

/** A share of what the card can do at most, where that is known. */
function ofCard(rate: number, most: number | undefined): string {
  return most === undefined ? '' : `, ${((100 * rate) / most).toFixed(1)} % of the card's`;
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

/** Milliseconds of each step of a round, after one to warm up. */
async function measure(run: () => Promise<void>, steps: number): Promise<number[]> {
  await run();
  const times: number[] = [];
  for (let step = 0; step < steps; step++) {
    const start = performance.now();
    await run();
    times.push(performance.now() - start);
  }
  return times;
}
