import { closing } from '../../../shared/closing.ts';
import { baseFolder } from '../../config/derived.ts';
import type { RunSettings } from '../../config/settings.ts';
import { readShape } from '../../config/sizes.ts';
import type { Collector } from '../../rollout/collection/collector.ts';
import { EpisodeContext, PromptTooLong } from '../../rollout/context.ts';
import type { DescribedTag } from '../../rollout/described-tag.ts';
import { costsTheEpisode, OPENING_ATTEMPTS } from '../../rollout/environment-session.ts';
import { NO_SAMPLING, observer } from '../../rollout/episode-agent.ts';
import { nextView } from '../../rollout/play.ts';
import { openRunContext, type RunContext } from './run-context.ts';

/** Shortest context, in tokens, in which prompts show part of a first observation that is too long; a shorter one is a mistake. */
const LEAST_CUT_CONTEXT = 1024;

/** Part of the context that the first prompt of a tag takes. */
export interface FirstPrompt {
  readonly tag: string;
  /** Length of the prompt with the whole observation, in tokens. */
  readonly length: number;
  /** The observation does not fit: the prompt shows its beginning and its end. */
  readonly isCut: boolean;
  /** Longest sequence that the policy takes, in tokens. */
  readonly context: number;
  /** Tokens left for the response: `rollout.response_length`, or less. */
  readonly response: number;
}

interface PromptCheck {
  /** Seed of the levels. */
  readonly seed: number;
  /** Called with the last error of an environment that opened no episode, though it was tried again; throw it to end the check. */
  onFault(tag: string, error: Error): void;
  readonly signal?: AbortSignal;
}

/**
 * The first prompt of each tag as the policy gets it, also of later curriculum stages. Takes no action. Tags that
 * programs play with their own prompts have no tokens and are left out.
 * @throws Error naming the tags with prompts that do not fit the context; the signal's reason when it is aborted
 */
export async function firstPrompts(
  { collector, tags }: { readonly collector: Collector; readonly tags: readonly DescribedTag[] },
  { seed, onFault, signal }: PromptCheck,
): Promise<FirstPrompt[]> {
  const first = new Map<string, string>();
  let waiting = tags.map(({ tag }) => tag.name);
  for (let attempt = 1; waiting.length > 0; attempt++) {
    const plans = waiting.map((tag, groupId) => ({ groupId, tag, seed: seed + attempt - 1, size: 1 }));
    waiting = [];
    await collector.play(
      plans,
      { agent: observer, sampling: NO_SAMPLING, samplingSeed: seed, signal },
      outcome => {
        const { tag } = outcome.plan;
        if (!('error' in outcome)) first.set(tag, outcome.episodes[0].finalState ?? '');
        else if (costsTheEpisode(outcome.error) && attempt < OPENING_ATTEMPTS) waiting.push(tag);
        else onFault(tag, outcome.error);
      },
    );
  }
  const prompts: FirstPrompt[] = [];
  const faults: string[] = [];
  for (const described of tags) {
    const { name } = described.tag;
    const state = first.get(name);
    try {
      const prompt = state === undefined ? undefined : firstPrompt(described, state, collector);
      if (prompt) prompts.push(prompt);
    } catch (error) {
      if (!(error instanceof PromptTooLong)) throw error;
      faults.push(`tags.${name}: ${error.message}`);
    }
  }
  if (faults.length > 0) throw new Error(faults.join('\n'));
  return prompts;
}

/** @throws PromptTooLong */
function firstPrompt(
  { tag: { name, maxActionsPerTrajectory } }: DescribedTag,
  state: string,
  collector: Collector,
): FirstPrompt | undefined {
  const prompt = collector.prompt(name);
  if (!prompt.tokens) return undefined;
  const { maxSequenceLength: context } = collector.context;
  const { tokens } = prompt;
  const begun = (maxSequenceLength: number) =>
    new EpisodeContext(
      prompt,
      tokens,
      { ...collector.context, maxSequenceLength },
      () => 0,
      () => {},
    ).begin(nextView(state, maxActionsPerTrajectory, []));
  const { length } = begun(Number.POSITIVE_INFINITY).append;
  const isCut = length >= context;
  if (isCut && context < LEAST_CUT_CONTEXT) throw new PromptTooLong(`${length} tokens`, collector.context, 1);
  return { tag: name, length, isCut, context, response: begun(context).maxNewTokens };
}

/** Contexts are multiples of this many tokens. */
const STEP = 32;
/** Room for later observations, which may be longer than the first one. */
const SLACK = 1.25;

/**
 * Settings with the context that the first prompts need, if `policy.fit_context` is on: for all turns that a prompt
 * shows, at most `policy.context` and the positions of the model. The result has that context, with `fit_context` off.
 * @throws Error naming the tags with first prompts that do not fit the maximum; the signal's reason when it is aborted
 */
export async function withFittedContext(
  settings: RunSettings,
  note: (text: string) => void,
  signal: AbortSignal,
): Promise<RunSettings> {
  const { policy, rollout } = settings;
  if (!policy.fit_context) return settings;
  const folder = baseFolder(settings);
  const isHere = folder !== undefined && policy.runtime !== 'tinker';
  const positions = isHere ? (await readShape(folder, settings)).maxPositions : Infinity;
  const most = Math.min(policy.context, positions);
  const withContext = (context: number): RunSettings => ({
    ...settings,
    policy: { ...policy, context, fit_context: false },
  });
  if (rollout.agent) return withContext(most);
  await using context = closing(await openRunContext(withContext(most), folder, () => {}, signal));
  const prompts = await firstPrompts(context, {
    seed: settings.validation.seed,
    onFault: (_tag, error) => {
      throw error;
    },
    signal,
  });
  const needed = Math.max(...prompts.map(({ tag, length }) => neededFor(tag, length, context, settings)));
  const fitted = Math.min(most, STEP * Math.ceil(needed / STEP));
  const shown = prompts.map(({ tag, length }) => `${length} of ${tag}`).join(', ');
  note(
    `policy.context ${fitted} of at most ${most} tokens, for first prompts of ${shown} and the turns after them`,
  );
  return withContext(fitted);
}

/** Estimated tokens of a tag's longest sequence, from its first prompt. */
function neededFor(
  name: string,
  length: number,
  { collector, tags }: Pick<RunContext, 'tags'> & { readonly collector: Collector },
  { rollout }: RunSettings,
): number {
  const { tag } = tags.find(described => described.tag.name === name)!;
  const tokens = collector.prompt(name).tokens!;
  const opening = tokens.opening().length;
  const { window } = collector.context;
  const played = Math.min(tag.maxTurns, tag.maxActionsPerTrajectory);
  const turns = window > 0 ? Math.min(window, played) : played;
  const turn = SLACK * (length - opening) + rollout.response_length + tokens.close([]).length;
  return opening + turns * turn;
}
