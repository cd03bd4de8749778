import { join, resolve } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import type { JsonObject } from '../../../shared/json.ts';
import { replaceFile } from '../../../shared/replace-file.ts';
import { cachedSnapshot, modelOfSnapshot, parseModelName, plainModelName } from '../../hub/cache.ts';
import { hubSettings } from '../../hub/hub-settings.ts';
import {
  PEFT_PREFIX,
  type PeftAdapter,
  parsePeftConfig,
  peftConfigToJson,
  withLora,
} from '../../models/adapters/peft.ts';
import { type DecoderConfig, ModelConfigError } from '../../models/config.ts';
import { parseConfig } from '../../models/config-json.ts';
import { isThere, readModelText } from '../../models/files/model-file.ts';
import { SafetensorsError, SafetensorsReader, writeSafetensors } from '../../models/files/safetensors.ts';
import type { WritableType } from '../../models/files/stored-numbers.ts';
import { loraSpecs } from '../../models/parameters.ts';
import { TOKENIZER_FILE } from '../../models/tokenizer/load.ts';
import type { ParameterStore } from '../../tensor/runtime/parameter-store.ts';

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

export const ADAPTER_CONFIG_FILE = 'adapter_config.json';
const ADAPTER_WEIGHTS_FILE = 'adapter_model.safetensors';

/** True if a folder holds an adapter in PEFT's layout. */
export function isAdapterFolder(folder: string): Promise<boolean> {
  return isThere(join(folder, ADAPTER_CONFIG_FILE));
}

/** @throws ModelConfigError naming the file and the option that is not supported; Error when it cannot be read */
export function readAdapterConfig(folder: string): Promise<PeftAdapter> {
  return readModelJson(join(folder, ADAPTER_CONFIG_FILE), parsePeftConfig);
}

/** @throws ModelConfigError naming the file when `parse` refuses it or it is no JSON; Error when it cannot be read */
async function readModelJson<T>(path: string, parse: (json: JsonObject) => T): Promise<T> {
  const text = await readModelText(path).catch(error => {
    throw new Error(`cannot read ${path}: ${(error as Error).message}`);
  });
  try {
    return parse(JSON.parse(text) as JsonObject);
  } catch (error) {
    throw new ModelConfigError(`${path}: ${(error as Error).message}`, { cause: error });
  }
}

/**
 * Reads an adapter's matrices into a store.
 * @param config of the model with the adapter's own LoRA config
 * @throws SafetensorsError naming a matrix that is missing, too much or of another shape
 */
export async function readAdapterWeights(
  folder: string,
  config: DecoderConfig,
  weights: ParameterStore,
): Promise<void> {
  const path = join(folder, ADAPTER_WEIGHTS_FILE);
  await using file = await SafetensorsReader.open(path);
  const specs = config.lora === undefined ? [] : loraSpecs(config, config.lora);
  const known = new Set(specs.map(({ name }) => PEFT_PREFIX + name));
  const others = [...file.tensors.keys()].filter(name => !known.has(name));
  if (others.length > 0) {
    throw new SafetensorsError(`${path} holds ${others[0]}, which no adapter of this model and config has`);
  }
  for (const { name, shape } of specs) {
    const stored = file.tensors.get(PEFT_PREFIX + name);
    if (stored !== undefined && stored.shape.join() !== shape.join()) {
      throw new SafetensorsError(
        `${path}: ${stored.name} has shape [${stored.shape.join(', ')}], the base wants [${shape.join(', ')}]`,
      );
    }
    await file.read(PEFT_PREFIX + name, weights.array(name));
  }
}

/** Options for writing an adapter. */
interface AdapterOptions {
  /**
   * Folder of the base, for the config. For a base in a hub's cache, the config gets its name and commit on the hub.
   */
  readonly base: string | null;
  /** Dropout during training; none when absent. */
  readonly dropout?: number;
  /** F32 when absent. */
  readonly type?: WritableType;
}

/**
 * Writes an adapter like PEFT: `adapter_config.json` and `adapter_model.safetensors`.
 * @param weights a store with the adapter's matrices; it may have others
 */
export async function writeAdapter(
  folder: string,
  config: DecoderConfig,
  weights: ParameterStore,
  { base, dropout, type }: AdapterOptions,
): Promise<void> {
  const { lora } = config;
  if (lora === undefined) throw new RangeError('the model has no adapter to write');
  await writeSafetensors(
    join(folder, ADAPTER_WEIGHTS_FILE),
    loraSpecs(config, lora).map(({ name, shape }) => ({
      name: PEFT_PREFIX + name,
      shape,
      data: weights.array(name),
    })),
    { type },
  );
  const onHub = base === null ? undefined : modelOfSnapshot(base);
  // Another process may read it from another folder.
  const named = base !== null && (await isThere(base)) ? resolve(base) : base;
  const found = {
    lora,
    base: onHub === undefined ? named : plainModelName(onHub),
    revision: onHub?.revision ?? null,
  };
  const json = peftConfigToJson(found, dropout);
  await replaceFile(join(folder, ADAPTER_CONFIG_FILE), `${JSON.stringify(json, null, 2)}\n`);
}
