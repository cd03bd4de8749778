/** One training sequence as an advantage estimator sees it; arrays run over its tokens. */
export interface AdvantageSequence {
  /** 1 on sampled tokens; prompt, observations and padding are 0. */
  readonly lossMask: ArrayLike<number>;
  /** Reward of each token: a turn's reward lies at its last sampled token. */
  readonly rewards: ArrayLike<number>;
  /** Value head's estimate at the state before each token. */
  readonly values?: ArrayLike<number>;
  /** Value of the state after the last token of a truncated sequence; absent: no reward follows. */
  readonly bootstrapValue?: number;
  /** Position of each turn's last sampled token, ascending. A turn without reward is still a turn. */
  readonly turnEnds?: readonly number[];
  /** Episodes of one group started from the same state. */
  readonly groupId: number | string;
  /** Sequences cut from one episode share its id and its total reward; absent: each is its own episode. */
  readonly episodeId?: number | string;
  /** Observed state before each turn, for estimators that compare equal states. */
  readonly states?: readonly string[];
  /** Observed state after the last turn. */
  readonly finalState?: string;
  /** Success of the episode, and whether each of its turns carried out an action. */
  readonly success?: boolean;
  readonly validTurns?: readonly boolean[];
  /** Tree rollouts: the leaf that the episode ends in, and the node of each trained turn, as paths from the root (`2.0.1`). */
  readonly leaf?: string;
  readonly turnNodes?: readonly string[];
  /** Rewards and valued histories of the sequence's episode. */
  readonly vine?: VineTurns;
  /** Named parts of the episode's reward, summed over its turns. */
  readonly components?: Readonly<Record<string, number>>;
  /** Log-probability of each token when it was sampled. */
  readonly logProbs?: ArrayLike<number>;
  /** Log-probability of each token under the reference or teacher. */
  readonly referenceLogProbs?: ArrayLike<number>;
  /** Σ π² over the vocabulary at each token. */
  readonly squaredProbabilities?: ArrayLike<number>;
  /** Off-policy weight of each token; absent: 1. */
  readonly rolloutWeights?: ArrayLike<number>;
  /** Role or player that produced this sequence; absent: one agent produced all. */
  readonly agent?: string;
  /** Shared by the sequences of agents that played together; absent: each agent played alone. */
  readonly sceneId?: number | string;
}

/** An episode with Monte-Carlo values of its histories. */
export interface VineTurns {
  /** Reward of each turn of the episode. */
  readonly rewards: readonly number[];
  /** Returns of the continuations from before each turn, without the episode's own; empty: none was played. */
  readonly continuations: readonly (readonly number[])[];
  /** Positions in the episode of the turns that the sequence trains. */
  readonly trained: readonly number[];
}

export interface AdvantageSettings {
  /** Discount from token to token; from turn to turn in `gigpo` and `rebn`. */
  readonly gamma: number;
  /** λ of generalized advantage estimation from token to token. */
  readonly lambda: number;
  /** λ from the last token of a turn to the first of the next (`gae`); absent: same as `lambda`. */
  readonly turnLambda?: number;
  /** Discount from turn to turn of `bi_level_gae`. */
  readonly highLevelGamma: number;
  /** Weight of the step advantage in `gigpo`. */
  readonly stepWeight: number;
  /** Divide by the standard deviation in `gigpo` and the graph estimators; without it only means are subtracted. */
  readonly stdNormalize: boolean;
  /** Whiten over the batch (`gae`, `bi_level_gae`, `reinforce_pp`, `reinforce_pp_baseline`). */
  readonly whiten: boolean;
  /**
   * Lets the reward-to-go of `reinforce_pp` pass over observation tokens, so that masked and compacted sequences give
   * the same result. verl cuts it there: a turn never learns from the reward of a later one.
   */
  readonly acrossTurns: boolean;
  /** Values and rewards pass from one sample of an episode to the next (`gae`); each sample has its turns' rewards. */
  readonly acrossSamples: boolean;
  /** Weights of the reward components (`gdpo`). */
  readonly components: Readonly<Record<string, number>>;
  /** Takes no baseline where only the longest sequence of a group is left (`otb`). */
  readonly handleZeroTail: boolean;
  /** Weight of an agent's earlier baseline after an episode (`rae`). */
  readonly decay: number;
  /** Baselines of the agents before the batch (`rae`); absent ones are 0. */
  readonly baselines: Readonly<Record<string, number>>;
  /** Agents that are compared only within their scene (`hierarchical_grpo`). */
  readonly episodeAgents: readonly string[];
  /** Extra weight of early tokens (`iw_opd`). */
  readonly earlyWeight: number;
  /** Settings of `graph_gpo`, `g2po` and `gagpo`. */
  readonly graph: GraphSettings;
}

export interface GraphSettings {
  /** Discount from turn to turn; absent: that of the paper. */
  readonly gamma?: number;
  /** λ of `gagpo`. */
  readonly lambda: number;
  readonly stepWeight: number;
  readonly episodeWeight: number;
  /** Step returns of `graph_gpo` by the change of the distance. */
  readonly progress: boolean;
  /** Value of success in `g2po`; absent: the group's largest return. */
  readonly successValue?: number;
}

export const DEFAULT_ADVANTAGE_SETTINGS: AdvantageSettings = {
  gamma: 1,
  lambda: 1,
  highLevelGamma: 0.95,
  stepWeight: 1,
  stdNormalize: true,
  whiten: true,
  acrossTurns: true,
  acrossSamples: false,
  components: {},
  handleZeroTail: true,
  decay: 0.95,
  baselines: {},
  episodeAgents: [],
  earlyWeight: 0.5,
  graph: { lambda: 0.9, stepWeight: 1, episodeWeight: 1, progress: false },
};

/** One array per sequence, each over its tokens. */
export interface Advantages {
  readonly advantages: readonly Float64Array[];
  /** Targets of the value head. */
  readonly returns: readonly Float64Array[];
  /** Baselines of the agents after the batch (`rae`). */
  readonly baselines?: Readonly<Record<string, number>>;
  /** Weight of each token in the loss, where weights differ. */
  readonly weights?: readonly Float64Array[];
  /** The estimator's own metrics, by logged names. */
  readonly metrics?: Readonly<Record<string, number>>;
}

/** Inputs of an estimator besides masks and rewards. */
export type AdvantageRequirement =
  | 'values'
  | 'turnEnds'
  | 'states'
  | 'leaf'
  | 'vine'
  | 'finalStates'
  | 'groups'
  | 'components'
  | 'logProbs'
  | 'referenceLogProbs'
  | 'squaredProbabilities';

export interface AdvantageEstimator {
  readonly needs: readonly AdvantageRequirement[];
  /** Every token of a sequence has the same advantage. */
  readonly perSequence?: boolean;
  /** Compares the leaves of trees. */
  readonly ofTrees?: boolean;
  /** Compares success, which the environment must report. */
  readonly comparesSuccess?: boolean;
  estimate(sequences: readonly AdvantageSequence[], settings: AdvantageSettings): Advantages;
}

/** Σ of a sequence's rewards: the outcome that group estimators compare. */
export function outcome(sequence: AdvantageSequence): number {
  let sum = 0;
  for (let t = 0; t < sequence.rewards.length; t++) sum += sequence.rewards[t];
  return sum;
}

/** The same value at every sampled token, 0 elsewhere: the shape of an outcome advantage. */
export function spread(sequences: readonly AdvantageSequence[], values: ArrayLike<number>): Float64Array[] {
  return sequences.map(({ lossMask }, i) => Float64Array.from(lossMask, on => (on ? values[i] : 0)));
}
