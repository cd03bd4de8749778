import { baseFolder } from '../../config/derived.ts';
import { readShape } from '../../config/model-shape.ts';
import type { RunSettings } from '../../config/settings.ts';
import type { Collector } from '../../rollout/collection/collector.ts';
import { firstPrompts } from './first-prompts.ts';
import { openRunContext, type RunContext } from './run-context.ts';

/** Contexts are multiples of this many tokens. */
const STEP = 32;
/** Later observations may be longer than the first one. */
const SLACK = 1.25;

/**
 * Settings with the context that the first prompts need, where `policy.fit_context` asks for it: for all turns that a prompt shows,
 * at most `policy.context` and the positions of the model. The result names that context and asks for nothing more.
 * @throws Error naming the tags with first prompts that do not fit the most there is; the signal's reason when it is aborted
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
  const context = await openRunContext(withContext(most), folder, () => {}, signal);
  try {
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
  } finally {
    await context.close();
  }
}

/** Tokens of the longest sequence of a tag, as far as the first prompt says. */
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
