import { rm } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { replaceFile } from '../../../shared/replace-file.ts';
import { readModelTextIfThere } from './model-file.ts';
import {
  SAFETENSORS_INDEX_SUFFIX,
  type TensorToWrite,
  weightMapOf,
  writeSafetensors,
} from './safetensors.ts';
import { STORED_BYTES, type WritableType } from './stored-numbers.ts';

const EXTENSION = '.safetensors';
/** Default number of bytes in a shard, as in transformers. */
const DEFAULT_SHARD_BYTES = 5e9;
const NUMBER_DIGITS = 5;

/**
 * Writes tensors to `path`, or if they exceed `shardBytes` to numbered files next to it with transformers' names.
 * Writes an index in both cases, by which vLLM recognizes the model's files in the folder. Removes the files of an
 * earlier save of another size under the same name.
 * @param path ends in `.safetensors`
 */
export async function writeShardedSafetensors(
  path: string,
  tensors: readonly TensorToWrite[],
  options: { readonly type?: WritableType; readonly shardBytes?: number } = {},
): Promise<void> {
  const { type = 'F32', shardBytes = DEFAULT_SHARD_BYTES } = options;
  const shards = cutIntoShards(tensors, shardBytes / STORED_BYTES[type]);
  const index = path + SAFETENSORS_INDEX_SUFFIX;
  const before = await shardsOf(index);
  const numbered = (n: number) => String(n).padStart(NUMBER_DIGITS, '0');
  const names = shards.map((_, i) =>
    shards.length === 1
      ? basename(path)
      : `${basename(path, EXTENSION)}-${numbered(i + 1)}-of-${numbered(shards.length)}${EXTENSION}`,
  );
  const weightMap: Record<string, string> = {};
  for (const [i, shard] of shards.entries()) {
    await writeSafetensors(join(dirname(path), names[i]), shard, { type });
    for (const { name } of shard) weightMap[name] = names[i];
  }
  const count = tensors.reduce((sum, { data }) => sum + data.length, 0);
  const json = { metadata: { total_size: count * STORED_BYTES[type] }, weight_map: weightMap };
  await replaceFile(index, `${JSON.stringify(json, null, 2)}\n`);
  if (shards.length > 1) await rm(path, { force: true });
  await removeAll(
    dirname(path),
    before.filter(name => !names.includes(name)),
  );
}

/** Tensors in their order, as many to a shard as `most` elements allow; a larger one gets a separate shard. */
function cutIntoShards(tensors: readonly TensorToWrite[], most: number): TensorToWrite[][] {
  const shards: TensorToWrite[][] = [[]];
  let filled = 0;
  for (const tensor of tensors) {
    if (filled > 0 && filled + tensor.data.length > most) {
      shards.push([]);
      filled = 0;
    }
    shards[shards.length - 1].push(tensor);
    filled += tensor.data.length;
  }
  return shards;
}

async function shardsOf(index: string): Promise<string[]> {
  const text = await readModelTextIfThere(index);
  return text === undefined ? [] : [...new Set(Object.values(weightMapOf(text, index)))];
}

async function removeAll(folder: string, names: readonly string[]): Promise<void> {
  for (const name of names) await rm(join(folder, name), { force: true });
}
