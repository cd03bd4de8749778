import { learnedStore } from '../initial-weights.ts';
import { NORM_BLOCK } from '../learning/adamw.ts';
import { DEFAULT_TOKEN_BUDGET } from '../learning/micro-batches.ts';
import { openSequences, workerCount } from '../options.ts';
import type { PolicyParts } from '../parts.ts';
import type { WeightSlice, WorkerSetup } from './protocol.ts';

/** Initial data of each worker. */
export function workerSetups({
  options,
  config,
  runtime,
  maxSequenceLength,
  base,
  norms,
  reference,
  weights,
  first,
  second,
  squares,
}: PolicyParts): WorkerSetup[] {
  const count = workerCount(options, runtime);
  const learned = learnedStore(options, weights);
  const gradients = Array.from({ length: count }, () => learned().share());
  return gradients.map((_, index) => ({
    index,
    config,
    runtime,
    precision: options.precision ?? 'float32',
    valueHead: options.valueHead,
    critic: options.critic ?? false,
    maxSequenceLength,
    maxOpenSequences: Math.ceil(openSequences(options) / count),
    tokenBudget: options.tokenBudget ?? DEFAULT_TOKEN_BUDGET,
    packing: options.packing ?? true,
    recompute: options.recompute ?? false,
    dropout: options.loraDropout ? { probability: options.loraDropout, seed: options.seed } : null,
    threads: options.threads ?? 1,
    grammars: options.grammars ?? {},
    files: options.files ?? {},
    keepStaleCache: options.keepStaleCache ?? false,
    base: base?.share() ?? null,
    norms: norms?.share() ?? null,
    reference: reference?.share() ?? null,
    weights: weights.share(),
    firstMoments: first.share(),
    secondMoments: second.share(),
    gradients,
    squares: squares.buffer,
    version: 0,
  }));
}

/** Splits [0, length) into one slice a worker, on borders of norm blocks. */
export function sliceWeights(length: number, workers: number): WeightSlice[] {
  const blocks = Math.ceil(length / NORM_BLOCK);
  const border = (w: number) => Math.min(length, Math.round((blocks * w) / workers) * NORM_BLOCK);
  return Array.from({ length: workers }, (_, w) => ({ start: border(w), end: border(w + 1) }));
}
