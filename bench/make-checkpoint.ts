/**
 * Writes a checkpoint in the Hugging Face layout with the shape of a published model and random weights, to see what a
 * model of this size takes where its own weights are not at hand.
 *
 *     npm run make-checkpoint -- --shape qwen2.5-0.5b --out /tmp/half-billion
 *     npm run make-checkpoint -- --shape qwen3-0.6b --out /tmp/a --tokenizer folder --type F32 --seed 1
 *
 * Weights are uniform with the standard deviation that the model's own start has: drawing them must not take minutes.
 * `--tokenizer` names a folder whose tokenizer goes along.
 */

import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { configToJson } from '../trainer/models/config-json.ts';
import { writeShardedSafetensors } from '../trainer/models/files/sharded-safetensors.ts';
import { parameterSpecs } from '../trainer/models/parameters.ts';
import { loadTokenizer } from '../trainer/models/tokenizer/load.ts';
import { WEIGHTS_FILE } from '../trainer/policy/checkpoint/checkpoint.ts';
import { CONFIG_FILE } from '../trainer/policy/checkpoint/model-folder.ts';
import { ParameterStore } from '../trainer/tensor/runtime/parameter-store.ts';
import { PUBLISHED_SHAPES, publishedConfig } from './compute/published.ts';

/** A uniform variable on [−½, ½) times this has variance 1. */
const UNIFORM_SCALE = Math.sqrt(12);
/** Multiplier and increment of a linear congruential generator modulo 2³² (Knuth; Press et al., 1992). */
const MULTIPLIER = 1_664_525;
const INCREMENT = 1_013_904_223;

const { values: flags } = parseArgs({
  options: {
    shape: { type: 'string', default: 'qwen2.5-0.5b' },
    out: { type: 'string' },
    tokenizer: { type: 'string' },
    type: { type: 'string', default: 'BF16' },
    seed: { type: 'string', default: '0' },
  },
});
if (flags.out === undefined) {
  throw new RangeError(`--out must name a folder; --shape is one of ${PUBLISHED_SHAPES.join(', ')}`);
}
if (flags.type !== 'BF16' && flags.type !== 'F32') {
  throw new RangeError(`--type must be BF16 or F32, got ${flags.type}`);
}
const config = publishedConfig(flags.shape);
const specs = parameterSpecs(config, false);
const weights = new ParameterStore(specs);
let state = Number(flags.seed) >>> 0;
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
await mkdir(flags.out, { recursive: true });
const tensors = specs.map(({ name, shape }) => ({ name, shape, data: weights.array(name) }));
await writeShardedSafetensors(join(flags.out, WEIGHTS_FILE), tensors, { type: flags.type });
const json = {
  ...configToJson(config),
  torch_dtype: flags.type === 'BF16' ? 'bfloat16' : 'float32',
};
await writeFile(join(flags.out, CONFIG_FILE), `${JSON.stringify(json, null, 2)}\n`);
if (flags.tokenizer !== undefined) {
  const { files } = await loadTokenizer(flags.tokenizer);
  for (const [name, text] of Object.entries(files)) await writeFile(join(flags.out, name), text);
}
console.log(
  `${flags.out}: ${flags.shape}, ${weights.size.toLocaleString('en')} random weights, ${flags.type}`,
);
