import { stringify } from 'yaml';
import { ServerUnavailable } from '../../client/errors.ts';
import { hasValueHead } from '../../config/derived.ts';
import { criticShape } from '../../config/model-shape.ts';
import type { RunSettings } from '../../config/settings.ts';
import { runSizes } from '../../config/sizes.ts';
import type { DecoderConfig } from '../../models/config.ts';
import { shownBytes, shownCount } from '../../tracking/progress.ts';
import { checkInitialModel } from '../../training/setup/check-model.ts';
import { freshModel } from '../../training/setup/open-policy.ts';
import { openRunContext } from '../../training/setup/run-context.ts';

/** How long a server is waited for that is to name the words of a vocabulary, in seconds. */
const PATIENCE_S = 1;

/**
 * What a run would be, if the files of its model fit: every setting as resolved, in YAML, and behind it as comments its sizes and memory. A policy from
 * scratch gets its vocabulary from the environments; without a server its sizes leave the vocabulary out and say so.
 * @param shown the settings as they are to be printed: with models by the names that a hub has for them
 */
export async function dryRun(
  settings: RunSettings,
  signal: AbortSignal,
  shown: RunSettings = settings,
): Promise<string> {
  const vocabulary = await modelOf(settings, signal);
  const { parameters, trained, critic, memory, totalBytes, episodesPerIteration, episodes } = runSizes(
    settings,
    vocabulary.config,
    await criticShape(settings, vocabulary.config),
  );
  const lines = [
    `policy: ${parameters} parameters (${shownCount(parameters)})${vocabulary.remark}`,
    ...(trained < parameters
      ? [
          `learned: ${trained} of them (${shownCount(trained)}), adapters${hasValueHead(settings) ? ' and value head' : ''}`,
        ]
      : []),
    ...(critic === undefined ? [] : [`critic: ${critic} parameters learned (${shownCount(critic)})`]),
    `episodes: ${episodesPerIteration} an iteration, ${episodes} in ${settings.training.steps} iterations`,
    `memory: about ${shownBytes(totalBytes)}`,
    ...memory.map(({ what, bytes }) => `  ${shownBytes(bytes).padStart(9)}  ${what}`),
  ];
  return `${stringify(shown)}\n${lines.map(line => `# ${line}\n`).join('')}`;
}

interface Model {
  readonly config: DecoderConfig;
  readonly remark: string;
}

async function modelOf(settings: RunSettings, signal: AbortSignal): Promise<Model> {
  const { init, hidden_size } = settings.policy;
  const config = await checkInitialModel(settings);
  if (config !== undefined) return { config, remark: ` from ${init}` };
  const rollout = { ...settings.rollout, server_patience_s: PATIENCE_S, failover_s: PATIENCE_S };
  try {
    const context = await openRunContext({ ...settings, rollout }, undefined, () => {}, signal);
    try {
      const { tokenizer } = context;
      const remark = ` from scratch, ${tokenizer.vocabularySize} words`;
      return { config: freshModel(settings, tokenizer), remark };
    } finally {
      await context.close();
    }
  } catch (error) {
    if (!(error instanceof ServerUnavailable)) throw error;
    const config = freshModel(settings, { vocabularySize: 1 });
    const remark = ` with one word, and ${hidden_size} for each other: the environments give the vocabulary, and no server answered`;
    return { config, remark };
  }
}
