/**
 * Writes a checkpoint in the Hugging Face layout with the shape of a published model and random weights, to see what a
 * model of this size takes where its own weights are not at hand.
 *
 *     npm run make-checkpoint -- --shape qwen2.5-0.5b --out /tmp/half-billion
 *     npm run make-checkpoint -- --shape qwen3-0.6b --out /tmp/a --tokenizer folder --type F32 --seed 1
 *
 * `--tokenizer` names a folder with the tokenizer to copy.
 */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { loadTokenizer } from '../trainer/models/tokenizer/load.ts';
import { PUBLISHED_SHAPES, publishedConfig, writeRandomModel } from './compute/random-model.ts';
import { scriptFlags } from './flags.ts';

const { values: flags } = scriptFlags(import.meta.filename, {
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
const count = await writeRandomModel(flags.out, publishedConfig(flags.shape), {
  type: flags.type,
  seed: Number(flags.seed),
});
if (flags.tokenizer !== undefined) {
  const { files } = await loadTokenizer(flags.tokenizer);
  for (const [name, text] of Object.entries(files)) await writeFile(join(flags.out, name), text);
}
console.log(`${flags.out}: ${flags.shape}, ${count.toLocaleString('en')} random weights, ${flags.type}`);
