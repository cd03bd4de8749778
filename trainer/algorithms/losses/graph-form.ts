import type { GraphBuilder, Shape, Tensor } from '../../tensor/graph/graph.ts';
import {
  type LossScalarInput,
  type LossStructure,
  type LossTokenInput,
  lossScalarInputs,
  lossTokenInputs,
} from './inputs.ts';
import { klGraph } from './kl-graph.ts';
import { policyLossGraph } from './policy-graph.ts';

/** The loss's own inputs in a graph, by name; which exist depends on the structure. */
export interface LossGraphInputs {
  readonly tokens: ReadonlyMap<LossTokenInput, Tensor>;
  readonly scalars: ReadonlyMap<LossScalarInput, Tensor>;
}

/** What the model computes in the graph, each of the same shape as the token inputs. */
export interface ModelOutputs {
  readonly logProbs?: Tensor;
  readonly entropies?: Tensor;
  readonly values?: Tensor;
}

export interface LossGraphOptions {
  /**
   * Sum over the tokens of a sequence, given back at each of its tokens (or broadcastable to them). Only gspo
   * asks. Default: a row is a sequence, so the sum runs over the last axis.
   */
  readonly sequenceSum?: (x: Tensor) => Tensor;
}

export interface LossGraph {
  /** The scalar to differentiate. */
  readonly loss: Tensor;
  /** Scalars by their logged names; summed over micro-batches and workers they are the step's metrics. */
  readonly metrics: ReadonlyMap<string, Tensor>;
}

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

/**
 * Builds the loss of an update in the tensor program: the graph form of {@link file://./oracle.ts}.
 *
 * loss = policy − entropyCoefficient · entropy + klCoefficient · KL + valueCoefficient · value, of which a critic has the last
 *
 * Everything is a sum over tokens with weights that already hold the averages of the whole optimiser step, so
 * the losses, gradients and metrics of micro-batches add up to those of the step. Masked tokens are selected away
 * before any arithmetic; what they hold, NaN included, reaches neither the loss nor a gradient.
 *
 * @throws RangeError when the structure needs a model output or input that is not given
 */
export function buildPolicyLoss(
  g: GraphBuilder,
  outputs: ModelOutputs,
  inputs: LossGraphInputs,
  structure: LossStructure,
  options: LossGraphOptions = {},
): LossGraph {
  const token = (name: LossTokenInput) => given(inputs.tokens.get(name), `token input ${name}`);
  const scalar = (name: LossScalarInput) => given(inputs.scalars.get(name), `scalar input ${name}`);
  const mask = g.greater(token('mask'), 0.5);
  const select = (x: Tensor) => g.where(mask, x, 0);
  const total = (x: Tensor) => g.sum(x);
  const perToken = (x: Tensor) => g.mul(total(x), scalar('inverseTokens'));
  const count = (condition: Tensor) => perToken(g.where(g.and(mask, condition), 1, 0));
  const metrics = new Map<string, Tensor>();
  const logProbs = () => select(given(outputs.logProbs, 'model output logProbs'));
  let loss = g.constant(0);
  if (structure.policy !== null) {
    const policy = policyLossGraph(g, {
      policy: structure.policy,
      structure,
      logProbs: logProbs(),
      token,
      scalar,
      sequenceSum: options.sequenceSum ?? (x => g.sum(x, [-1], true)),
    });
    loss = total(g.mul(policy.losses, token('policyWeights')));
    if (structure.policy === 'cross_entropy') {
      metrics.set('sft/loss', loss);
    } else {
      metrics.set('actor/pg_loss', loss);
      metrics.set('actor/pg_clipfrac', count(given(policy.clipped, 'clip flags')));
      metrics.set(
        'actor/pg_clipfrac_lower',
        policy.clippedLower ? count(policy.clippedLower) : g.constant(0),
      );
      metrics.set('actor/ppo_kl', g.neg(perToken(given(policy.logRatios, 'log-ratios'))));
    }
  }
  if (structure.kl) {
    const difference = g.sub(logProbs(), token('referenceLogProbs'));
    const kl = total(g.mul(klGraph(g, structure.kl, difference), token('klWeights')));
    metrics.set('actor/kl_loss', kl);
    loss = g.add(loss, g.mul(kl, scalar('klCoefficient')));
  }
  if (structure.entropy) {
    const rewarded = g.greater(token('entropyMask'), 0.5);
    const entropies = g.where(rewarded, given(outputs.entropies, 'model output entropies'), 0);
    const bonus = total(g.mul(entropies, token('entropyWeights')));
    metrics.set('actor/entropy', g.mul(total(entropies), scalar('inverseEntropyTokens')));
    loss = g.sub(loss, g.mul(bonus, scalar('entropyCoefficient')));
  }
  if (structure.value) {
    const values = select(given(outputs.values, 'model output values'));
    const error = g.sub(values, token('returns'));
    let squares = g.mul(error, error);
    let clipped = g.constant(0);
    if (structure.valueClip) {
      const old = token('oldValues');
      const move = scalar('valueClip');
      const held = g.stopGradient(values);
      const bounded = g.minimum(g.maximum(held, g.sub(old, move)), g.add(old, move));
      const boundedError = g.sub(bounded, token('returns'));
      const boundedSquares = g.mul(boundedError, boundedError);
      const flags = g.greater(boundedSquares, squares);
      squares = g.where(flags, boundedSquares, squares);
      clipped = count(flags);
    }
    const regression = g.mul(total(g.mul(squares, token('valueWeights'))), 0.5);
    metrics.set('critic/vf_loss', regression);
    metrics.set('critic/vf_clipfrac', clipped);
    metrics.set('critic/vpred_mean', perToken(values));
    loss = g.add(loss, g.mul(regression, scalar('valueCoefficient')));
  }
  return { loss, metrics };
}

function given<T>(value: T | undefined, what: string): T {
  if (value === undefined) throw new RangeError(`this loss structure needs ${what}, which was not given`);
  return value;
}
