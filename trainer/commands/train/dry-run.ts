import { stringify } from 'yaml';
import { ServerUnavailable } from '../../client/errors.ts';
import { hasValueHead } from '../../config/derived.ts';
import { criticShape } from '../../config/model-shape.ts';
import type { RunSettings } from '../../config/settings.ts';
import { runSizes } from '../../config/sizes.ts';
import type { DecoderConfig } from '../../models/config.ts';
import { shownBytes, shownCount } from '../../tracking/progress.ts';
import { checkInitialModel } from '../../training/setup/check-model.ts';
import { type FirstPrompt, firstPrompts } from '../../training/setup/first-prompts.ts';
import { withFittedContext } from '../../training/setup/fit-context.ts';
import { freshModel } from '../../training/setup/open-policy.ts';
import { openRunContext } from '../../training/setup/run-context.ts';

/** Longest wait for a server to describe the environments, in seconds. */
const PATIENCE_S = 1;

/**
 * What a run would be, if the files of its model and the first prompts of its tags fit: every setting as resolved, in YAML, and
 * behind it as comments its prompts, sizes and memory. A policy from scratch gets its vocabulary from the environments; without
 * a server its sizes leave the vocabulary out, no prompt is checked, and both are said.
 * @param shown the settings as they are to be printed: with models by the names that a hub has for them
 */
export async function dryRun(
  settings: RunSettings,
  signal: AbortSignal,
  shown: RunSettings = settings,
): Promise<string> {
  const rollout = { ...settings.rollout, server_patience_s: PATIENCE_S, failover_s: PATIENCE_S };
  const impatient = { ...settings, rollout };
  const fitted = await withFittedContext(impatient, () => {}, signal).catch(error => {
    if (error instanceof ServerUnavailable) return impatient;
    throw error;
  });
  const { context, fit_context } = fitted.policy;
  const { model, prompts } = await prepared(fitted, signal);
  const { parameters, trained, critic, memory, totalBytes, episodesPerIteration, episodes } = runSizes(
    fitted,
    model.config,
    await criticShape(settings, model.config),
  );
  const lines = [
    `policy: ${parameters} parameters (${shownCount(parameters)})${model.remark}`,
    ...(trained < parameters
      ? [
          `learned: ${trained} of them (${shownCount(trained)}), adapters${hasValueHead(settings) ? ' and value head' : ''}`,
        ]
      : []),
    ...(critic === undefined ? [] : [`critic: ${critic} parameters learned (${shownCount(critic)})`]),
    `episodes: ${episodesPerIteration} an iteration, ${episodes} in ${settings.training.steps} iterations`,
    ...prompts,
    `memory: about ${shownBytes(totalBytes)}`,
    ...memory.map(({ what, bytes }) => `  ${shownBytes(bytes).padStart(9)}  ${what}`),
  ];
  const resolved = { ...shown, policy: { ...shown.policy, context, fit_context } };
  return `${stringify(resolved)}\n${lines.map(line => `# ${line}\n`).join('')}`;
}

interface Model {
  readonly config: DecoderConfig;
  readonly remark: string;
}

interface Prepared {
  readonly model: Model;
  /** Lines about the first prompts. */
  readonly prompts: readonly string[];
}

async function prepared(settings: RunSettings, signal: AbortSignal): Promise<Prepared> {
  const { init, hidden_size } = settings.policy;
  const config = await checkInitialModel(settings);
  const found = config && { config, remark: ` from ${init}` };
  const { rollout } = settings;
  try {
    const folder = found && init;
    const context = await openRunContext(settings, folder, () => {}, signal);
    try {
      const { tokenizer } = context;
      const model = found ?? {
        config: freshModel(settings, tokenizer),
        remark: ` from scratch, ${tokenizer.vocabularySize} tokens`,
      };
      // A program writes its own prompts.
      const prompts = rollout.agent
        ? []
        : await firstPrompts(context, {
            seed: settings.validation.seed,
            onFault: (_tag, error) => {
              throw error;
            },
            signal,
          });
      return { model, prompts: prompts.map(promptLine(settings)) };
    } finally {
      await context.close();
    }
  } catch (error) {
    if (!(error instanceof ServerUnavailable)) throw error;
    const model = found ?? {
      config: freshModel(settings, { vocabularySize: 1 }),
      remark: ` with one word, and ${hidden_size} for each other: the environments give the vocabulary, and no server answered`,
    };
    return { model, prompts: ['first prompts: not checked against the context, as no server answered'] };
  }
}

const promptLine =
  ({ rollout }: RunSettings) =>
  ({ tag, length, context, response }: FirstPrompt) => {
    const wanted = rollout.response_length;
    const room = response < wanted ? `${response} of the ${wanted}` : response;
    return `first prompt of ${tag}: ${length} of ${context} tokens, with room for ${room} of a response`;
  };
