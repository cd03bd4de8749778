import type { Agent } from './agents/agent.ts';
import type { EnvironmentSession } from './environment-session.ts';
import type { Episode } from './episode.ts';
import { type PlayContext, playEpisode } from './play.ts';
import type { GroupPlan } from './tag.ts';

/** Setting of a whole episode. */
export interface EpisodeSetting extends Omit<PlayContext, 'agent'> {
  /** Aborted when the episode is no longer needed. */
  readonly signal: AbortSignal;
}

/** Plays whole episodes by itself, in sessions that it receives. */
export interface EpisodeAgent {
  /** False for one that only observes, so its actions have no cap; true when absent. */
  readonly acts?: boolean;
  play(
    plan: GroupPlan,
    member: number,
    session: EnvironmentSession,
    setting: EpisodeSetting,
  ): Promise<Episode>;
}

/** A player: asked turn by turn, or given the session. */
export type Player = Agent | EpisodeAgent;

/** A program played an episode in an invalid way; the group is lost. */
export class ProgramFault extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = 'ProgramFault';
  }
}

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
