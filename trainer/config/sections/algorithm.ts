import Type from 'typebox';
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
import {
  aboveZero,
  choice,
  count,
  flag,
  notNegative,
  orNull,
  positive,
  section,
  share,
  strict,
} from './schema.ts';

/** Which groups are trained on, and what makes the batch whole again. */
const FilterConfig = Type.Object(
  {
    strategy: choice(FILTER_STRATEGIES, FILTER.strategy),
    value: notNegative(FILTER.value),
    /** The entropy scores cost a separate scoring pass. */
    score: choice(FILTER_SCORES, FILTER.score),
    order: choice(FILTER_ORDERS, FILTER.order),
    mass: choice(FILTER_MASSES, FILTER.mass),
    include_zero: flag(FILTER.includeZero),
    /** Tolerance of `top_p`: the kept groups may fall this far short of p times the sum, so that rounding does not demand one more. */
    selection_eps: notNegative(FILTER.epsilon),
    loss_scaling: choice(FILTER_LOSS_SCALINGS, 'none'),
    /** Fills the batch up again; `none` trains on the groups that are left. */
    fill: choice(['none', ...FILTER_FILLS], 'none'),
    /** Further collections of an iteration at most, where `fill` is `refill`. */
    refill_rounds: positive(4),
  },
  section,
);

export const AlgorithmSettings = Type.Object(
  {
    advantage: choice(ADVANTAGES, 'gae'),
    gamma: share(ADVANTAGE.gamma),
    /** λ between tokens of a turn, and λ from the end of one turn to the next (`gae`); null: the same. */
    lambda: share(ADVANTAGE.lambda),
    turn_lambda: orNull(share(ADVANTAGE.lambda)),
    high_level_gamma: share(ADVANTAGE.highLevelGamma),
    /** Weight of the step advantage in `gigpo`. */
    step_weight: notNegative(ADVANTAGE.stepWeight),
    /** Divide by the standard deviation in `gigpo` and the graph estimators. */
    std_normalize: flag(ADVANTAGE.stdNormalize),
    /** Let the reward-to-go of `reinforce_pp` pass from turn to turn. */
    across_turns: flag(ADVANTAGE.acrossTurns),
    whiten: flag(ADVANTAGE.whiten),
    /** Advantages × the spread of the group, relative to the batch's largest. */
    soft_advantage_reweight: flag(false),
    /** Advantages ÷ the relative length of the sequence. */
    advantage_length_weight: flag(false),
    /** All advantages 0: what entropy and KL do alone. */
    zero_task_advantage: flag(false),
    /** Episodes with a response that was cut off have no part in the loss. */
    overlong_mask: flag(false),
    /** Episodes that are trained on, of those that the filter keeps: `successes` leaves out all others (rejection sampling). */
    train_on: choice(['all', 'successes'], 'all'),
    reward_scale: notNegative(1),
    /**
     * Weights of named rewards, which then replace the plain reward: `reward` (the environment's), `format_penalty`, and
     * what environments return in `info.rewards`; null: the reward with its penalty.
     */
    reward_components: orNull(Type.Record(Type.String({ minLength: 1 }), Type.Number())),
    /** Take no baseline where only the longest episode of a group is left (`otb`). */
    zero_tail: flag(ADVANTAGE.handleZeroTail),
    /** Share of an agent's baseline that an episode leaves (`rae`). */
    decay: Type.Number({ minimum: 0, exclusiveMaximum: 1, default: ADVANTAGE.decay }),
    /** Agents that are compared within their scene alone (`hierarchical_grpo`). */
    episode_agents: Type.Array(Type.String({ minLength: 1 }), { default: [] }),
    /** Credit by the graph of a group's states (`graph_gpo`, `g2po`, `gagpo`). */
    graph: Type.Object(
      {
        /** Discount from turn to turn; null: 0.1 in `graph_gpo`, 0.95 in the others. */
        gamma: orNull(share(0.1)),
        /** λ of `gagpo`. */
        lambda: share(ADVANTAGE.graph.lambda),
        step_weight: notNegative(ADVANTAGE.graph.stepWeight),
        episode_weight: notNegative(ADVANTAGE.graph.episodeWeight),
        /** Step returns of `graph_gpo` by the change of the distance. */
        progress: flag(ADVANTAGE.graph.progress),
        /** Value of success in `g2po`; null: the group's largest return. */
        success_value: orNull(Type.Number()),
      },
      section,
    ),
    /** Extra weight of the first token compared with the last (`iw_opd`). */
    early_weight: notNegative(ADVANTAGE.earlyWeight),
    /** Position of a turn's reward: its last token, or with all others the last token of the episode. */
    reward_at: choice(['turns', 'last_turn'], 'turns'),
    /**
     * Truncated episodes with advantages that include the value of their last state, where values are estimated: those
     * that the environment says it truncated, or those that the tag's caps cut, too (`caps`).
     */
    bootstrap: choice(['none', 'environment', 'caps'], 'environment'),
    reward_normalization: Type.Object(
      { grouping: choice(REWARD_GROUPINGS, 'state'), method: choice(REWARD_METHODS, 'identity') },
      section,
    ),
    /** r − coefficient · KL at every token; the other way is `loss.kl`. */
    kl_in_reward: Type.Object(
      { estimator: choice(KL_ESTIMATORS, 'k1'), coefficient: notNegative(0) },
      section,
    ),
    filter: FilterConfig,
    ppo_epochs: positive(1),
    /** An iteration takes no further optimizer step once `actor/ppo_kl` of one is above this; null: no limit. */
    target_kl: orNull(aboveZero(0.02)),
    /** Sequences of one optimizer step: episodes, or turns where the context mode cuts them. */
    mini_batch_size: positive(32),
    entropy_on: choice(['all', 'actions'], 'all'),
    /** With `loss.policy: dpo`: the best and the worst episode of a group are a pair where their returns differ by more. */
    preference_gap: notNegative(0),
  },
  section,
);

export const LossConfig = Type.Object(
  {
    policy: choice(POLICY_LOSSES, LOSS.policy),
    /** Denominator of the ratio: the tokens' log-probabilities when they were sampled (`rollout`) or when the update begins (`old`). */
    anchor: choice(ANCHORS, LOSS.anchor),
    clip_low: notNegative(LOSS.clipLow),
    clip_high: notNegative(LOSS.clipHigh),
    dual_clip: notNegative(LOSS.dualClip),
    aggregation: choice(AGGREGATIONS, LOSS.aggregation),
    /** L of the aggregation `dr_grpo`, in tokens; null: `policy.context`. */
    max_response_length: orNull(Type.Integer({ minimum: 1 })),
    entropy_coefficient: notNegative(LOSS.entropyCoefficient),
    /** β of `dpo`: how strongly the policy is kept near its reference. */
    beta: aboveZero(LOSS.beta),
    value_coefficient: notNegative(LOSS.value.coefficient),
    value_clip: notNegative(LOSS.value.clip),
    kl: Type.Object(
      {
        estimator: choice(LOSS_KL_ESTIMATORS, LOSS.kl.estimator),
        coefficient: notNegative(LOSS.kl.coefficient),
        /** For `reverse`: largest weight of a token, limit on the fall of its probability, and cost of a squared log-ratio. */
        ratio_cap: Type.Number({ minimum: 1, default: LOSS.kl.ratioCap }),
        keep_low: share(LOSS.kl.keepLow!),
        tau: notNegative(LOSS.kl.tau!),
        /** `group`: the reference is the policy itself, shown the best successful episode of the group first (self-distillation). */
        demonstration: choice(['none', 'group'], 'none'),
      },
      section,
    ),
    /** Cross-entropy next to the policy gradient, averaged over its own tokens. */
    cross_entropy: Type.Object(
      {
        /** Weight of tokens that the policy sampled. */
        sampled: notNegative(0),
        /** Weight of tokens that the environment wrote after the first response (ECHO). */
        observations: notNegative(0),
      },
      section,
    ),
    dppo: Type.Object(
      {
        divergence: choice(DIVERGENCES, LOSS.dppo.divergence),
        /** Limits where A < 0 and where A > 0; null: 0.2 for `tv`, 0.05 for `kl`. */
        low: orNull(notNegative(0)),
        high: orNull(notNegative(0)),
        ratio_cap: Type.Number({ minimum: 1, default: LOSS.dppo.ratioCap }),
        /** Cost of a squared log-ratio; 0: none. */
        kl_tau: notNegative(LOSS.dppo.klTau),
      },
      section,
    ),
    ipo: Type.Object({ threshold: share(LOSS.ipo.threshold), kl_tau: notNegative(LOSS.ipo.klTau) }, section),
    /** Steepness of the gate where A > 0 and elsewhere. */
    sapo: Type.Object(
      { tau_pos: aboveZero(LOSS.sapo.tauPos), tau_neg: aboveZero(LOSS.sapo.tauNeg) },
      section,
    ),
    /** Limits of log-ratios. */
    gmpo: Type.Object({ low: notNegative(LOSS.gmpo.low), high: notNegative(LOSS.gmpo.high) }, section),
    /** Share of the tokens that lose their loss, and the covariances between which they are chosen. */
    clip_cov: Type.Object(
      {
        ratio: aboveZero(LOSS.clipCov.ratio),
        low: Type.Number({ default: LOSS.clipCov.low }),
        high: Type.Number({ default: LOSS.clipCov.high }),
      },
      section,
    ),
    /** Share of the tokens that are penalized, and the factor of the penalty. */
    kl_cov: Type.Object(
      { ratio: aboveZero(LOSS.klCov.ratio), coefficient: notNegative(LOSS.klCov.coefficient) },
      section,
    ),
    /** β of `dro`, which it needs. */
    dro: Type.Object({ beta: orNull(aboveZero(0.5)) }, section),
    /** Correction for tokens of older weights. `auto`: `tis` where collecting runs ahead of training, else `none`. */
    off_policy: Type.Object(
      {
        kind: choice(['auto', ...OFF_POLICY_KINDS], 'auto'),
        /** Largest weight under `tis` and `sequence_tis`. */
        cap: aboveZero(2),
        /** Range of weights under `icepop`, of their geometric mean under `geometric_mask`. */
        low: notNegative(0.5),
        high: aboveZero(2),
      },
      section,
    ),
  },
  section,
);

const AveragedWeights = Type.Object(
  {
    /** Share of the average that an optimizer step leaves: 0.99 averages about the last 100 steps. */
    decay: Type.Number({ minimum: 0, exclusiveMaximum: 1, default: 0.99 }),
    /** Validations, and with them the best checkpoint, take the average; false: the weights that learn. */
    validate: flag(true),
  },
  strict,
);

export const OptimizerConfig = Type.Object(
  {
    learning_rate: notNegative(1e-6),
    beta1: share(0.9),
    beta2: share(0.999),
    epsilon: aboveZero(1e-8),
    weight_decay: notNegative(0.01),
    clip_norm: notNegative(1),
    warmup_iterations: count(0),
    decay: choice(['constant', 'linear', 'cosine'], 'constant'),
    final_share: share(0.1),
    /** Exponential moving average of the policy's weights, kept next to them; null: none. */
    ema: orNull(AveragedWeights),
  },
  section,
);
