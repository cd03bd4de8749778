import Type, { type Static } from 'typebox';
import { closed } from '../../../shared/schema/type.ts';
import { DEFAULT_ADVANTAGE_SETTINGS as ADVANTAGE } from '../../algorithms/advantages/estimator.ts';
import { ADVANTAGES } from '../../algorithms/advantages/registry.ts';
import { FILTER_STRATEGIES } from '../../algorithms/filters/registry.ts';
import {
  DEFAULT_FILTER_SETTINGS as FILTER,
  FILTER_FILLS,
  FILTER_LOSS_SCALINGS,
  FILTER_SCORES,
} from '../../algorithms/filters/settings.ts';
import { FILTER_MASSES, FILTER_ORDERS } from '../../algorithms/filters/strategy.ts';
import { POLICY_LOSSES } from '../../algorithms/losses/registry.ts';
import {
  AGGREGATIONS,
  ANCHORS,
  DIVERGENCES,
  KL_ESTIMATORS,
  DEFAULT_LOSS_SETTINGS as LOSS,
  LOSS_KL_ESTIMATORS,
  OFF_POLICY_KINDS,
} from '../../algorithms/losses/settings.ts';
import { REWARD_GROUPINGS, REWARD_METHODS } from '../../algorithms/rewards/normalization.ts';
import { aboveZero, choice, count, flag, notNegative, orNull, positive, section, share } from './schema.ts';

/** Which groups are trained on, and what makes the batch whole again. */
const FilterConfig = section({
  /** Selection by score. */
  strategy: choice(FILTER_STRATEGIES, FILTER.strategy),
  /** p, k or the smallest score of the strategy. */
  value: notNegative(FILTER.value),
  /** Score of a group; entropies cost a scoring pass. */
  score: choice(FILTER_SCORES, FILTER.score),
  /** Keeps the largest or the smallest scores. */
  order: choice(FILTER_ORDERS, FILTER.order),
  /** Weights of `top_p`: the scores (`linear`), or their softmax. */
  mass: choice(FILTER_MASSES, FILTER.mass),
  /** Also keeps groups with a score of 0. */
  include_zero: flag(FILTER.includeZero),
  /** Tolerance of `top_p`. */
  selection_eps: notNegative(FILTER.epsilon),
  /** Scales advantages by the kept share, or its square root. */
  loss_scaling: choice(FILTER_LOSS_SCALINGS, 'none'),
  /** Fills the batch after the filter. */
  fill: choice(['none', ...FILTER_FILLS], 'none'),
  /** Maximum extra collections (`refill`). */
  refill_rounds: positive(4),
});

export const AlgorithmSettings = section({
  /** Advantage estimator. */
  advantage: choice(ADVANTAGES, 'gae'),
  /** Discount from token to token, or from turn to turn in estimators by turns. */
  gamma: share(ADVANTAGE.gamma),
  /** λ of `gae` between tokens of a turn. */
  lambda: share(ADVANTAGE.lambda),
  /** λ of `gae` from the end of one turn to the next; null: `lambda`. */
  turn_lambda: orNull(share(ADVANTAGE.lambda)),
  /** Discount from turn to turn in `bi_level_gae`. */
  high_level_gamma: share(ADVANTAGE.highLevelGamma),
  /** Weight of the step advantage in `gigpo`. */
  step_weight: notNegative(ADVANTAGE.stepWeight),
  /** Divides by the standard deviation (`gigpo`, graph estimators). */
  std_normalize: flag(ADVANTAGE.stdNormalize),
  /** The reward-to-go of `reinforce_pp` passes between turns. */
  across_turns: flag(ADVANTAGE.acrossTurns),
  /** Rewards and values of `gae` pass between the samples of an episode, where each turn has its own prompt. */
  across_samples: flag(ADVANTAGE.acrossSamples),
  /** Whitens the advantages of a batch. */
  whiten: flag(ADVANTAGE.whiten),
  /** Multiplies advantages by their group's relative spread. */
  soft_advantage_reweight: flag(false),
  /** Divides advantages by the relative length of their sequence. */
  advantage_length_weight: flag(false),
  /** Sets all advantages to 0, to see entropy and KL terms alone. */
  zero_task_advantage: flag(false),
  /** Excludes episodes with a truncated response from the loss. */
  overlong_mask: flag(false),
  /** Trained episodes; `successes`: rejection sampling. */
  train_on: choice(['all', 'successes'], 'all'),
  /** Share of the samples that an update learns from: those with the largest advantages, of either sign. */
  sample_share: Type.Number({ exclusiveMinimum: 0, maximum: 1, default: 1 }),
  /** Factor of rewards. */
  reward_scale: notNegative(1),
  /** Weights of `reward`, `format_penalty` and the names in `info.rewards`; null: the reward with its penalty. */
  reward_components: orNull(Type.Record(Type.String({ minLength: 1 }), Type.Number())),
  /** No baseline where only the longest episode is left (`otb`). */
  zero_tail: flag(ADVANTAGE.handleZeroTail),
  /** Decay of an agent's baseline with each episode (`rae`). */
  decay: Type.Number({ minimum: 0, exclusiveMaximum: 1, default: ADVANTAGE.decay }),
  /** Agents that are compared only within their scene (`hierarchical_grpo`). */
  episode_agents: Type.Array(Type.String({ minLength: 1 }), { default: [] }),
  /** Credit by the graph of a group's states (`graph_gpo`, `g2po`, `gagpo`). */
  graph: section({
    /** Discount from turn to turn; null: 0.1 in `graph_gpo`, 0.95 in the others. */
    gamma: orNull(share(0.1)),
    /** λ of `gagpo`. */
    lambda: share(ADVANTAGE.graph.lambda),
    /** Weight of the advantage of a step. */
    step_weight: notNegative(ADVANTAGE.graph.stepWeight),
    /** Weight of the advantage of the episode. */
    episode_weight: notNegative(ADVANTAGE.graph.episodeWeight),
    /** Step returns of `graph_gpo` from the change of the distance to the goal. */
    progress: flag(ADVANTAGE.graph.progress),
    /** Value of success in `g2po`; null: the group's largest return. */
    success_value: orNull(Type.Number()),
  }),
  /** Extra weight of the first token compared with the last (`iw_opd`). */
  early_weight: notNegative(ADVANTAGE.earlyWeight),
  /** Position of rewards: at the end of their turn, or of the episode. */
  reward_at: choice(['turns', 'last_turn'], 'turns'),
  /** Truncated episodes that add the value of their last state: by the environment, or also by the tag's caps. */
  bootstrap: choice(['none', 'environment', 'caps'], 'environment'),
  /** Normalization of returns. */
  reward_normalization: section({
    grouping: choice(REWARD_GROUPINGS, 'state'),
    method: choice(REWARD_METHODS, 'identity'),
  }),
  /** Subtracts `coefficient` · KL from the reward of every token. */
  kl_in_reward: section({ estimator: choice(KL_ESTIMATORS, 'k1'), coefficient: notNegative(0) }),
  /** Selects the groups that are trained on, and fills the batch. */
  filter: FilterConfig,
  /** Passes over an iteration's batch. */
  ppo_epochs: positive(1),
  /** Ends an iteration's updates above this `actor/ppo_kl`; null: no limit. */
  target_kl: orNull(aboveZero(0.02)),
  /** Sequences of one optimizer step. */
  mini_batch_size: positive(32),
  /** Tokens with an entropy bonus. */
  entropy_on: choice(['all', 'actions'], 'all'),
  /** Smallest difference of returns of a pair (`dpo`). */
  preference_gap: notNegative(0),
});

export const LossConfig = section({
  /** Policy loss. */
  policy: choice(POLICY_LOSSES, LOSS.policy),
  /** Denominator of the ratio: log-probabilities of sampling, or of the update's start. */
  anchor: choice(ANCHORS, LOSS.anchor),
  /** Clips ratios below 1 − this. */
  clip_low: notNegative(LOSS.clipLow),
  /** Clips ratios above 1 + this. */
  clip_high: notNegative(LOSS.clipHigh),
  /** Bound of the loss where A < 0; 0: none. */
  dual_clip: notNegative(LOSS.dualClip),
  /** Average over token losses. */
  aggregation: choice(AGGREGATIONS, LOSS.aggregation),
  /** L of the aggregation `dr_grpo`, in tokens; null: `policy.context`. */
  max_response_length: orNull(Type.Integer({ minimum: 1 })),
  /** Coefficient of the entropy bonus. */
  entropy_coefficient: notNegative(LOSS.entropyCoefficient),
  /** β of `dpo`. */
  beta: aboveZero(LOSS.beta),
  /** Coefficient of the value loss. */
  value_coefficient: notNegative(LOSS.value.coefficient),
  /** Clips the change of values; 0: off. */
  value_clip: notNegative(LOSS.value.clip),
  /** KL divergence to the reference policy. */
  kl: section({
    /** Estimator of the KL divergence to the reference. */
    estimator: choice(LOSS_KL_ESTIMATORS, LOSS.kl.estimator),
    /** Coefficient of the KL divergence; 0: none. */
    coefficient: notNegative(LOSS.kl.coefficient),
    /** Largest weight of a token, with `reverse`. */
    ratio_cap: Type.Number({ minimum: 1, default: LOSS.kl.ratioCap }),
    /** Largest fall of a token's probability, with `reverse`. */
    keep_low: share(LOSS.kl.keepLow!),
    /** Cost of a squared log-ratio, with `reverse`. */
    tau: notNegative(LOSS.kl.tau!),
    /** `group`: self-distillation from the group's best success. */
    demonstration: choice(['none', 'group'], 'none'),
  }),
  /** Cross-entropy in addition to the policy gradient. */
  cross_entropy: section({
    /** Weight of tokens that the policy sampled. */
    sampled: notNegative(0),
    /** Weight of the environment's tokens (ECHO). */
    observations: notNegative(0),
  }),
  /** DPPO: trust region by the divergence of a token's probability. */
  dppo: section({
    /** Total variation or KL of taking the sampled token or any other. */
    divergence: choice(DIVERGENCES, LOSS.dppo.divergence),
    /** Limit where A < 0; null: 0.2 for `tv`, 0.05 for `kl`. */
    low: orNull(notNegative(0)),
    /** Limit where A > 0; null: the same. */
    high: orNull(notNegative(0)),
    /** Largest ratio. */
    ratio_cap: Type.Number({ minimum: 1, default: LOSS.dppo.ratioCap }),
    /** Cost of a squared log-ratio; 0: none. */
    kl_tau: notNegative(LOSS.dppo.klTau),
  }),
  /** IPO: `threshold` of the total variation, and cost `kl_tau` of a squared log-ratio. */
  ipo: section({ threshold: share(LOSS.ipo.threshold), kl_tau: notNegative(LOSS.ipo.klTau) }),
  /** SAPO: steepness of the gate where A > 0 and where A < 0. */
  sapo: section({ tau_pos: aboveZero(LOSS.sapo.tauPos), tau_neg: aboveZero(LOSS.sapo.tauNeg) }),
  /** GMPO: limits of log-ratios. */
  gmpo: section({ low: notNegative(LOSS.gmpo.low), high: notNegative(LOSS.gmpo.high) }),
  /** Clip-Cov. */
  clip_cov: section({
    /** Share of the tokens that are clipped. */
    ratio: aboveZero(LOSS.clipCov.ratio),
    /** Smallest covariance of a chosen token. */
    low: Type.Number({ default: LOSS.clipCov.low }),
    /** Largest covariance of a chosen token. */
    high: Type.Number({ default: LOSS.clipCov.high }),
  }),
  /** KL-Cov: share of penalized tokens, and factor of the penalty. */
  kl_cov: section({ ratio: aboveZero(LOSS.klCov.ratio), coefficient: notNegative(LOSS.klCov.coefficient) }),
  /** DRO: its β, which is required. */
  dro: section({ beta: orNull(aboveZero(0.5)) }),
  /** Correction for tokens sampled with older weights. */
  off_policy: section({
    /** `auto`: `tis` in asynchronous training, else `none`. */
    kind: choice(['auto', ...OFF_POLICY_KINDS], 'auto'),
    /** Largest weight in `tis` and `sequence_tis`. */
    cap: aboveZero(2),
    /** Smallest weight in `icepop`, or geometric mean in `geometric_mask`. */
    low: notNegative(0.5),
    /** Largest weight in `icepop`, or geometric mean in `geometric_mask`. */
    high: aboveZero(2),
  }),
});

const AveragedWeights = closed({
  /** Decay with each optimizer step. */
  decay: Type.Number({ minimum: 0, exclusiveMaximum: 1, default: 0.99 }),
  /** Validations and the best checkpoint use the average. */
  validate: flag(true),
});

/** Muon, of the iterations or of the warm start. */
export const Muon = closed({
  /** Learning rate of the matrices, in units of the other weights'. */
  scale: aboveZero(3),
  /** Decay of the running mean of gradients. */
  momentum: Type.Number({ minimum: 0, exclusiveMaximum: 1, default: 0.95 }),
});

export const OptimizerConfig = section({
  /** Peak learning rate. */
  learning_rate: notNegative(1e-6),
  /** β₁ of AdamW. */
  beta1: share(0.9),
  /** β₂ of AdamW. */
  beta2: share(0.999),
  /** ε of AdamW. */
  epsilon: aboveZero(1e-8),
  /** Weight decay of AdamW. */
  weight_decay: notNegative(0.01),
  /** Largest global gradient norm; 0: no limit. */
  clip_norm: notNegative(1),
  /** Muon for the matrices of layers; null: AdamW, as for all other weights and for adapters. */
  muon: orNull(Muon),
  /** Iterations of linear warm-up. */
  warmup_iterations: count(0),
  /** Schedule of the learning rate after the warm-up. */
  decay: choice(['constant', 'linear', 'cosine'], 'constant'),
  /** Final learning rate, as a share of the peak. */
  final_share: share(0.1),
  /** Keeps an exponential moving average of the policy's weights; null: none. */
  ema: orNull(AveragedWeights),
});

/** The course of one coefficient over the iterations, in place of its setting. */
export const CoefficientSchedule = closed({
  /** Form of the change; `steps` takes the last of `values` that has begun. */
  kind: choice(['linear', 'cosine', 'steps'], 'linear'),
  /** Value before `begin`. */
  from: Type.Number({ minimum: 0, default: 0 }),
  /** Value after `end`. */
  to: Type.Number({ minimum: 0, default: 0 }),
  /** First iteration of the change, counted from 1. */
  begin: positive(1),
  /** Last iteration of the change; null: the last of the run. */
  end: orNull(Type.Integer({ minimum: 1 })),
  /** For `steps`: values with their first iterations. */
  values: Type.Array(closed({ from_step: positive(1), value: Type.Number({ minimum: 0 }) }), {
    default: [],
  }),
});
export type CoefficientSchedule = Static<typeof CoefficientSchedule>;

/** Coefficients of the loss that change as the run continues; null: as their settings say. */
export const SchedulesSettings = section({
  /** Schedule of `loss.entropy_coefficient`. */
  entropy_coefficient: orNull(CoefficientSchedule),
  /** Schedule of `loss.kl.coefficient`. */
  kl_coefficient: orNull(CoefficientSchedule),
  /** Schedule of `algorithm.kl_in_reward.coefficient`. */
  kl_in_reward_coefficient: orNull(CoefficientSchedule),
  /** Schedule of `loss.clip_low`. */
  clip_low: orNull(CoefficientSchedule),
  /** Schedule of `loss.clip_high`. */
  clip_high: orNull(CoefficientSchedule),
});
