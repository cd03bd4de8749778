import { withLora } from '../models/adapters/peft.ts';
import type { DecoderConfig } from '../models/config.ts';
import { readModelConfig } from '../policy/checkpoint/model-folder.ts';
import { loraConfig } from './sections/lora.ts';
import type { RunSettings } from './settings.ts';

/**
 * The shape of the model in a folder as a run learns it: with adapters where `policy.lora` asks for them.
 * @throws ModelConfigError or Error when there is none that can be used
 */
export async function readShape(folder: string, { policy: { lora } }: RunSettings): Promise<DecoderConfig> {
  const found = await readModelConfig(folder);
  const adapted = found.lora === undefined && lora ? withLora(found, loraConfig(lora)) : found;
  return lora?.quantization ? { ...adapted, quantization: lora.quantization } : adapted;
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
