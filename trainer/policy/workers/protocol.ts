import type { CallReply } from '../../../shared/scheduling/thread-calls.ts';
import type { LossComponent } from '../../algorithms/losses/update-loss.ts';
import type { GenerateRequest, StreamedToken } from '../../generation/generation.ts';
import type { SharedParameters } from '../../tensor/runtime/parameter-store.ts';
import { DEFAULT_TOKEN_BUDGET } from '../learning/micro-batches.ts';
import type { GradientReport, GradientTask, ProgramOptions } from '../learning/train-program.ts';
import { type LocalPolicyOptions, openSequences, workerCount } from '../options.ts';
import { learnedStore, type PolicyParts } from '../parts.ts';
import type { OptimizerSettings, Score, ScoreRequest, ScoreSettings } from '../policy.ts';

/** Initial data of a worker. Weights, moments and gradients are shared memory, visible to all. */
export interface WorkerSetup
  extends Pick<ProgramOptions, 'config' | 'valueHead' | 'critic' | 'tokenBudget' | 'recompute' | 'dropout'>,
    Required<Pick<LocalPolicyOptions, 'precision' | 'threads' | 'grammars' | 'files' | 'keepStaleCache'>>,
    Pick<PolicyParts, 'runtime' | 'maxSequenceLength'> {
  readonly index: number;
  /** Sequences with a cache, of this worker alone. */
  readonly maxOpenSequences: number;
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

/**
 * What a worker does on request, by name, one after the other. From `gradients` until `resume` it does not generate,
 * because weights are about to change.
 */
export interface WorkerTasks {
  /** @param reference with the reference's adapters instead of the policy's */
  score(sequences: readonly ScoreRequest[], settings: ScoreSettings, reference: boolean): Promise<Score[]>;
  gradients(task: GradientTask): Promise<GradientReport>;
  /** Adds up all workers' gradients in their order. */
  reduce(slice: WeightSlice): Promise<void>;
  decompose(task: GradientTask, into: ComponentStores): Promise<Record<string, number>>;
  /**
   * Adds up the workers' gradients of a batch in their order, one component after the other.
   * @param parts gradients of every worker, in order
   * @param first index of the first component among the vectors; the others follow
   */
  collectGradients(
    slice: WeightSlice,
    parts: readonly ComponentStores[],
    vectors: SharedArrayBuffer,
    first: number,
  ): void;
  /**
   * Inner products over a slice, row-major; 0 between vectors of different kinds.
   * @param kinds of all vectors, in order
   */
  gradientProducts(slice: WeightSlice, vectors: SharedArrayBuffer, kinds: readonly number[]): Float64Array;
  apply(slice: WeightSlice, step: number, scale: number, optimizer: OptimizerSettings): Promise<void>;
  /** Copies weights and moments from the device, if learning runs there. */
  download(): Promise<void>;
  hold(): void;
  resume(version: number, weightsReplaced: boolean): void;
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
  | { readonly kind: 'task'; readonly id: number; readonly name: keyof WorkerTasks; readonly args: unknown[] }
  | { readonly kind: 'sequences'; readonly orders: readonly SequenceOrder[] }
  | { readonly kind: 'close' };

/** Call that a thread answers when it has started, with the readable name of its runtime; tasks and requests follow. */
export const STARTED = 1;

export interface FromWorker {
  readonly sampled?: readonly NumberedToken[];
  readonly replies: readonly NumberedReply[];
}

/** A token of a watched request. */
export interface NumberedToken {
  readonly id: number;
  readonly token: StreamedToken;
}

export type NumberedReply = { readonly id: number } & CallReply;
