import type { LossComponent } from '../../algorithms/losses/update-loss.ts';
import type { GenerateRequest, Generation, StreamedToken } from '../../generation/generation.ts';
import type { Grammars } from '../../generation/grammar.ts';
import type { DecoderConfig } from '../../models/config.ts';
import type { SharedParameters } from '../../tensor/runtime/parameter-store.ts';
import type { Precision, RuntimeKind } from '../../tensor/runtime/runtime.ts';
import { DEFAULT_TOKEN_BUDGET } from '../learning/micro-batches.ts';
import type { DropoutSettings, GradientReport, GradientTask } from '../learning/train-program.ts';
import { openSequences, workerCount } from '../options.ts';
import { learnedStore, type PolicyParts } from '../parts.ts';
import type { OptimizerSettings, Score, ScoreRequest, ScoreSettings } from '../policy.ts';

/** Initial data of a worker. Weights, moments and gradients are shared memory, visible to all. */
export interface WorkerSetup {
  readonly index: number;
  readonly config: DecoderConfig;
  readonly runtime: RuntimeKind;
  readonly precision: Precision;
  readonly valueHead: boolean;
  readonly critic: boolean;
  readonly maxSequenceLength: number;
  /** Sequences with a cache, of this worker alone. */
  readonly maxOpenSequences: number;
  readonly tokenBudget: number;
  readonly packing: boolean;
  readonly recompute: boolean;
  /** Dropout of the inputs of adapters while they learn. */
  readonly dropout: DropoutSettings | null;
  readonly threads: number;
  readonly grammars: Grammars;
  /** A tokenizer's files by name, where there is one. */
  readonly files: { readonly [name: string]: string };
  /** Unfinished responses continue from the cache of older weights. */
  readonly keepStaleCache: boolean;
  /** Frozen weights next to adapters; null where everything is learned. */
  readonly base: SharedParameters | null;
  /** Squared norms of the rows of its weights, where DoRA adapts them. */
  readonly norms: SharedParameters | null;
  /** Adapters of the reference policy; null without adapters. */
  readonly reference: SharedParameters | null;
  /** Learned weights. */
  readonly weights: SharedParameters;
  readonly firstMoments: SharedParameters;
  readonly secondMoments: SharedParameters;
  /** Gradients of every worker, in order; sums go into the first. */
  readonly gradients: readonly SharedParameters[];
  /** Float64 sums of squares by block of the flat gradient. */
  readonly squares: SharedArrayBuffer;
  readonly version: number;
}

/** Initial data of each worker of a policy. */
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
    packing: true,
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

/** Memory for a worker's gradients of each component. */
type ComponentStores = readonly {
  readonly component: LossComponent;
  readonly store: SharedParameters;
}[];

/** A part [start, end) of the flat vector of weights. */
export interface WeightSlice {
  readonly start: number;
  readonly end: number;
}

/** A request to a worker. From `gradients` until `resume` it does not generate, because weights are about to change. */
export type WorkerTask =
  | {
      readonly kind: 'score';
      readonly sequences: readonly ScoreRequest[];
      readonly settings: ScoreSettings;
      /** With the reference's adapters instead of the policy's. */
      readonly reference: boolean;
    }
  | { readonly kind: 'gradients'; readonly task: GradientTask }
  | { readonly kind: 'reduce'; readonly slice: WeightSlice }
  | {
      readonly kind: 'decompose';
      readonly task: GradientTask;
      readonly into: ComponentStores;
    }
  | {
      readonly kind: 'collectGradients';
      readonly slice: WeightSlice;
      /** Gradients of every worker, in order. */
      readonly parts: readonly ComponentStores[];
      readonly vectors: SharedArrayBuffer;
      /** Index of the first component among the vectors; the others follow. */
      readonly first: number;
    }
  | {
      readonly kind: 'gradientProducts';
      readonly slice: WeightSlice;
      readonly vectors: SharedArrayBuffer;
      /** Vectors of one kind are multiplied with each other. */
      readonly kinds: readonly number[];
    }
  | {
      readonly kind: 'apply';
      readonly slice: WeightSlice;
      readonly step: number;
      readonly scale: number;
      readonly optimizer: OptimizerSettings;
    }
  /** Copies weights and moments from the device, if learning runs there. */
  | { readonly kind: 'download' }
  | { readonly kind: 'hold' }
  | { readonly kind: 'resume'; readonly version: number; readonly weightsReplaced: boolean };

/** Result of each task. */
export interface TaskResults {
  readonly score: Score[];
  readonly gradients: GradientReport;
  readonly reduce: null;
  readonly decompose: Record<string, number>;
  readonly collectGradients: null;
  readonly gradientProducts: Float64Array;
  readonly apply: null;
  readonly download: null;
  readonly hold: null;
  readonly resume: null;
}

/** A step in the life of a sequence. */
export type SequenceOrder =
  | {
      readonly kind: 'generate';
      readonly id: number;
      readonly request: GenerateRequest;
      /** Its tokens are reported when they are sampled. */
      readonly watched: boolean;
    }
  | { readonly kind: 'release'; readonly sequenceId: number };

export type ToWorker =
  | { readonly kind: 'task'; readonly id: number; readonly task: WorkerTask }
  | { readonly kind: 'sequences'; readonly orders: readonly SequenceOrder[] }
  | { readonly kind: 'close' };

export type FromWorker =
  | { readonly kind: 'ready'; readonly runtime: string }
  | { readonly kind: 'done'; readonly id: number; readonly result: unknown }
  | { readonly kind: 'failed'; readonly id: number; readonly error: Error }
  | {
      readonly kind: 'generated';
      readonly sampled: readonly NumberedToken[];
      readonly finished: readonly NumberedGeneration[];
    };

/** A token of a watched request. */
export interface NumberedToken {
  readonly id: number;
  readonly token: StreamedToken;
}

export type NumberedGeneration =
  | { readonly id: number; readonly generation: Generation }
  | { readonly id: number; readonly error: Error };
