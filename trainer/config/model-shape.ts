import { withLora } from '../models/adapters/peft.ts';
import type { DecoderConfig } from '../models/config.ts';
import { storedBlocks } from '../policy/checkpoint/checkpoint.ts';
import { findModel, readModelConfig } from '../policy/checkpoint/model-folder.ts';
import { loraConfig } from './sections/lora.ts';
import type { RunSettings } from './settings.ts';

/**
 * The shape of the model in a folder as a run learns it: with adapters where `policy.lora` asks for them.
 * @throws ModelConfigError or Error when there is none that can be used
 */
export async function readShape(folder: string, { policy }: RunSettings): Promise<DecoderConfig> {
  const { lora, base_precision } = policy;
  const found = await readModelConfig(folder);
  const adapted = found.lora === undefined && lora ? withLora(found, loraConfig(lora)) : found;
  if (lora?.quantization) return { ...adapted, quantization: lora.quantization };
  if (base_precision !== 'blocks') return adapted;
  const blocks = await storedBlocks((await findModel(folder)).base, adapted);
  return blocks === undefined ? adapted : { ...adapted, blocks };
}

/**
 * The shape of a run's critic; undefined where there is none.
 * @param policy the shape of the policy
 * @throws as {@link readShape}
 */
export async function criticShape(
  settings: RunSettings,
  policy: DecoderConfig,
): Promise<DecoderConfig | undefined> {
  const { critic } = settings.policy;
  if (critic === null) return undefined;
  return withoutHead(critic.init === null ? policy : await readShape(critic.init, settings));
}

/** The shape of a critic, which has no output layer. */
function withoutHead(config: DecoderConfig): DecoderConfig {
  return { ...config, tiedEmbeddings: true };
}
