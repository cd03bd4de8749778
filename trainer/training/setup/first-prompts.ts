import type { RunSettings } from '../../config/settings.ts';
import { EpisodeContext, PromptTooLong } from '../../rollout/context.ts';
import type { DescribedTag } from '../../rollout/described-tag.ts';
import { EnvironmentSession } from '../../rollout/environment-session.ts';
import { nextView } from '../../rollout/play.ts';
import type { RunContext } from './run-context.ts';

/** How much of the context the first prompt of a tag takes. */
export interface FirstPrompt {
  readonly tag: string;
  /** Of the prompt, in tokens. */
  readonly length: number;
  /** Longest sequence that the policy takes, in tokens. */
  readonly context: number;
  /** Tokens that the response may take: `rollout.response_length`, or what is left. */
  readonly response: number;
}

/**
 * The first prompt of each tag, on the first level of validation, as a policy gets it.
 * @throws Error naming a tag whose prompt does not fit the context
 */
export async function firstPrompts(context: RunContext, settings: RunSettings): Promise<FirstPrompt[]> {
  const found: FirstPrompt[] = [];
  for (const described of context.tags) found.push(await firstPrompt(described, context, settings));
  return found;
}

async function firstPrompt(
  { tag, seedable }: DescribedTag,
  { servers, collector }: RunContext,
  { rollout, policy, validation }: RunSettings,
): Promise<FirstPrompt> {
  const prompt = collector.prompt(tag.name);
  const limit = rollout.max_model_len ?? policy.context;
  const [session] = await EnvironmentSession.openGroup(
    servers,
    {
      environmentId: tag.environmentId,
      tag: tag.name,
      config: tag.config,
      options: tag.options,
      seed: seedable ? validation.seed : undefined,
      groupName: `${tag.name}/first prompt`,
    },
    1,
  );
  try {
    const view = nextView(session.observation, tag.maxActionsPerTrajectory, []);
    const { context_mode: mode, max_context_window: window } = rollout;
    const settings = { mode, window, maxSequenceLength: limit };
    const episode = new EpisodeContext(
      prompt,
      prompt.tokens!,
      settings,
      () => 0,
      () => {},
    );
    const { append, maxNewTokens } = episode.begin(view);
    return { tag: tag.name, length: append.length, context: limit, response: maxNewTokens };
  } catch (error) {
    if (error instanceof PromptTooLong) throw new Error(`tags.${tag.name}: ${error.message}`);
    throw error;
  } finally {
    await session.close();
  }
}
