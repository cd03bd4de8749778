/** Costs of a collection, including those of lost episodes and groups. */
export interface PlayTally {
  /** Milliseconds spent waiting for agents, and for environments. */
  agentMs: number;
  environmentMs: number;
  /** Actions that servers carried out: of trunks, branches, replayed prefixes and estimates, without recovery. */
  envSteps: number;
  sampledTokens: number;
  /** Tokens of earlier turns that were read again for a branch. */
  prefillTokens: number;
  /** Part of `envSteps`: actions of earlier episodes that were carried out again. */
  replayedSteps: number;
  /** Actions carried out again because a session was lost; not in `envSteps`. */
  recoverySteps: number;
  /** Leaves of trees, opened branches, and the sum of the turns after which they were opened. */
  leaves: number;
  branches: number;
  branchTurns: number;
  /** Parts of `envSteps` and `sampledTokens`: continuations that only value a history. */
  cloneSteps: number;
  cloneTokens: number;
  /** Leaves and continuations that got no reward. */
  lostLeaves: number;
  /** Most sessions that one group had open at once. */
  openSessionsMax: number;
}

export function emptyTally(): PlayTally {
  return {
    agentMs: 0,
    environmentMs: 0,
    envSteps: 0,
    sampledTokens: 0,
    prefillTokens: 0,
    replayedSteps: 0,
    recoverySteps: 0,
    leaves: 0,
    branches: 0,
    branchTurns: 0,
    cloneSteps: 0,
    cloneTokens: 0,
    lostLeaves: 0,
    openSessionsMax: 0,
  };
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
