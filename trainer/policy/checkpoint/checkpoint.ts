import { mkdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { parseJson } from '../../../shared/json.ts';
import { replaceFile } from '../../../shared/replace-file.ts';
import type { BlockedWeights, DecoderConfig } from '../../models/config.ts';
import { configToText } from '../../models/config-json.ts';
import { isThere, ModelFileError } from '../../models/files/model-file.ts';
import {
  openWeights,
  SafetensorsError,
  type TensorToWrite,
  type WeightsReader,
  writeSafetensors,
  writeShardedSafetensors,
} from '../../models/files/safetensors.ts';
import { STORED_AS, type WeightDtype } from '../../models/files/stored-numbers.ts';
import { blockNames, isQuantizable, storeQuantized } from '../../models/frozen-weights.ts';
import { GgufWeights } from '../../models/gguf/gguf-weights.ts';
import {
  EMBEDDINGS,
  isFrozen,
  OUTPUT_LAYER,
  parameterSpecs,
  VALUE_HEAD_BIAS,
  VALUE_HEAD_WEIGHT,
} from '../../models/parameters.ts';
import type { ParameterStore } from '../../tensor/runtime/parameter-store.ts';
import type { LossScaleState } from '../learning/loss-scale.ts';
import { CONFIG_FILE, type ModelFolders, readAdapterWeights, writeAdapter } from './model-folder.ts';

export const WEIGHTS_FILE = 'model.safetensors';
export const VALUE_HEAD_FILE = 'value_head.safetensors';
/**
 * Subfolder of a policy's folder for the state that only learning needs: engines read every safetensors file next to
 * the weights.
 */
const OPTIMIZER_FOLDER = 'optimizer';
const OPTIMIZER_FILE = 'optimizer.safetensors';
const OPTIMIZER_STATE_FILE = 'optimizer.json';

const FIRST_MOMENT = 'first';
const SECOND_MOMENT = 'second';

/** State besides the weights that lets learning continue exactly. */
export interface OptimizerState {
  readonly first: ParameterStore;
  readonly second: ParameterStore;
}

/** Counters of a policy: steps of the optimizer, and the policy's version. */
export interface Progress {
  readonly step: number;
  readonly version: number;
  /** Absent where products are float32. */
  readonly lossScale?: LossScaleState;
}

/** Contents of a model's folder. */
export interface SavedModel {
  readonly config: DecoderConfig;
  /** Base that an adapter's config names. */
  readonly base: string | null;
  /** Dropout of the adapter during training; none when absent. */
  readonly loraDropout?: number;
  /** Learned weights. */
  readonly weights: ParameterStore;
  /** Number type of the weights without the value head; float32 when absent. */
  readonly dtype?: WeightDtype;
  /** Tokenizer files by name. */
  readonly files: { readonly [name: string]: string };
}

/** Contents of a policy's folder. */
export interface Checkpoint extends SavedModel {
  readonly optimizer: OptimizerState;
  readonly progress: Progress;
}

/**
 * Writes a policy's folder in the Hugging Face layout: `config.json` and `model.safetensors` (in shards beyond 5 GB),
 * or with adapters PEFT's `adapter_config.json` and `adapter_model.safetensors`; also the value head, the given files,
 * and in {@link OPTIMIZER_FOLDER} the optimizer's moments and counters. Each file is replaced in one step.
 */
export async function saveCheckpoint(
  folder: string,
  { optimizer, progress, ...model }: Checkpoint,
): Promise<void> {
  await saveModelAndHead(folder, model);
  const place = join(folder, OPTIMIZER_FOLDER);
  await mkdir(place, { recursive: true });
  await writeSafetensors(join(place, OPTIMIZER_FILE), [
    ...toWrite(optimizer.first, `${FIRST_MOMENT}.`),
    ...toWrite(optimizer.second, `${SECOND_MOMENT}.`),
  ]);
  await replaceFile(join(place, OPTIMIZER_STATE_FILE), `${JSON.stringify(progress)}\n`);
}

/** Writes a model and, where it has one, its value head. */
export async function saveModelAndHead(folder: string, model: SavedModel): Promise<void> {
  await saveModel(folder, model);
  const head = toWrite(model.weights, '').filter(isHead);
  if (head.length > 0) await writeSafetensors(join(folder, VALUE_HEAD_FILE), head);
}

/** Writes a model without the optimizer state and the value head, which only learning needs. */
export async function saveModel(
  folder: string,
  { config, base, loraDropout, weights, dtype = 'float32', files }: SavedModel,
): Promise<void> {
  await mkdir(folder, { recursive: true });
  if (config.lora !== undefined) {
    await writeAdapter(folder, config, weights, { base, dropout: loraDropout, type: STORED_AS[dtype] });
  } else {
    const tensors = toWrite(weights, '').filter(tensor => !isHead(tensor));
    await writeShardedSafetensors(join(folder, WEIGHTS_FILE), tensors, { type: STORED_AS[dtype] });
    await replaceFile(join(folder, CONFIG_FILE), configToText(config, dtype));
  }
  for (const [name, text] of Object.entries(files)) await replaceFile(join(folder, name), text);
}

/**
 * Reads the weights of a whole model into a store, one tensor at a time.
 * @throws SafetensorsError naming a tensor that is missing, of another size, or that the model would not use
 */
export async function readWeights(folder: string, weights: ParameterStore): Promise<void> {
  const inModel = weights.layout.filter(entry => !isHead(entry));
  const path = join(folder, WEIGHTS_FILE);
  await using file = await openWeights(path);
  refuseUnknown(path, file, inModel);
  for (const { name } of inModel) await file.read(name, weights.array(name));
}

/**
 * Reads the weights of a whole model as the base of adapters, one tensor at a time; those that the config quantizes
 * become codes and scales.
 * @throws as {@link readWeights}
 */
export async function readBase(folder: string, config: DecoderConfig, base: ParameterStore): Promise<void> {
  const specs = parameterSpecs(config, false);
  const path = join(folder, WEIGHTS_FILE);
  await using file = await openWeights(path);
  refuseUnknown(path, file, specs);
  for (const spec of specs) {
    if (config.blocks?.[spec.name] !== undefined) {
      const names = blockNames(spec.name);
      await (file as GgufWeights).readBlocks(spec.name, {
        codes: base.data(names.codes) as Uint8Array,
        scales: base.array(names.scales),
        minimums: base.has(names.minimums) ? base.array(names.minimums) : null,
      });
    } else if (config.quantization === undefined || !isQuantizable(spec.name)) {
      await file.read(spec.name, base.array(spec.name));
    } else storeQuantized(base, spec, await file.read(spec.name), config.quantization);
  }
}

/** Block storage of a model's matrices in a GGUF file; undefined for another file, or one without blocks. */
export async function storedBlocks(
  folder: string,
  config: DecoderConfig,
): Promise<BlockedWeights | undefined> {
  await using file = await openWeights(join(folder, WEIGHTS_FILE));
  if (!(file instanceof GgufWeights)) return undefined;
  const blocks = parameterSpecs(config, false).flatMap(({ name }) => {
    const multiplies = isQuantizable(name) || name === EMBEDDINGS || name === OUTPUT_LAYER;
    const storage = multiplies ? file.storage(name) : null;
    return storage === null ? [] : [[name, storage] as const];
  });
  return blocks.length === 0 ? undefined : Object.fromEntries(blocks);
}

/**
 * Checks the header of a whole model's weights.
 * @throws SafetensorsError naming a tensor that is missing, of another shape, or that the model would not use
 */
export async function checkWeights(folder: string, config: DecoderConfig): Promise<void> {
  const path = join(folder, WEIGHTS_FILE);
  const { lora: _lora, ...whole } = config;
  const specs = parameterSpecs(whole, false);
  await using file = await openWeights(path);
  refuseUnknown(path, file, specs);
  for (const { name, shape } of specs) {
    const stored = file.tensors.get(name);
    if (stored?.shape.join() === shape.join()) continue;
    const found = stored === undefined ? 'is missing' : `has shape [${stored.shape.join(', ')}]`;
    throw new SafetensorsError(`${path}: ${name} ${found}, config.json wants [${shape.join(', ')}]`);
  }
}

/**
 * Reads the learned weights into a store: the whole model, or its adapter. A value head of the store stays unchanged
 * where neither the adapter nor the base has one.
 * @returns false for such a head
 * @throws SafetensorsError naming a tensor that is missing or has another size
 */
export async function readTrained(
  { base, adapter }: ModelFolders,
  config: DecoderConfig,
  weights: ParameterStore,
): Promise<boolean> {
  if (!isFrozen(config)) await readWeights(base, weights);
  else if (adapter !== null) await readAdapterWeights(adapter, config, weights);
  const head = weights.layout.filter(isHead);
  if (head.length === 0) return true;
  for (const folder of [adapter, base]) {
    if (folder === null) continue;
    const path = join(folder, VALUE_HEAD_FILE);
    if (!(await isThere(path))) continue;
    await readInto(path, weights, '', head);
    return true;
  }
  return false;
}

/**
 * Reads moments and counters; null with zeroed moments where the folder has neither (a model from elsewhere).
 * @throws SafetensorsError, ModelFileError where a file is damaged or only one of the two is there
 */
export async function readOptimizer(folder: string, optimizer: OptimizerState): Promise<Progress | null> {
  const own = join(folder, OPTIMIZER_FOLDER);
  // Checkpoints before 2026-11-24 have them next to the weights.
  const place = (await isThere(own)) ? own : folder;
  const [moments, counters] = [join(place, OPTIMIZER_FILE), join(place, OPTIMIZER_STATE_FILE)];
  if (!(await isThere(moments)) && !(await isThere(counters))) {
    optimizer.first.flat.fill(0);
    optimizer.second.flat.fill(0);
    return null;
  }
  await readInto(moments, optimizer.first, `${FIRST_MOMENT}.`, optimizer.first.layout);
  await readInto(moments, optimizer.second, `${SECOND_MOMENT}.`, optimizer.second.layout);
  return readProgress(counters);
}

async function readProgress(path: string): Promise<Progress> {
  if (!(await isThere(path))) throw new ModelFileError(`${path} is missing`);
  const progress = parseJson(await readFile(path, 'utf8')) as Partial<Progress> | undefined;
  const isCount = (value: unknown) => Number.isSafeInteger(value) && Number(value) >= 0;
  if (isCount(progress?.step) && isCount(progress?.version)) return progress as Progress;
  throw new ModelFileError(`${path} must hold \`step\` and \`version\`, integers from 0`);
}

/** Tensors in checkpoints that are computed or tied here: rotary tables, the output layer of tied embeddings. */
const NEEDLESS = /(^|\.)rotary_emb\.inv_freq$|^lm_head\.weight$/;

/** Ignoring a bias or an adapter silently would give another model. */
function refuseUnknown(
  path: string,
  file: WeightsReader,
  entries: readonly { readonly name: string }[],
): void {
  const known = new Set(entries.map(({ name }) => name));
  const unknown = [...file.tensors.keys()].filter(name => !known.has(name) && !NEEDLESS.test(name));
  if (unknown.length === 0) return;
  throw new SafetensorsError(
    `${path} holds ${unknown.length} tensors that this architecture does not have, such as ${unknown[0]}: config.json may name another one, or leave out biases`,
  );
}

function isHead({ name }: { readonly name: string }): boolean {
  return name === VALUE_HEAD_WEIGHT || name === VALUE_HEAD_BIAS;
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
  await using file = await openWeights(path);
  for (const { name } of entries) await file.read(prefix + name, store.array(name));
}
