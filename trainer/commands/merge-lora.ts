import { copyFile, mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { JsonObject } from '../../shared/json.ts';
import { readLogLevel } from '../../shared/log.ts';
import { replaceFile } from '../../shared/replace-file.ts';
import { scaleRows } from '../models/adapters/dora.ts';
import { loraNames, loraScale, magnitudeName, mergedWeight } from '../models/adapters/lora.ts';
import { isThere, readModelText } from '../models/files/model-file.ts';
import { openWeights, SafetensorsReader, writeShardedSafetensors } from '../models/files/safetensors.ts';
import type { WritableType } from '../models/files/stored-numbers.ts';
import { adaptedWeights, loraSpecs, parameterSpecs } from '../models/parameters.ts';
import { readWeights, VALUE_HEAD_FILE, WEIGHTS_FILE } from '../policy/checkpoint/checkpoint.ts';
import {
  CONFIG_FILE,
  findModel,
  isModelFolder,
  readAdapterWeights,
  readModelConfig,
} from '../policy/checkpoint/model-folder.ts';
import { ParameterStore } from '../tensor/runtime/parameter-store.ts';
import { openProgress } from '../tracking/progress.ts';
import { localModel } from './hub/local-models.ts';
import type { OptionsOf } from './options.ts';

/**
 * The command `merge-lora`: writes base and adapter as one model without an adapter.
 * @returns the exit status
 * @throws Error naming what is missing
 */
export async function mergeLora(
  adapter: string,
  { out, base, type }: OptionsOf<'merge-lora'>,
): Promise<number> {
  const options = { progress: openProgress(process.stderr, readLogLevel()) };
  const named = base === undefined ? undefined : await localModel(base, options);
  const { folder } = await localModel(adapter, options, base);
  const merged = await mergeAdapter(folder, out, { base: named?.folder, type });
  console.log(`${out}: ${adapter} merged into its base, ${merged} matrices`);
  return 0;
}

/** Files copied with the weights, from the adapter's folder or otherwise from the base's. */
const COMPANIONS = [
  'tokenizer.json',
  'tokenizer_config.json',
  'special_tokens_map.json',
  'vocab.json',
  'merges.txt',
  'chat_template.jinja',
  'generation_config.json',
  VALUE_HEAD_FILE,
];
const TORCH_TYPES: Readonly<Record<WritableType, string>> = { F32: 'float32', BF16: 'bfloat16' };

interface MergeOptions {
  /** Folder of the base; by default the one in the adapter's config. */
  readonly base?: string;
  /** Number type; by default that of the base, with float16 as F32. */
  readonly type?: WritableType;
}

/**
 * Writes a whole model with the weights of a base plus an adapter, W + scale · B·A (with DoRA its rows scaled to their
 * magnitudes), next to its tokenizer and value head.
 * @returns number of changed matrices
 * @throws RangeError when the folder holds no adapter, or `out` a model already
 */
export async function mergeAdapter(folder: string, out: string, options: MergeOptions = {}): Promise<number> {
  const { base, adapter } = await findModel(folder, options.base);
  if (adapter === null) throw new RangeError(`${folder} holds a whole model: there is nothing to merge`);
  if (await isModelFolder(out)) throw new RangeError(`${out} holds a model already: name another folder`);
  const config = await readModelConfig(folder, options.base);
  const lora = config.lora!;
  const specs = parameterSpecs(config, false);
  const weights = new ParameterStore(specs);
  await readWeights(base, weights);
  const matrices = new ParameterStore(loraSpecs(config, lora));
  await readAdapterWeights(adapter, config, matrices);
  const adapted = adaptedWeights(config, lora);
  for (const { linear } of adapted) {
    const { a, b } = loraNames(linear);
    const array = weights.array(`${linear}.weight`);
    const parts = { a: matrices.array(a), b: matrices.array(b), rank: lora.rank, scale: loraScale(lora) };
    const sum = mergedWeight(array, parts);
    array.set(lora.dora ? scaleRows(sum, matrices.array(magnitudeName(linear))) : sum);
  }
  const type = options.type ?? (await storedType(base));
  await mkdir(out, { recursive: true });
  const tensors = specs.map(({ name, shape }) => ({ name, shape, data: weights.array(name) }));
  await writeShardedSafetensors(join(out, WEIGHTS_FILE), tensors, { type });
  for (const name of COMPANIONS) {
    const from = (await isThere(join(adapter, name))) ? adapter : base;
    if (!(await isThere(join(from, name)))) continue;
    if (name.endsWith('.safetensors')) await copyFile(join(from, name), join(out, name));
    else await replaceFile(join(out, name), await readModelText(join(from, name)));
  }
  const json = JSON.parse(await readModelText(join(base, CONFIG_FILE))) as JsonObject;
  const typed = {
    ...json,
    ...('dtype' in json ? { dtype: TORCH_TYPES[type] } : { torch_dtype: TORCH_TYPES[type] }),
  };
  await replaceFile(join(out, CONFIG_FILE), `${JSON.stringify(typed, null, 2)}\n`);
  return adapted.length;
}

async function storedType(folder: string): Promise<WritableType> {
  await using file = await openWeights(join(folder, WEIGHTS_FILE));
  if (!(file instanceof SafetensorsReader)) return 'F32';
  const [first] = file.tensors.values();
  return first?.type === 'BF16' ? 'BF16' : 'F32';
}
