import type { LossSettings } from '../algorithms/losses/settings.ts';
import type { LossComponent } from '../algorithms/losses/update-loss.ts';
import type { TrainingSequence } from '../algorithms/training-sequence.ts';
import type { Generator } from '../generation/generation.ts';
import type { DecoderConfig } from '../models/config.ts';
import type { WeightDtype } from '../models/files/stored-numbers.ts';

/**
 * The trainer's interface of a policy: it continues token sequences, scores them, learns from them and can be saved.
 * Local policies (ONNX, WebGPU) and remote ones implement it. Optional methods are absent where a policy does not
 * support them.
 */
export interface Policy extends Generator {
  /** Counts weight updates; every generated token carries the version it was sampled under. */
  readonly version: number;
  readonly vocabularySize: number;
  /** Longest sequence, prompt and responses together, in tokens. */
  readonly maxSequenceLength: number;

  /** Log-probabilities, entropies and values of given sequences under the current weights. */
  score(sequences: readonly ScoreRequest[], settings?: ScoreSettings): Promise<Score[]>;

  /**
   * log p(continuation | prompt) in nats, summed over the continuation's tokens, under the current weights: an array for each
   * request. Prefix caching: every prompt is prefilled once for all of its continuations. No grammar is applied.
   */
  scoreContinuations(
    requests: readonly ContinuationRequest[],
    settings?: ScoreSettings,
  ): Promise<Float64Array[]>;

  /** Values of the states before trained tokens, by a separate critic or the value head; absent where there is neither. */
  estimate?(sequences: readonly ScoreRequest[]): Promise<Float32Array[]>;

  /** One optimizer step on a mini-batch; micro-batching inside changes nothing. */
  update(batch: UpdateBatch, settings: UpdateSettings): Promise<UpdateMetrics>;

  /**
   * The gradients of the loss's components over each batch, as if it were the whole optimizer step, and their inner
   * products. Weights, optimizer and sampling stay unchanged.
   */
  decomposeGradients(
    batches: readonly UpdateBatch[],
    settings: GradientSettings,
  ): Promise<GradientDecomposition>;

  /**
   * Does the work while sampling is suspended: unfinished responses then see several updates as one change of the
   * weights. Waiting requests continue afterwards.
   */
  holdingGeneration<T>(work: () => Promise<T>): Promise<T>;

  /** Does the work with the moving average in place of the weights; absent where a policy keeps none. */
  withAverage?<T>(work: () => Promise<T>): Promise<T>;

  /** Writes weights, config and tokenizer in the Hugging Face layout, and the optimizer state. Weights are float32 by default. */
  save(folder: string, dtype?: WeightDtype): Promise<void>;
  load(folder: string): Promise<void>;
  close(): Promise<void>;
  /** Readable name of runtime and devices. */
  readonly description: string;
  /** Number of weights; 0 where the model is on a server that does not report it. */
  readonly parameterCount: number;
  /** Shape of a model that is computed here; absent where a server computes it. */
  readonly config?: DecoderConfig;
  /** An update may be submitted before the previous one has ended; they are applied in order. */
  readonly pipelined?: boolean;
  /** Present where samples may come from older weights than the trained ones: samples are then compared with scores. */
  readonly sampler?: PolicySampler;

  /** Resets the optimizer's moments and its count of steps; weights stay. */
  resetOptimizer(): Promise<void>;
  /** Averages the weights from now on, or continues the average in a folder. */
  averageWeights?(decay: number, folder?: string): Promise<void>;
  /** Writes weights, config and tokenizer for engines that generate. */
  publish?(folder: string): Promise<void>;
  /** Scores as a reference policy that shares the base, with the adapters of {@link loadReference}. */
  scoreReference?(sequences: readonly ScoreRequest[], settings?: ScoreSettings): Promise<Score[]>;
  loadReference?(folder: string): Promise<void>;
}

/** Copies of the weights for sampling, where these are not the learning weights. */
export interface PolicySampler {
  /** Versions of the weights that were sampled from, the present one last. */
  readonly published: readonly number[];
  /** Samples from the present weights, from the next request on. */
  publish(): Promise<void>;
  /** Metrics since the last call. */
  takeMetrics(): Readonly<Record<string, number>>;
}

export interface ScoreRequest {
  readonly tokenIds: Int32Array;
  /** 1 on tokens to score; position 0 is always 0. */
  readonly lossMask: Uint8Array;
  /** Tokens to score at each place instead of `tokenIds`, which the model still reads. */
  readonly targets?: Int32Array;
  /** Grammar the trained tokens were sampled under; each run of ones in the loss mask is one response. */
  readonly grammar?: string;
  /** Tokens that could have been sampled, by the position of a trained token, where that followed the state; in place of a grammar. */
  readonly allowed?: ReadonlyMap<number, Int32Array>;
}

/** Token sequences that follow one prompt. */
export interface ContinuationRequest {
  /** At least one token. */
  readonly prompt: Int32Array;
  /** At least one token each; prompt and continuation together fit the policy. */
  readonly continuations: readonly Int32Array[];
}

export interface ScoreSettings {
  /** Divides the logits, as in sampling; 1 when absent. Top-k and top-p are not applied. */
  readonly temperature: number;
  /** Also Σ π² over the vocabulary. */
  readonly squares?: boolean;
}

/** Arrays run over tokens: entry t belongs to token t predicted from tokens < t; 0 where the loss mask is 0. */
export interface Score {
  readonly logProbs: Float32Array;
  readonly entropies: Float32Array;
  /** Σ π² over the vocabulary, if requested. */
  readonly squares?: Float32Array;
  readonly values?: Float32Array;
}

export interface UpdateBatch {
  readonly sequences: readonly TrainingSequence[];
}

/** Gradients by source; the vectors themselves stay with the policy. */
export interface GradientDecomposition {
  /** Gradients of the components with a coefficient above 0, for each batch; batch after batch. */
  readonly gradients: readonly ComponentGradient[];
  /** ⟨g_i, g_j⟩ of all gradients, row-major; 0 between the task and a regularizer, which is not needed. */
  readonly products: Float64Array;
}

interface ComponentGradient {
  /** Index of the batch. */
  readonly batch: number;
  readonly component: LossComponent;
  /** This component of the loss, its coefficient included. */
  readonly loss: number;
}

/** Settings that a gradient depends on besides the batch. */
export interface GradientSettings {
  readonly loss: LossSettings;
  readonly temperature: number;
}

export interface UpdateSettings extends GradientSettings {
  readonly optimizer: OptimizerSettings;
  /** Optimizer of a separate critic, where there is one. */
  readonly critic?: OptimizerSettings;
}

/**
 * AdamW (Loshchilov & Hutter, 2019) with global norm clipping, as torch.optim.AdamW computes it, or Muon (Jordan et al.,
 * 2024) for the matrices of layers.
 */
export interface OptimizerSettings {
  readonly learningRate: number;
  readonly beta1: number;
  readonly beta2: number;
  readonly epsilon: number;
  readonly weightDecay: number;
  /** Global gradient norm above which gradients are scaled down; 0 turns it off. */
  readonly clipNorm: number;
  /** AdamW for all weights when absent. */
  readonly muon?: MuonSettings | undefined;
}

export interface MuonSettings {
  /** Learning rate of the matrices, in units of the other weights'. */
  readonly scale: number;
  readonly momentum: number;
}

/** Names as in verl: `actor/pg_loss`, `actor/ppo_kl`, `actor/grad_norm`, `critic/vf_loss`, … */
export type UpdateMetrics = { readonly [name: string]: number };
