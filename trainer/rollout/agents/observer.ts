import type { EpisodeAgent } from '../episode-agent.ts';
import { playEpisode } from '../play.ts';
import type { Agent } from './agent.ts';

const NO_ACTIONS: Agent = {
  respond: () => Promise.reject(new Error('an observer takes no turns')),
  release() {},
};

/**
 * Opens episodes and takes no action in them, so it works with any environment: their first observation is in
 * `finalState`, and they have no turns.
 */
export const observer: EpisodeAgent = {
  acts: false,
  play(plan, member, session, { described, ...setting }) {
    const tag = { ...described.tag, maxTurns: 0 };
    return playEpisode(plan, member, session, {
      ...setting,
      described: { ...described, tag },
      agent: NO_ACTIONS,
    });
  },
};

/** Sampling settings for an agent that samples nothing. */
export const NO_SAMPLING = { temperature: 0, topK: 0, topP: 1 };
