import { join, resolve } from 'node:path';
import type { JsonObject } from '../../../shared/json.ts';
import { replaceFile } from '../../../shared/replace-file.ts';
import { modelOfSnapshot, plainModelName } from '../../hub/cache.ts';
import {
  PEFT_PREFIX,
  type PeftAdapter,
  parsePeftConfig,
  peftConfigToJson,
} from '../../models/adapters/peft.ts';
import { type DecoderConfig, ModelConfigError } from '../../models/config.ts';
import { isThere, readModelText } from '../../models/files/model-file.ts';
import { SafetensorsError, SafetensorsReader, writeSafetensors } from '../../models/files/safetensors.ts';
import type { WritableType } from '../../models/files/stored-numbers.ts';
import { loraSpecs } from '../../models/parameters.ts';
import type { ParameterStore } from '../../tensor/runtime/parameter-store.ts';

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
export async function readModelJson<T>(path: string, parse: (json: JsonObject) => T): Promise<T> {
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
export interface AdapterOptions {
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
