/**
 * Takes a checkpoint through what a run does with it, once: loads it, generates a group, scores it and learns from it by
 * PPO, and prints the time and memory of each and the most memory the process ever had.
 *
 *     npm run make-checkpoint -- --shape qwen2.5-0.5b --out /tmp/half-billion
 *     npm run bench:checkpoint -- --model /tmp/half-billion --threads 2
 *     npm run bench:checkpoint -- --model /tmp/half-billion --lora 8 --recompute
 *
 * `--lora` learns adapters of this rank on all linear layers instead of all weights, `--dora` with magnitudes; `--quantization
 * int8` or `nf4` stores the weights below so. The processor's time is that of all threads, and counts no other programs.
 *
 * A group is `--group 8` sequences of `--prompt 256` tokens and `--generated 32` more; `--tokens 512` are learned from at once,
 * in `--steps 2` updates, by `--workers 1` of `--threads 1`. `--runtime onnx` or `webgpu`; `--precision float32` or `float16`.
 */

import { Random } from '../shared/random.ts';
import { residentBytes } from '../test/process-memory.test-data.ts';
import { DEFAULT_LOSS_SETTINGS } from '../trainer/algorithms/losses/settings.ts';
import type { TrainingSequence } from '../trainer/algorithms/training-sequence.ts';
import { LORA_MODULES } from '../trainer/models/adapters/lora.ts';
import { LocalPolicy } from '../trainer/policy/local-policy.ts';
import type { UpdateSettings } from '../trainer/policy/policy.ts';
import { QUANTIZATIONS } from '../trainer/tensor/graph/operations/blocks.ts';
import { PRECISIONS, RUNTIME_CHOICES } from '../trainer/tensor/runtime/runtime.ts';
import { positiveInteger, scriptFlags } from './flags.ts';

const KIBIBYTE = 1024;
const GIGABYTE = 1e9;
/** Log-probabilities of generation and score may differ by so much: sums in another order, and factors of float16 that round another way. */
const TOLERANCE = { float32: 2e-3, float16: 2e-2 };

const { values: flags } = scriptFlags(import.meta.filename, {
  options: {
    model: { type: 'string' },
    runtime: { type: 'string', default: 'onnx' },
    precision: { type: 'string', default: 'float32' },
    workers: { type: 'string', default: '1' },
    threads: { type: 'string', default: '1' },
    group: { type: 'string', default: '8' },
    prompt: { type: 'string', default: '256' },
    generated: { type: 'string', default: '32' },
    tokens: { type: 'string', default: '512' },
    steps: { type: 'string', default: '2' },
    lora: { type: 'string' },
    dora: { type: 'boolean', default: false },
    quantization: { type: 'string' },
    recompute: { type: 'boolean', default: false },
  },
});
const { model } = flags;
if (model === undefined)
  throw new RangeError('--model must name a folder, e.g. one that `npm run make-checkpoint` wrote');
const runtime = RUNTIME_CHOICES.find(choice => choice === flags.runtime);
if (runtime === undefined)
  throw new RangeError(`--runtime must be one of ${RUNTIME_CHOICES.join(', ')}, got ${flags.runtime}`);
const precision = PRECISIONS.find(name => name === flags.precision);
if (precision === undefined)
  throw new RangeError(`--precision must be one of ${PRECISIONS.join(', ')}, got ${flags.precision}`);
const numberOf = (
  name: 'workers' | 'threads' | 'group' | 'prompt' | 'generated' | 'tokens' | 'steps' | 'lora',
) => positiveInteger(name, flags[name]);
const [workers, threads, group, prompt, generated, tokenBudget, steps] = (
  ['workers', 'threads', 'group', 'prompt', 'generated', 'tokens', 'steps'] as const
).map(numberOf);
const quantization = QUANTIZATIONS.find(kind => kind === flags.quantization);
if (flags.quantization !== undefined && quantization === undefined)
  throw new RangeError(
    `--quantization must be one of ${QUANTIZATIONS.join(', ')}, got ${flags.quantization}`,
  );
const rank = flags.lora === undefined ? null : numberOf('lora');

const policy = await timed('load', () =>
  LocalPolicy.create({
    model,
    runtime,
    precision,
    seed: 0,
    workers,
    threads,
    valueHead: true,
    maxSequenceLength: prompt + generated,
    maxOpenSequences: group,
    tokenBudget,
    recompute: flags.recompute,
    quantization,
    ...(rank === null
      ? {}
      : { lora: { rank, alpha: 2 * rank, rankStabilized: false, dora: flags.dora, modules: LORA_MODULES } }),
  }),
);
console.log(`  ${policy.parameterCount.toLocaleString('en')} weights on ${policy.description}`);
const rng = Random.fromSeed(1);
const common = Int32Array.from({ length: prompt }, () => rng.integer(policy.vocabularySize));
const played = await timed(
  `generate ${group} × ${generated} tokens after a common prompt of ${prompt}`,
  () => generateGroup(),
  group * generated,
);
const scores = await timed(
  'score them',
  () => policy.score(played.map(({ tokenIds, lossMask }) => ({ tokenIds, lossMask }))),
  group * (prompt + generated),
);
const off = Math.max(
  ...scores.map(({ logProbs }, n) =>
    logProbs.reduce((most, x, t) => Math.max(most, Math.abs(x - played[n].logProbs[t])), 0),
  ),
);
if (!(off < TOLERANCE[precision]))
  throw new Error(`score and generate differ by ${off} in a log-probability`);
console.log(`  log-probabilities of generate and score differ by at most ${off.toExponential(1)}`);
const settings: UpdateSettings = {
  loss: { ...DEFAULT_LOSS_SETTINGS },
  optimizer: { learningRate: 1e-5, beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weightDecay: 0, clipNorm: 1 },
  temperature: 1,
};
for (let step = 1; step <= steps; step++) {
  const metrics = await timed(
    `PPO step ${step}`,
    () => policy.update({ sequences: played }, settings),
    group * (prompt + generated),
  );
  console.log(`  gradient norm ${metrics['actor/grad_norm'].toPrecision(5)}`);
}
await policy.close();
console.log(`most memory: ${peakGigabytes()} GB (resident, the whole process)`);

async function generateGroup(): Promise<TrainingSequence[]> {
  const sampling = { temperature: 1, topK: 0, topP: 1, maxNewTokens: generated, stopTokenIds: [] };
  const generations = await Promise.all(
    Array.from({ length: group }, (_, sequenceId) =>
      policy.generate({ sequenceId, append: common, sampling, seed: sequenceId }),
    ),
  );
  return generations.map(({ tokenIds, logProbs, values }, n) => {
    const padded = (own: ArrayLike<number>) => {
      const array = new Float32Array(prompt + own.length);
      array.set(own, prompt);
      return array;
    };
    const sign = n % 2 === 0 ? 1 : -1;
    return {
      tokenIds: Int32Array.from([...common, ...tokenIds]),
      lossMask: Uint8Array.from(padded(tokenIds), (_, t) => (t < prompt ? 0 : 1)),
      logProbs: padded(logProbs),
      advantages: padded(tokenIds).map((_, t) => (t < prompt ? 0 : sign)),
      values: padded(values!),
      returns: padded(values!.map(value => value + sign)),
    };
  });
}

/** Peak memory of the process; `maxRSS` on systems other than Linux. */
function peakGigabytes(): string {
  const bytes =
    process.platform === 'linux'
      ? residentBytes(process.pid, 'VmHWM')
      : process.resourceUsage().maxRSS * KIBIBYTE;
  return (bytes / GIGABYTE).toFixed(3);
}

async function timed<T>(what: string, work: () => Promise<T>, tokens?: number): Promise<T> {
  const start = performance.now();
  const before = process.cpuUsage();
  const result = await work();
  const seconds = (performance.now() - start) / 1000;
  const { user, system } = process.cpuUsage(before);
  const rate = tokens === undefined ? '' : `, ${(tokens / seconds).toFixed(1)} tokens/s`;
  const resident = (process.memoryUsage.rss() / GIGABYTE).toFixed(2);
  console.log(
    `${what}: ${seconds.toFixed(1)} s${rate}, ${((user + system) / 1e6).toFixed(1)} s of processor; ${resident} GB resident, ${peakGigabytes()} GB at most so far`,
  );
  return result;
}
