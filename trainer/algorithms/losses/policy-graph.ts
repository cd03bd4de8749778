import type { GraphBuilder, Tensor } from '../../tensor/graph/graph.ts';
import { SEQUENCE_LOG_RATIO_LIMIT } from './gspo.ts';
import type { LossScalarInput, LossStructure, LossTokenInput } from './inputs.ts';
import { LOG_RATIO_LIMIT } from './policy-loss.ts';
import type { PolicyLossName } from './settings.ts';

/** What a policy loss reads in the graph. All token tensors are 0 on masked tokens. */
export interface PolicyGraph {
  readonly policy: PolicyLossName;
  readonly structure: Pick<LossStructure, 'dualClip'>;
  readonly logProbs: Tensor;
  readonly token: (name: LossTokenInput) => Tensor;
  readonly scalar: (name: LossScalarInput) => Tensor;
  readonly sequenceSum: (x: Tensor) => Tensor;
}

/** Token losses before aggregation; flags are bool tensors. Masked entries are finite and mean nothing. */
export interface PolicyGraphOutput {
  readonly losses: Tensor;
  readonly logRatios?: Tensor;
  readonly clipped?: Tensor;
  readonly clippedLower?: Tensor;
}

/** Graph forms of the functions of the same names in ppo.ts, gspo.ts, cispo.ts and cross-entropy.ts. */
const GRAPHS: Readonly<Record<PolicyLossName, (g: GraphBuilder, input: PolicyGraph) => PolicyGraphOutput>> = {
  ppo: ppoGraph,
  decoupled_ppo: ppoGraph,
  gspo: gspoGraph,
  cispo: cispoGraph,
  cross_entropy: (g, { logProbs }) => ({ losses: g.neg(logProbs) }),
};

export function policyLossGraph(g: GraphBuilder, input: PolicyGraph): PolicyGraphOutput {
  return GRAPHS[input.policy](g, input);
}

function ppoGraph(g: GraphBuilder, input: PolicyGraph): PolicyGraphOutput {
  const logRatios = boundedLogRatios(g, input);
  const surrogate = clippedSurrogateGraph(g, input, g.exp(logRatios));
  if (!input.structure.dualClip) return { ...surrogate, logRatios };
  const advantages = input.token('advantages');
  const ceiling = g.neg(g.mul(advantages, input.scalar('dualClip')));
  const clippedLower = g.and(g.less(advantages, 0), g.greater(surrogate.losses, ceiling));
  const losses = g.where(clippedLower, ceiling, surrogate.losses);
  return { losses, logRatios, clipped: surrogate.clipped, clippedLower };
}

function gspoGraph(g: GraphBuilder, input: PolicyGraph): PolicyGraphOutput {
  const { logProbs } = input;
  const difference = g.sub(logProbs, input.token('oldLogProbs'));
  const mean = input.sequenceSum(g.mul(difference, input.token('meanWeights')));
  const ownGradient = g.sub(logProbs, g.stopGradient(logProbs));
  const logSequenceRatio = g.add(ownGradient, g.stopGradient(mean));
  const ratio = g.exp(g.minimum(logSequenceRatio, SEQUENCE_LOG_RATIO_LIMIT));
  const logRatios = g.clip(difference, -LOG_RATIO_LIMIT, LOG_RATIO_LIMIT);
  return { ...clippedSurrogateGraph(g, input, ratio), logRatios };
}

function cispoGraph(g: GraphBuilder, input: PolicyGraph): PolicyGraphOutput {
  const logRatios = boundedLogRatios(g, input);
  const ratio = g.stopGradient(g.exp(logRatios));
  const weight = clipRatio(g, input, ratio);
  const losses = g.neg(g.mul(g.mul(weight, input.token('advantages')), input.logProbs));
  return { losses, logRatios, clipped: g.not(g.equal(weight, ratio)) };
}

function boundedLogRatios(g: GraphBuilder, { logProbs, token }: PolicyGraph): Tensor {
  return g.clip(g.sub(logProbs, token('oldLogProbs')), -LOG_RATIO_LIMIT, LOG_RATIO_LIMIT);
}

function clipRatio(g: GraphBuilder, { scalar }: PolicyGraph, ratio: Tensor): Tensor {
  return g.minimum(g.maximum(ratio, scalar('ratioLow')), scalar('ratioHigh'));
}

/** max(−A·ρ, −A·clip(ρ)) with no gradient through the clipped branch, where the ratio is out of range. */
function clippedSurrogateGraph(
  g: GraphBuilder,
  input: PolicyGraph,
  ratio: Tensor,
): { losses: Tensor; clipped: Tensor } {
  const negated = g.neg(input.token('advantages'));
  const plain = g.mul(negated, ratio);
  const bounded = g.mul(negated, clipRatio(g, input, g.stopGradient(ratio)));
  const clipped = g.greater(bounded, plain);
  return { losses: g.where(clipped, bounded, plain), clipped };
}
