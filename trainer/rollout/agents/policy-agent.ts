import type { Generator } from '../../generation/generator.ts';
import type { Agent } from './agent.ts';

/**
 * The agent that samples from a local policy.
 * @param grammarOf names the grammar that responses under a tag are sampled with, of those the policy was given at start;
 *   absent: any token can be sampled
 */
export function policyAgent(
  policy: Generator,
  grammarOf: (tag: string) => string | undefined = () => undefined,
): Agent {
  return {
    respond: turn =>
      policy.generate({
        sequenceId: turn.sequenceId,
        append: turn.append,
        sampling: turn.sampling,
        seed: turn.seed,
        grammar: grammarOf(turn.episode.tag),
      }),
    release: sequenceId => policy.release(sequenceId),
  };
}
