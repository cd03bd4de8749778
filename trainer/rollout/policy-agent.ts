import type { Policy } from '../policy/policy.ts';
import type { Agent } from './agent.ts';

/** The agent that samples from a local policy. `grammar` names one the policy was given at start. */
export function policyAgent(policy: Pick<Policy, 'generate' | 'release'>, grammar?: string): Agent {
  return {
    respond: turn =>
      policy.generate({
        sequenceId: turn.sequenceId,
        append: turn.append,
        sampling: turn.sampling,
        seed: turn.seed,
        grammar,
      }),
    release: sequenceId => policy.release(sequenceId),
  };
}
