import { baseFolder } from '../../config/derived.ts';
import { readShape } from '../../config/model-shape.ts';
import type { RunSettings } from '../../config/settings.ts';
import type { DecoderConfig } from '../../models/config.ts';
import { loadTokenizer } from '../../models/tokenizer/load.ts';
import type { Tokenizer } from '../../models/tokenizer/tokenizer.ts';
import { checkWeights } from '../../policy/checkpoint/checkpoint.ts';
import { findModel, findTokenizer } from '../../policy/checkpoint/model-folder.ts';

/**
 * The shape of the model that a run begins with; undefined from scratch.
 * @throws Error naming the file or setting that does not fit
 */
export async function checkInitialModel(settings: RunSettings): Promise<DecoderConfig | undefined> {
  const { init } = settings.policy;
  if (init === 'scratch') return undefined;
  if (settings.policy.runtime === 'tinker') {
    await checkTokenizer(baseFolder(settings)!, settings);
    return undefined;
  }
  const config = await readShape(init, settings);
  await checkModel(init, config, settings);
  return config;
}

/**
 * Whether the model of a folder can be trained with the settings, as its files say, without reading its weights.
 * @param config its shape
 * @throws Error naming the file or setting that does not fit
 */
async function checkModel(folder: string, config: DecoderConfig, settings: RunSettings): Promise<void> {
  const { policy } = settings;
  const base = baseFolder(settings);
  if (!policy.fit_context && policy.context > config.maxPositions) {
    throw new RangeError(
      `policy.context ${policy.context} is more than the ${config.maxPositions} positions of ${folder}; policy.fit_context=true takes what the prompts need`,
    );
  }
  const place = await findTokenizer(folder, base);
  const tokenizer = await checkTokenizer(place, settings);
  if (tokenizer.vocabularySize > config.vocabularySize) {
    throw new RangeError(
      `the tokenizer of ${place} has ${tokenizer.vocabularySize} tokens, the model ${config.vocabularySize}: it is another model's`,
    );
  }
  await checkWeights((await findModel(folder, base)).base, config);
}

/** The tokenizer of a folder, if it has what the prompts need. @throws Error naming what is missing */
async function checkTokenizer(place: string, { rollout }: RunSettings): Promise<Tokenizer> {
  const tokenizer = await loadTokenizer(place);
  if (rollout.prompt === 'chat' && tokenizer.chatTemplate === undefined) {
    throw new Error(
      `rollout.prompt is chat, and ${place} has no chat template: add chat_template.jinja, or choose the \`compact\` prompt`,
    );
  }
  return tokenizer;
}
