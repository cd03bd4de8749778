import { mkdir, readFile, rename, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { JsonObject } from '../../../shared/json.ts';
import { configToJson, type DecoderConfig, parseConfig } from '../../models/config.ts';
import { VALUE_HEAD_BIAS, VALUE_HEAD_WEIGHT } from '../../models/parameters.ts';
import { SafetensorsReader, type TensorToWrite, writeSafetensors } from '../../models/safetensors.ts';
import { writeShardedSafetensors } from '../../models/sharded-safetensors.ts';
import type { ParameterStore } from '../../runtime/parameter-store.ts';

export const CONFIG_FILE = 'config.json';
export const WEIGHTS_FILE = 'model.safetensors';
export const VALUE_HEAD_FILE = 'value_head.safetensors';
export const OPTIMIZER_FILE = 'optimizer.safetensors';
export const OPTIMIZER_STATE_FILE = 'optimizer.json';

const FIRST_MOMENT = 'first';
const SECOND_MOMENT = 'second';

/** What learning needs besides the weights to go on exactly where it was. */
export interface OptimizerState {
  readonly first: ParameterStore;
  readonly second: ParameterStore;
}

/** Counters of a policy: steps of the optimiser, and the policy's version. */
export interface Progress {
  readonly step: number;
  readonly version: number;
}

/**
 * Writes a policy's folder in the Hugging Face layout: `config.json`, `model.safetensors` (in shards beyond 5 GB), and beside them the value
 * head, the optimiser's moments and counters, and the given files (a tokenizer's). Each file appears whole or not at all.
 */
export async function saveCheckpoint(
  folder: string,
  config: DecoderConfig,
  weights: ParameterStore,
  optimizer: OptimizerState,
  progress: Progress,
  files: { readonly [name: string]: string },
): Promise<void> {
  await mkdir(folder, { recursive: true });
  const isHead = (name: string) => name === VALUE_HEAD_WEIGHT || name === VALUE_HEAD_BIAS;
  const tensors = toWrite(weights, '');
  await writeShardedSafetensors(
    join(folder, WEIGHTS_FILE),
    tensors.filter(({ name }) => !isHead(name)),
  );
  const head = tensors.filter(({ name }) => isHead(name));
  if (head.length > 0) await writeSafetensors(join(folder, VALUE_HEAD_FILE), head);
  await writeSafetensors(join(folder, OPTIMIZER_FILE), [
    ...toWrite(optimizer.first, `${FIRST_MOMENT}.`),
    ...toWrite(optimizer.second, `${SECOND_MOMENT}.`),
  ]);
  await writeWhole(join(folder, OPTIMIZER_STATE_FILE), `${JSON.stringify(progress)}\n`);
  await writeWhole(join(folder, CONFIG_FILE), `${JSON.stringify(configToJson(config), null, 2)}\n`);
  for (const [name, text] of Object.entries(files)) await writeWhole(join(folder, name), text);
}

/** @throws ModelConfigError when the model is not supported; Error naming the file when it cannot be read */
export async function readConfig(folder: string): Promise<DecoderConfig> {
  const path = join(folder, CONFIG_FILE);
  const text = await readFile(path, 'utf8').catch(error => {
    throw new Error(`cannot read ${path}: ${(error as Error).message}`);
  });
  return parseConfig(JSON.parse(text) as JsonObject);
}

/**
 * Reads weights into a store, one tensor at a time. A value head that the store has and the folder lacks is left as it is.
 * @throws SafetensorsError naming a tensor that is missing or has another size
 */
export async function readWeights(folder: string, weights: ParameterStore): Promise<void> {
  const inModel = ({ name }: { readonly name: string }) =>
    name !== VALUE_HEAD_WEIGHT && name !== VALUE_HEAD_BIAS;
  await readInto(join(folder, WEIGHTS_FILE), weights, '', weights.layout.filter(inModel));
  const head = weights.layout.filter(entry => !inModel(entry));
  if (head.length > 0 && (await isThere(join(folder, VALUE_HEAD_FILE)))) {
    await readInto(join(folder, VALUE_HEAD_FILE), weights, '', head);
  }
}

/** Reads moments and counters; null, and the moments zeroed, where the folder has none (a model from elsewhere). */
export async function readOptimizer(folder: string, optimizer: OptimizerState): Promise<Progress | null> {
  if (!(await isThere(join(folder, OPTIMIZER_STATE_FILE)))) {
    optimizer.first.flat.fill(0);
    optimizer.second.flat.fill(0);
    return null;
  }
  const path = join(folder, OPTIMIZER_FILE);
  await readInto(path, optimizer.first, `${FIRST_MOMENT}.`, optimizer.first.layout);
  await readInto(path, optimizer.second, `${SECOND_MOMENT}.`, optimizer.second.layout);
  return JSON.parse(await readFile(join(folder, OPTIMIZER_STATE_FILE), 'utf8')) as Progress;
}

function toWrite(store: ParameterStore, prefix: string): TensorToWrite[] {
  return store.layout.map(({ name, shape }) => ({ name: prefix + name, shape, data: store.array(name) }));
}

async function readInto(
  path: string,
  store: ParameterStore,
  prefix: string,
  entries: readonly { readonly name: string }[],
): Promise<void> {
  await using file = await SafetensorsReader.open(path);
  for (const { name } of entries) await file.read(prefix + name, store.array(name));
}

async function writeWhole(path: string, text: string): Promise<void> {
  const temporary = `${path}.${process.pid}.tmp`;
  await writeFile(temporary, text);
  await rename(temporary, path);
}

async function isThere(path: string): Promise<boolean> {
  return stat(path).then(
    () => true,
    () => false,
  );
}
