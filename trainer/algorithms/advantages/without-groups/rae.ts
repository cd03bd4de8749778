import { type AdvantageEstimator, outcome, spread } from '../estimator.ts';

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
