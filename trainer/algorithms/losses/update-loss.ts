import type { GraphBuilder, Shape, Tensor } from '../../tensor/graph/graph.ts';
import { crossEntropy } from './cross-entropy.ts';
import { type LossStructure, lossScalarInputs, lossTokenInputs } from './inputs.ts';
import { klLoss, reverseKlTerm } from './kl.ts';
import { tokenMetricNodes } from './metric-sums.ts';
import type { LossScalarInput, LossTokenInput, TokenMetric } from './policy-loss.ts';
import { policyLoss } from './registry.ts';
import type { LossKlEstimator } from './settings.ts';

/** Input of the value term; all token tensors are 0 on masked tokens. */
interface ValueLossInput {
  readonly values: Tensor;
  readonly returns: Tensor;
  /** Absent without clipping. */
  readonly clip?: { readonly oldValues: Tensor; readonly move: Tensor };
}

/**
 * Clipped value regression, as squares per token: max((v − R)², (clip(v, v_old ± ε) − R)²); without a clip (v − R)². Half of
 * them is the loss. Where the clip decides there is no gradient.
 *
 * Source: Schulman et al., 2017 (baselines' implementation); verl 0.6.1 `compute_value_loss`.
 */
function valueSquares(
  g: GraphBuilder,
  { values, returns, clip }: ValueLossInput,
): { readonly squares: Tensor; readonly clipped?: Tensor } {
  const error = g.sub(values, returns);
  const squares = g.mul(error, error);
  if (clip === undefined) return { squares };
  const held = g.stopGradient(values);
  const bounded = g.minimum(
    g.maximum(held, g.sub(clip.oldValues, clip.move)),
    g.add(clip.oldValues, clip.move),
  );
  const boundedError = g.sub(bounded, returns);
  const boundedSquares = g.mul(boundedError, boundedError);
  const clipped = g.greater(boundedSquares, squares);
  return { squares: g.where(clipped, boundedSquares, squares), clipped };
}

/** The loss's own inputs in a graph, by name; which exist depends on the structure. */
export interface LossGraphInputs {
  readonly tokens: ReadonlyMap<LossTokenInput, Tensor>;
  readonly scalars: ReadonlyMap<LossScalarInput, Tensor>;
}

/** Model outputs in the graph, each of the same shape as the token inputs. */
export interface ModelOutputs {
  readonly logProbs?: Tensor;
  readonly entropies?: Tensor;
  readonly values?: Tensor;
}

export interface LossGraphOptions {
  /**
   * Sum over the tokens of a sequence, given back at each of its tokens (or broadcastable to them), for losses with one
   * ratio per sequence. Default: a row is a sequence, so the sum runs over the last axis.
   */
  readonly sequenceSum?: (x: Tensor) => Tensor;
}

export interface LossGraph {
  /** The scalar to differentiate. */
  readonly loss: Tensor;
  /** Scalars by the names that `addMetrics` adds up over micro-batches and workers, and `finishMetrics` turns into logged ones. */
  readonly metrics: ReadonlyMap<string, Tensor>;
  /** Terms that add up to the policy's part of the loss, coefficients included, without an auxiliary cross-entropy. */
  readonly components: ReadonlyMap<LossComponent, Tensor>;
}

/** Parts of the policy's loss with separately measured gradients. */
export type LossComponent = (typeof LOSS_COMPONENTS)[number];
export const LOSS_COMPONENTS = ['task', 'entropy', 'kl'] as const;

/** Name of a loss input among the graph's inputs. */
export function lossInputName(name: LossTokenInput | LossScalarInput): string {
  return `loss.${name}`;
}

/** Declares the loss's inputs: `loss.<name>`, float32, token inputs in the given shape, scalars in []. */
export function declareLossInputs(g: GraphBuilder, structure: LossStructure, shape: Shape): LossGraphInputs {
  return {
    tokens: new Map(
      lossTokenInputs(structure).map(name => [name, g.input(lossInputName(name), 'float32', shape)]),
    ),
    scalars: new Map(
      lossScalarInputs(structure).map(name => [name, g.input(lossInputName(name), 'float32', [])]),
    ),
  };
}

/** The terms of a loss during its construction. */
class LossTerms {
  readonly g: GraphBuilder;
  readonly outputs: ModelOutputs;
  readonly metrics = new Map<string, Tensor>();
  readonly components = new Map<LossComponent, Tensor>();
  loss: Tensor;
  readonly #inputs: LossGraphInputs;
  readonly #mask: Tensor;

  constructor(g: GraphBuilder, outputs: ModelOutputs, inputs: LossGraphInputs) {
    this.g = g;
    this.outputs = outputs;
    this.#inputs = inputs;
    this.#mask = g.greater(this.token('lossMask'), 0.5);
    this.loss = g.constant(0);
  }

  readonly token = (name: LossTokenInput): Tensor =>
    given(this.#inputs.tokens.get(name), `token input ${name}`);
  readonly scalar = (name: LossScalarInput): Tensor =>
    given(this.#inputs.scalars.get(name), `scalar input ${name}`);

  /** A model output on trained tokens, 0 elsewhere. */
  trained(name: keyof ModelOutputs): Tensor {
    return this.g.where(this.#mask, given(this.outputs[name], `model output ${name}`), 0);
  }

  /** Sum over all tokens ÷ trained tokens of the step. */
  perToken(x: Tensor): Tensor {
    return this.g.mul(this.g.sum(x), this.scalar('inverseTokens'));
  }

  /** Share of the trained tokens where a condition holds. */
  share(condition: Tensor): Tensor {
    return this.perToken(this.g.where(this.g.and(this.#mask, condition), 1, 0));
  }

  /** Logs a metric over the trained tokens. */
  tokenMetric(name: string, metric: TokenMetric): void {
    for (const [key, node] of tokenMetricNodes(this.g, name, metric, this.#mask)) this.metrics.set(key, node);
  }

  /** Σ x · weights over all tokens. */
  weighted(x: Tensor, weights: LossTokenInput): Tensor {
    return this.g.sum(this.g.mul(x, this.token(weights)));
  }
}

/**
 * Builds the loss of an update in the tensor program. loss = policy gradient + cross-entropy + klCoefficient · KL −
 * entropyCoefficient · entropy + valueCoefficient · value; a critic only has the last. The first three are streams,
 * each with weights per token and averaged over the tokens with a weight. The weights decide whether the loss is
 * supervised learning, reinforcement learning, distillation or a mixture. Every term is a sum over tokens, with weights
 * that already contain the averages of the whole optimizer step, so the losses, gradients and metrics of micro-batches
 * add up to those of the step. Masked tokens are removed before any arithmetic; their contents, NaN included, reach
 * neither the loss nor a gradient.
 * @throws RangeError when the structure needs a missing model output or input
 */
export function buildUpdateLoss(
  g: GraphBuilder,
  outputs: ModelOutputs,
  inputs: LossGraphInputs,
  structure: LossStructure,
  options: LossGraphOptions = {},
): LossGraph {
  const terms = new LossTerms(g, outputs, inputs);
  const { sequenceSum = x => g.sum(x, [-1], true) } = options;
  if (structure.policy !== null) addPolicyTerm(terms, structure.policy, structure, sequenceSum);
  if (structure.crossEntropy) addCrossEntropyTerm(terms, structure.crossEntropy);
  if (structure.kl) addKlTerm(terms, structure.kl);
  if (structure.entropy) addEntropyTerm(terms);
  if (structure.value) addValueTerm(terms, structure.valueClip);
  return { loss: terms.loss, metrics: terms.metrics, components: terms.components };
}

function addPolicyTerm(
  terms: LossTerms,
  name: string,
  { dualClip, variant }: LossStructure,
  sequenceSum: (x: Tensor) => Tensor,
): void {
  const { g, metrics, token, scalar } = terms;
  const loss = policyLoss(name);
  const logProbs = terms.trained('logProbs');
  const input = { logProbs, token, scalar, dualClip, variant, sequenceSum };
  const policy = loss.tokenLosses(g, input);
  terms.loss = terms.weighted(policy.losses, 'policyWeights');
  terms.components.set('task', terms.loss);
  for (const [own, x] of policy.metrics ?? []) metrics.set(own, terms.weighted(x, 'policyWeights'));
  for (const [own, metric] of policy.tokenMetrics ?? []) terms.tokenMetric(own, metric);
  if (loss.kind !== 'ratio') {
    metrics.set(`${loss.name}/loss`, terms.loss);
    return;
  }
  metrics.set('actor/pg_loss', terms.loss);
  metrics.set('actor/pg_clipfrac', terms.share(given(policy.clipped, 'clip flags')));
  metrics.set(
    'actor/pg_clipfrac_lower',
    policy.clippedLower ? terms.share(policy.clippedLower) : g.constant(0),
  );
  metrics.set('actor/ppo_kl', g.neg(terms.perToken(given(policy.logRatios, 'log-ratios'))));
}

/** −log π_θ on every token with a weight, trained or observed. */
function addCrossEntropyTerm(terms: LossTerms, role: NonNullable<LossStructure['crossEntropy']>): void {
  const { g, metrics, outputs } = terms;
  const weights = terms.token('crossEntropyWeights');
  const weighed = g.not(g.equal(weights, 0));
  const logProbs = g.where(weighed, given(outputs.logProbs, 'model output logProbs'), 0);
  const { losses: surprise } = crossEntropy.tokenLosses(g, { logProbs });
  const term = terms.weighted(surprise, 'crossEntropyWeights');
  if (role === 'supervised') {
    metrics.set('sft/loss', term);
    terms.components.set('task', term);
  } else {
    metrics.set('actor/ce_loss', term);
    metrics.set('actor/ce_nll#sum', g.sum(surprise));
    metrics.set('actor/ce_nll#count', g.sum(g.where(weighed, 1, 0)));
    metrics.set('actor/ce_tokens', g.sum(g.where(weighed, 1, 0)));
  }
  terms.loss = g.add(terms.loss, term);
}

function addKlTerm(terms: LossTerms, estimator: LossKlEstimator): void {
  const { g, token, scalar } = terms;
  const logProbs = terms.trained('logProbs');
  const difference = g.sub(logProbs, token('referenceLogProbs'));
  let estimates: Tensor;
  if (estimator === 'reverse') {
    const { term, kept } = reverseKlTerm(g, { logProbs, token, scalar });
    estimates = term;
    terms.tokenMetric('actor/reverse_kl', { value: g.stopGradient(difference), by: 'mean' });
    terms.tokenMetric('actor/kl_kept_frac', { value: g.where(kept, 1, 0), by: 'mean' });
  } else {
    estimates = klLoss(g, estimator, difference);
  }
  const kl = terms.weighted(estimates, 'klWeights');
  terms.metrics.set('actor/kl_loss', kl);
  const term = g.mul(kl, terms.scalar('klCoefficient'));
  terms.components.set('kl', term);
  terms.loss = g.add(terms.loss, term);
}

function addEntropyTerm(terms: LossTerms): void {
  const { g, outputs } = terms;
  const rewarded = g.greater(terms.token('entropyMask'), 0.5);
  const entropies = g.where(rewarded, given(outputs.entropies, 'model output entropies'), 0);
  const bonus = terms.weighted(entropies, 'entropyWeights');
  terms.metrics.set('actor/entropy', g.mul(g.sum(entropies), terms.scalar('inverseEntropyTokens')));
  const term = g.mul(bonus, terms.scalar('entropyCoefficient'));
  terms.components.set('entropy', g.neg(term));
  terms.loss = g.sub(terms.loss, term);
}

function addValueTerm(terms: LossTerms, clips: boolean): void {
  const { g, metrics } = terms;
  const values = terms.trained('values');
  const clip = clips ? { oldValues: terms.token('oldValues'), move: terms.scalar('valueClip') } : undefined;
  const { squares, clipped } = valueSquares(g, { values, returns: terms.token('returns'), clip });
  const flagged = clipped ? terms.share(clipped) : g.constant(0);
  const regression = g.mul(terms.weighted(squares, 'valueWeights'), 0.5);
  metrics.set('critic/vf_loss', regression);
  metrics.set('critic/vf_clipfrac', flagged);
  metrics.set('critic/vpred_mean', terms.perToken(values));
  terms.loss = g.add(terms.loss, g.mul(regression, terms.scalar('valueCoefficient')));
}

function given<T>(value: T | undefined, what: string): T {
  if (value === undefined) throw new RangeError(`this loss structure needs ${what}, which was not given`);
  return value;
}
