import { readFileSync } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { JsonObject } from '../../shared/json.ts';
import type { DecoderConfig } from '../../trainer/models/config.ts';
import { configToJson, parseConfig } from '../../trainer/models/config-json.ts';
import { writeShardedSafetensors } from '../../trainer/models/files/safetensors.ts';
import { parameterSpecs } from '../../trainer/models/parameters.ts';
import { WEIGHTS_FILE } from '../../trainer/policy/checkpoint/checkpoint.ts';
import { CONFIG_FILE } from '../../trainer/policy/checkpoint/model-folder.ts';
import { ParameterStore } from '../../trainer/tensor/runtime/parameter-store.ts';

/** A uniform variable on [−½, ½) times this has variance 1. */
const UNIFORM_SCALE = Math.sqrt(12);
/** Multiplier and increment of a linear congruential generator modulo 2³² (Knuth; Press et al., 1992). */
const MULTIPLIER = 1_664_525;
const INCREMENT = 1_013_904_223;

/**
 * Writes a model in the Hugging Face layout with random weights: uniform with the standard deviation that the model's start
 * has, as drawing them must not take minutes.
 * @returns how many weights it has
 */
export async function writeRandomModel(
  folder: string,
  config: DecoderConfig,
  { type, seed }: { readonly type: 'BF16' | 'F32'; readonly seed: number },
): Promise<number> {
  const specs = parameterSpecs(config, false);
  const weights = new ParameterStore(specs);
  let state = seed >>> 0;
  const scale = (UNIFORM_SCALE * config.initializerRange) / 2 ** 32;
  for (const { name, start } of specs) {
    const array = weights.array(name);
    if (start !== 'normal') array.fill(start === 'ones' ? 1 : 0);
    else {
      for (let i = 0; i < array.length; i++) {
        state = (Math.imul(state, MULTIPLIER) + INCREMENT) | 0;
        array[i] = scale * state;
      }
    }
  }
  await mkdir(folder, { recursive: true });
  const tensors = specs.map(({ name, shape }) => ({ name, shape, data: weights.array(name) }));
  await writeShardedSafetensors(join(folder, WEIGHTS_FILE), tensors, { type });
  const json = { ...configToJson(config), torch_dtype: type === 'BF16' ? 'bfloat16' : 'float32' };
  await writeFile(join(folder, CONFIG_FILE), `${JSON.stringify(json, null, 2)}\n`);
  return weights.size;
}

/** Shapes of published models, as their `config.json` has them; only the weights are missing. */
const CONFIGS: { readonly [name: string]: JsonObject | undefined } = JSON.parse(
  readFileSync(new URL('./published.json', import.meta.url), 'utf8'),
);

export const PUBLISHED_SHAPES = Object.keys(CONFIGS);

/** @throws RangeError listing the shapes when the name is not one of them */
export function publishedConfig(name: string): DecoderConfig {
  const json = CONFIGS[name];
  if (json === undefined)
    throw new RangeError(`no shape is named ${name}; choose ${PUBLISHED_SHAPES.join(', ')}`);
  return parseConfig(json);
}
