import { referenceAgent } from '../../rollout/agents/reference-agent.ts';
import { EpisodeTooLong } from '../../rollout/context.ts';
import type { RunContext } from './run-context.ts';

/** What a random player samples with: nothing. */
const NO_SAMPLING = { temperature: 0, topK: 0, topP: 1 };

/**
 * Opens an episode of every environment of the run, those of later stages of a curriculum included, and refuses one whose first
 * prompt does not fit the policy's context: it would never be trained on.
 * @param seed of the episodes' levels
 * @throws Error naming the tag and what to set; the signal's reason when it is aborted
 */
export async function checkFirstPrompts(
  { collector, tags }: Pick<RunContext, 'collector' | 'tags'>,
  seed: number,
  signal: AbortSignal,
): Promise<void> {
  const agent = referenceAgent({ policy: 'random' });
  const plans = tags.map(({ tag }, groupId) => ({ groupId, tag: tag.name, seed, size: 1 }));
  const faults: string[] = [];
  await collector.play(plans, { agent, sampling: NO_SAMPLING, samplingSeed: seed, signal }, outcome => {
    if ('error' in outcome && outcome.error instanceof EpisodeTooLong && outcome.error.turn === 1) {
      faults.push(`tag ${outcome.plan.tag}: ${outcome.error.message}`);
    }
  });
  if (faults.length > 0) throw new Error(faults.join('\n'));
}
