import type { Agent } from './agents/agent.ts';
import type { EnvironmentSession } from './environment-session.ts';
import type { Episode } from './episode.ts';
import type { PlayContext } from './play.ts';
import type { GroupPlan } from './tag.ts';

/** Setting of a whole episode. */
export interface EpisodeSetting extends Omit<PlayContext, 'agent'> {
  /** Aborted when the episode is of no use any more. */
  readonly signal: AbortSignal;
}

/** Plays whole episodes by itself, in sessions that it is given. */
export interface EpisodeAgent {
  /** False for one that only looks, so that nothing caps its actions; true when absent. */
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

/** A program played an episode in a way that does not count; it costs its group. */
export class ProgramFault extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = 'ProgramFault';
  }
}
