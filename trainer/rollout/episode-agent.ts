import type { Agent } from './agents/agent.ts';
import type { EnvironmentSession } from './environment-session.ts';
import type { Episode } from './episode.ts';
import type { PlayContext } from './play.ts';
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
