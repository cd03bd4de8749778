import { mean, positionsBy } from '../statistics.ts';
import { countOnes } from '../training-sequence.ts';
import { type AdvantageEstimator, type AdvantageSequence, outcome, spread } from './estimator.ts';
import { compared, episodeKey, episodesAmong, groupEstimator, groupOutcomes, STD_FLOOR } from './groups.ts';
import { whitenMasked } from './scaling.ts';

/**
 * Group relative policy optimization: A = (R − mean) / (std + 1e-6) over the group, the same for every sampled
 * token. Unbiased std; each episode counts once; a group of one has mean 0 and std 1.
 *
 * Source: Shao et al., 2024 (DeepSeekMath); RAGEN V2 `compute_grpo_outcome_advantage`.
 */
export const grpo = groupEstimator(groups => groups.map(group => compared(group, true)));

/**
 * GRPO without its two biases: A = R − mean over the group, not divided by the std. The other half is the loss:
 * aggregate with `dr_grpo`, Σ / (B·L), so that long answers are not favored.
 *
 * Source: Liu et al., 2025 (Understanding R1-Zero-Like Training).
 */
export const drGrpo = groupEstimator(groups => groups.map(group => compared(group, false)));

/**
 * REINFORCE leave-one-out: the baseline is the mean of the group's other episodes, A = n/(n − 1)·(R − mean). A
 * group of one keeps its reward.
 *
 * Source: Ahmadian et al., 2024; verl 0.6.1 `compute_rloo_outcome_advantage`.
 */
export const rloo = groupEstimator(groups =>
  groups.map(({ score, mean, episodes: n }) => (n === 1 ? score : (n / (n - 1)) * (score - mean))),
);

/**
 * Maximum-likelihood reinforcement learning: A = (R − μ) / μ over the group; hard groups weigh more, as in the gradient
 * of log success. A group that never succeeds (μ = 0) has advantage 0. Needs rewards ≥ 0: a negative mean would flip
 * the sign of every advantage, so it is rejected. Source: Maximum Likelihood Reinforcement Learning (MaxRL), 2026.
 * @throws RangeError for a negative episode reward
 */
export const maxrl = groupEstimator((groups, sequences) =>
  groups.map(({ score, members }, i) => {
    if (score < 0) {
      throw new RangeError(
        `maxrl needs rewards ≥ 0, but an episode of group ${sequences[i].groupId} has ${score}: set the format penalty and step penalties to 0, or choose grpo`,
      );
    }
    const center = mean(members.map(member => groups[member].score));
    return center === 0 ? 0 : (score - center) / center;
  }),
);

/**
 * On-policy RL with the optimal baseline: A = R − Σ L·R / Σ L over the group, L the sampled tokens of an episode. A
 * group of one keeps its reward.
 *
 * Source: Hao et al., 2025 (OPO); verl 0.6.1 `compute_opo_outcome_advantage`.
 */
export const opo = groupEstimator((groups, sequences) => {
  const lengths = episodeLengths(sequences);
  return groups.map(({ score, members }) => {
    if (members.length === 1) return score;
    let weighted = 0;
    let total = 0;
    for (const member of members) {
      weighted += lengths[member] * groups[member].score;
      total += lengths[member];
    }
    return total === 0 ? 0 : score - weighted / total;
  });
});

/** Sampled tokens of each sequence's whole episode. */
function episodeLengths(sequences: readonly AdvantageSequence[]): number[] {
  const totals = new Map<string, number>();
  sequences.forEach((sequence, i) => {
    const key = episodeKey(sequence, i);
    totals.set(key, (totals.get(key) ?? 0) + countOnes(sequence.lossMask));
  });
  return sequences.map((sequence, i) => totals.get(episodeKey(sequence, i))!);
}

/**
 * Only the best of the group has an advantage: R_max − R_second, divided by (std + 1e-6) with `stdNormalize`; a tie of
 * the best gives 0 to all. k is the size of the group. Source: arXiv 2503.19595; verl
 * `compute_grpo_passk_outcome_advantage`.
 */
export const passAtK = groupEstimator((groups, sequences, { stdNormalize }) =>
  groups.map(({ score, std, members }, i) => {
    if (members.length < 2) {
      throw new RangeError(
        `pass_at_k needs at least 2 episodes in a group, but group ${sequences[i].groupId} has ${members.length}`,
      );
    }
    const others = members.map(position => groups[position].score).toSorted((a, b) => b - a);
    if (score < others[0]) return 0;
    return (others[0] - others[1]) / (stdNormalize ? std + STD_FLOOR : 1);
  }),
);

/**
 * REINFORCE++ with a group baseline: R − mean of the group at every sampled token, then whitened over the batch.
 *
 * Source: Hu, 2025; verl 0.6.1 `compute_reinforce_plus_plus_baseline_outcome_advantage`.
 */
export const reinforcePpBaseline: AdvantageEstimator = {
  needs: ['groups'],
  perSequence: true,
  estimate(sequences, settings) {
    const values = groupOutcomes(sequences).map(group => compared(group, false));
    const advantages = whitenMasked(spread(sequences, values), sequences, settings);
    return { advantages, returns: advantages };
  },
};

/**
 * Group reward-decoupled normalization: each reward component is compared within the group separately, A_k = (R_k −
 * mean)/(std + 1e-6), so a component with a large spread does not dominate; then Σ w_k·A_k, whitened over the sampled
 * tokens of the batch. `stdNormalize: false` leaves out the division. A group of one has mean 0 and std 1. Source:
 * arXiv 2601.05242; verl `compute_gdpo_outcome_advantage`.
 */
export const gdpo: AdvantageEstimator = {
  needs: ['groups', 'components'],
  perSequence: true,
  estimate(sequences, { components, stdNormalize, whiten }) {
    const keys = Object.keys(components);
    if (keys.length === 0) {
      throw new RangeError(
        'gdpo needs the names of the reward components: set algorithm.reward_components, e.g. {reward: 1, format_penalty: 1}',
      );
    }
    const values = new Float64Array(sequences.length);
    const metrics: Record<string, number> = {};
    for (const key of keys) {
      const rewards = sequences.map((sequence, i) => componentOf(sequence.components!, key, i));
      const groups = groupOutcomes(sequences, rewards);
      groups.forEach((group, i) => {
        values[i] += components[key] * compared(group, stdNormalize);
      });
      metrics[`critic/component_std/${key}`] = mean(
        groups.map(({ std, episodes }) => (episodes > 1 ? std : 0)),
      );
      metrics[`critic/component_zero_std_frac/${key}`] = mean(
        groups.map(({ std, episodes }) => (episodes > 1 && std === 0 ? 1 : 0)),
      );
    }
    const advantages = whitenMasked(spread(sequences, values), sequences, { whiten });
    return { advantages, returns: advantages, metrics };
  },
};

function componentOf(components: Readonly<Record<string, number>>, key: string, index: number): number {
  if (Object.hasOwn(components, key)) return components[key];
  throw new RangeError(
    `sequence ${index} has no reward component "${key}"; it has ${Object.keys(components).join(', ') || 'none'}`,
  );
}

/**
 * R − mean of the peers, for scenes in which several agents play: those that `episodeAgents` names are compared with the same agent in
 * the same scene (solvers of one problem), all others with the same agent in the whole group (proposers of problems). A sequence
 * without peers has 0.
 *
 * Source: prime-rl `hierarchical_grpo`. A name that no sequence has would silently compare over the group there; it is an error here.
 */
export const hierarchicalGrpo: AdvantageEstimator = {
  needs: ['groups'],
  perSequence: true,
  estimate(sequences, { episodeAgents }) {
    const known = new Set(sequences.map(agentOf));
    const unknown = episodeAgents.filter(name => !known.has(name));
    if (sequences.length > 0 && unknown.length > 0) {
      throw new RangeError(
        `algorithm.episode_agents names ${unknown.join(', ')}, but the agents are ${[...known].join(', ')}`,
      );
    }
    const values = new Float64Array(sequences.length);
    const peers = positionsBy(sequences, (sequence, i) => {
      const agent = agentOf(sequence);
      const scene = episodeAgents.includes(agent) ? (sequence.sceneId ?? sequence.episodeId ?? i) : null;
      return JSON.stringify([sequence.groupId, agent, scene]);
    });
    for (const members of peers.values()) {
      // Sequences cut from one episode count once.
      const center = mean(episodesAmong(sequences, members).map(([first]) => outcome(sequences[first])));
      for (const position of members) values[position] = outcome(sequences[position]) - center;
    }
    return { advantages: spread(sequences, values), returns: spread(sequences, values) };
  },
};

function agentOf({ agent = 'policy' }: AdvantageSequence): string {
  return agent;
}

/** The agent of sequences that name none. */
const ONLY_AGENT = 'policy';

/**
 * Role-conditioned advantage estimation, for self-play: A = R − b with a running baseline b for each agent (role or player), and after
 * each episode b ← decay·b + (1 − decay)·R. Baselines start at 0, depend on the order of the episodes and live on from batch to
 * batch: `settings.baselines` has those before, the result those after.
 *
 * Source: arXiv 2506.24119 (SPIRAL); prime-rl `rae`, which loses them at a restart.
 */
export const rae: AdvantageEstimator = {
  needs: [],
  perSequence: true,
  estimate(sequences, { decay, baselines: before }) {
    const baselines = new Map(Object.entries(before));
    const values: number[] = [];
    const known = new Map<string | number, number>();
    for (const sequence of sequences) {
      const agent = sequence.agent ?? ONLY_AGENT;
      const reward = outcome(sequence);
      const seen = sequence.episodeId === undefined ? undefined : known.get(sequence.episodeId);
      const baseline = seen ?? baselines.get(agent) ?? 0;
      values.push(reward - baseline);
      if (seen !== undefined) continue;
      if (sequence.episodeId !== undefined) known.set(sequence.episodeId, baseline);
      baselines.set(agent, decay * baseline + (1 - decay) * reward);
    }
    const advantages = spread(sequences, values);
    const after = Object.fromEntries(baselines);
    const metrics = Object.fromEntries(
      Object.entries(after).map(([agent, value]) => [`critic/baseline/${agent}`, value]),
    );
    return { advantages, returns: advantages, baselines: after, metrics };
  },
};
