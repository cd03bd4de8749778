import { mean, positionsBy } from '../../statistics.ts';
import { type AdvantageEstimator, type AdvantageSequence, outcome, spread } from '../estimator.ts';
import { episodesAmong } from '../groups.ts';

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
