import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { cachedSnapshot, parseModelName } from '../../hub/cache.ts';
import { hubSettings } from '../../hub/hub-settings.ts';
import { withLora } from '../../models/adapters/peft.ts';
import type { DecoderConfig } from '../../models/config.ts';
import { parseConfig } from '../../models/config-json.ts';
import { isThere } from '../../models/files/model-file.ts';
import { TOKENIZER_FILE } from '../../models/tokenizer/load.ts';
import { isAdapterFolder, readAdapterConfig, readModelJson } from './adapter-folder.ts';

/** Folders of a model's parts. */
export interface ModelFolders {
  /** Folder of the whole model: its config and weights. */
  readonly base: string;
  /** Folder of the adapter next to it; null for a model alone. */
  readonly adapter: string | null;
}

/** True if a folder holds a model, or an adapter for one. */
export async function isModelFolder(folder: string): Promise<boolean> {
  return (await isAdapterFolder(folder)) || (await isThere(join(folder, CONFIG_FILE)));
}

/**
 * Folders of the parts of a model, which a folder holds whole or as an adapter in PEFT's layout. The base of an adapter
 * is the given one, or the one that its config names, relative to the working directory or the adapter, or in the cache
 * of a hub's models.
 * @param base a whole model, or an adapter of the same base
 * @throws Error saying where a model was looked for
 */
export async function findModel(folder: string, base?: string): Promise<ModelFolders> {
  if (!(await isAdapterFolder(folder))) {
    if (await isThere(join(folder, CONFIG_FILE))) return { base: folder, adapter: null };
    throw new Error(`${folder} holds no model: neither ${CONFIG_FILE} nor adapter_config.json is there`);
  }
  const { base: named, revision } = await readAdapterConfig(folder);
  if (base !== undefined && base !== folder && (await isAdapterFolder(base))) {
    return { base: (await findModel(base)).base, adapter: folder };
  }
  const onHub = named === null ? undefined : parseModelName(named);
  const places = [
    base === folder ? undefined : base,
    named,
    named === null ? null : join(folder, named),
    onHub && cachedSnapshot(hubSettings().cache, { ...onHub, revision: revision ?? onHub.revision }),
  ];
  for (const place of places) {
    if (typeof place === 'string' && (await isThere(join(place, CONFIG_FILE)))) {
      return { base: place, adapter: folder };
    }
  }
  throw new Error(
    `the base of the adapter ${folder} is not here: its config names ${named ?? 'none'}; say where it is (policy.init: <folder>)`,
  );
}

/** The shape of a model, with its adapter's config where the folder holds an adapter. @throws as {@link findModel} */
export async function readModelConfig(folder: string, base?: string): Promise<DecoderConfig> {
  const place = await findModel(folder, base);
  const config = await readConfig(place.base);
  if (place.adapter === null) return config;
  return withLora(config, (await readAdapterConfig(place.adapter)).lora);
}

/** @throws RangeError naming the difference when a folder holds a model of another config, or other adapters */
export async function assertSameModel(folder: string, config: DecoderConfig): Promise<void> {
  const adapted = config.lora !== undefined && (await isAdapterFolder(folder));
  const { quantization: _quantization, blocks: _blocks, ...wanted } = config;
  const found: DecoderConfig = adapted
    ? withLora(wanted, (await readAdapterConfig(folder)).lora)
    : {
        ...(await readModelConfig(folder)),
        ...(wanted.context === undefined ? {} : { context: wanted.context }),
      };
  if (isDeepStrictEqual(found, wanted)) return;
  const keys = [...new Set([...Object.keys(found), ...Object.keys(wanted)])] as (keyof typeof wanted)[];
  const different = keys.filter(key => !isDeepStrictEqual(found[key], wanted[key]));
  throw new RangeError(`${folder} holds another model: ${different.join(', ')} differ`);
}

/** The folder that holds a model's tokenizer: its own, or its base's. @throws as {@link findModel} */
export async function findTokenizer(folder: string, base?: string): Promise<string> {
  return (await isThere(join(folder, TOKENIZER_FILE))) ? folder : (await findModel(folder, base)).base;
}

export const CONFIG_FILE = 'config.json';

/** @throws ModelConfigError when the model is not supported; Error naming the file when it cannot be read */
export function readConfig(folder: string): Promise<DecoderConfig> {
  return readModelJson(join(folder, CONFIG_FILE), parseConfig);
}
