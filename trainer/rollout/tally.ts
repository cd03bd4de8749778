import { atEnd } from '../../shared/closing.ts';
import type { Agent } from './agents/agent.ts';

/** Costs of a collection, including those of lost episodes and groups. */
export class PlayTally {
  /** Milliseconds spent waiting for agents, and for environments. */
  agentMs = 0;
  environmentMs = 0;
  /** Actions that servers carried out: of trunks, branches, replayed prefixes and estimates, without recovery. */
  envSteps = 0;
  sampledTokens = 0;
  /** Turns with a prompt that shows only part of the observation, because the context has no room for more. */
  cutObservations = 0;
  /** Tokens of earlier turns that were read again for a branch. */
  prefillTokens = 0;
  /** Part of `envSteps`: actions of earlier episodes that were carried out again. */
  replayedSteps = 0;
  /** Actions carried out again because a session was lost; not in `envSteps`. */
  recoverySteps = 0;
  /** Leaves of trees, opened branches, and the sum of the turns after which they were opened. */
  leaves = 0;
  branches = 0;
  branchTurns = 0;
  /** Parts of `envSteps` and `sampledTokens`: continuations that only value a history. */
  cloneSteps = 0;
  cloneTokens = 0;
  /** Leaves and continuations that got no reward. */
  lostLeaves = 0;
  /** Episodes that had to continue in a new session, at the same server or another. */
  movedEpisodes = 0;
  /** Most sessions that one group had open at once. */
  openSessionsMax = 0;
}

/** The used budget under its logged names; that of branches only if there were any. */
export function budgetMetrics(tally: PlayTally): Record<string, number> {
  const { branches, leaves } = tally;
  const hasBranches = branches > 0 || leaves > 0 || tally.replayedSteps > 0;
  return {
    'branch/env_steps': tally.envSteps,
    'branch/sampled_tokens': tally.sampledTokens,
    'branch/recovery_steps': tally.recoverySteps,
    ...(hasBranches
      ? {
          'branch/prefill_tokens': tally.prefillTokens,
          'branch/replayed_steps': tally.replayedSteps,
          'branch/leaves': leaves,
          'branch/branches': branches,
          'branch/branch_turn_mean': branches === 0 ? 0 : tally.branchTurns / branches,
          'branch/clone_steps': tally.cloneSteps,
          'branch/clone_tokens': tally.cloneTokens,
          'branch/lost_leaves': tally.lostLeaves,
          'branch/open_sessions_max': tally.openSessionsMax,
        }
      : {}),
  };
}

/** Measures the share of time in which something is in progress; overlapping intervals count once. */
export class IntervalMeter {
  readonly #now: () => number;
  #open = 0;
  #since = 0;
  #busy = 0;
  #from: number;

  /** @param now a monotonic clock, in any unit */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
    this.#from = now();
  }

  begin(): void {
    if (this.#open++ === 0) this.#since = this.#now();
  }

  end(): void {
    if (--this.#open === 0) this.#busy += this.#now() - this.#since;
  }

  async during<T>(work: () => Promise<T>): Promise<T> {
    this.begin();
    using _busy = atEnd(() => this.end());
    return await work();
  }

  /** Share of the time since the last call in which anything was in progress; starts the next interval. */
  takeShare(): number {
    const now = this.#now();
    const running = this.#open > 0 ? now - this.#since : 0;
    const share = now > this.#from ? (this.#busy + running) / (now - this.#from) : 0;
    this.#busy = 0;
    this.#since = now;
    this.#from = now;
    return share;
  }
}

/** The agent, with its answering time measured. */
export function meteredAgent(agent: Agent, meter: IntervalMeter): Agent {
  return {
    respond: turn => meter.during(() => agent.respond(turn)),
    release: sequenceId => agent.release(sequenceId),
  };
}
