import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { Random } from '../../shared/random.ts';
import { LORA_MODULES } from '../models/adapters/lora.ts';
import { ggufBytes, type TensorBytes } from '../models/gguf/gguf.test-data.ts';
import type { LocalPolicyOptions } from './local-policy.ts';
import { closing, config, largestDifference, play, policyWith, settingsWith } from './policies.test-data.ts';

const folder = await mkdtemp(join(tmpdir(), 'ragen-blocks-'));
t.after(() => rm(folder, { recursive: true }));

const [WIDTH, MIDDLE, VOCABULARY] = [64, 256, 24];
const TYPES = { F32: 0, Q4_1: 3, Q8_0: 8, Q4_K: 12, Q6_K: 14 } as const;
const BYTES = { Q4_1: [32, 20], Q8_0: [32, 34], Q4_K: [256, 144], Q6_K: [256, 210] } as const;
/** Places of half-precision numbers in a block: scales and minimums. */
const HALVES = { Q4_1: [0, 2], Q8_0: [0], Q4_K: [0, 2], Q6_K: [208] } as const;
/** Exponents that give weights of about 0.2. */
const EXPONENT = { Q4_1: 9, Q8_0: 4, Q4_K: 4, Q6_K: 1 } as const;
const rng = Random.fromSeed(5);

function matrix(name: string, shape: readonly [number, number], type: keyof typeof BYTES): TensorBytes {
  const [elements, size] = BYTES[type];
  const count = (shape[0] * shape[1]) / elements;
  const bytes = Uint8Array.from({ length: count * size }, () => rng.integer(256));
  for (let block = 0; block < count; block++) {
    for (const at of HALVES[type]) {
      // A minimum of ggml's oldest format is negative, a later one is subtracted.
      const sign = type === 'Q4_1' && at === 2 ? 0x80 : 0;
      const exponent = EXPONENT[type] + (sign ? 3 : 0);
      bytes[block * size + at + 1] = sign | (exponent << 2) | rng.integer(4);
    }
  }
  return { name, shape, type: TYPES[type], bytes };
}

const norm = (name: string): TensorBytes => ({
  name,
  shape: [WIDTH],
  type: TYPES.F32,
  bytes: new Uint8Array(new Float32Array(WIDTH).fill(1).buffer),
});

const file = join(folder, 'blocks.gguf');
await writeFile(
  file,
  ggufBytes(
    {
      'general.architecture': 'llama',
      'llama.block_count': 1,
      'llama.context_length': 128,
      'llama.embedding_length': WIDTH,
      'llama.feed_forward_length': MIDDLE,
      'llama.attention.head_count': 4,
      'llama.attention.head_count_kv': 2,
      'llama.attention.layer_norm_rms_epsilon': 1.5e-6,
      'llama.rope.freq_base': 10_000.5,
      'tokenizer.ggml.model': 'gpt2',
      'tokenizer.ggml.pre': 'gpt-2',
      'tokenizer.ggml.tokens': Array.from({ length: VOCABULARY }, (_, i) => `t${i}`),
      'tokenizer.ggml.token_type': new Int32Array(VOCABULARY).fill(1),
      'tokenizer.ggml.merges': [],
    },
    [
      matrix('token_embd.weight', [VOCABULARY, WIDTH], 'Q8_0'),
      norm('blk.0.attn_norm.weight'),
      matrix('blk.0.attn_q.weight', [WIDTH, WIDTH], 'Q4_1'),
      matrix('blk.0.attn_k.weight', [WIDTH / 2, WIDTH], 'Q4_1'),
      matrix('blk.0.attn_v.weight', [WIDTH / 2, WIDTH], 'Q8_0'),
      matrix('blk.0.attn_output.weight', [WIDTH, WIDTH], 'Q4_1'),
      norm('blk.0.ffn_norm.weight'),
      matrix('blk.0.ffn_gate.weight', [MIDDLE, WIDTH], 'Q4_1'),
      matrix('blk.0.ffn_up.weight', [MIDDLE, WIDTH], 'Q8_0'),
      matrix('blk.0.ffn_down.weight', [WIDTH, MIDDLE], 'Q6_K'),
      norm('output_norm.weight'),
      matrix('output.weight', [VOCABULARY, WIDTH], 'Q4_1'),
    ],
  ),
);

const lora = { rank: 2, alpha: 4, rankStabilized: false, dora: false, modules: LORA_MODULES };
const open = (basePrecision: LocalPolicyOptions['basePrecision'], more: Partial<LocalPolicyOptions> = {}) =>
  policyWith({ model: file, basePrecision, seed: 7, ...more });

for (const dora of [false, true]) {
  t.test(`${dora ? 'DoRA' : 'LoRA'} over blocks scores and learns as over float32`, async t => {
    const adapted = { lora: { ...lora, dora }, recompute: true, workers: 2 };
    const blocks = await closing(t, open('blocks', adapted));
    const float = await closing(t, open('float32', adapted));
    t.match(blocks.description, /the others as blocks/);
    t.equal(blocks.parameterCount, float.parameterCount);
    const sequences = await play(blocks, 4);
    for (let step = 0; step < 3; step++) {
      const [a, b] = await Promise.all([blocks, float].map(policy => policy.score(sequences)));
      a.forEach(({ logProbs }, i) => {
        t.ok(largestDifference(logProbs, b[i].logProbs) < 1e-4, `step ${step}, scores of ${i}`);
      });
      const settings = settingsWith({}, { learningRate: 1e-2 });
      const [x, y] = await Promise.all([blocks, float].map(policy => policy.update({ sequences }, settings)));
      for (const [name, value] of Object.entries(y)) {
        t.ok(Math.abs(x[name] - value) <= 1e-3 * Math.max(1, Math.abs(value)), `step ${step}: ${name}`);
      }
    }
    // Sampling rounds what products read to 8 bits, in blocks of 16 or 32.
    const again = await play(blocks, 8);
    const scores = await blocks.score(again);
    again.forEach(({ logProbs }, i) => {
      const difference = largestDifference(scores[i].logProbs, logProbs);
      t.ok(difference > 0 && difference < 0.1, `sampled as scored but for rounding, ${i}: ${difference}`);
    });
    const saved = join(folder, `saved-${dora}`);
    await blocks.save(saved);
    const resumed = await closing(t, open('blocks', { ...adapted, model: saved, base: file }));
    await resumed.load(saved);
    const files: Buffer[] = [];
    for (const [i, policy] of [blocks, resumed].entries()) {
      await policy.update({ sequences }, settingsWith());
      await policy.save(`${saved}-${i}`);
      files.push(await readFile(join(`${saved}-${i}`, 'adapter_model.safetensors')));
    }
    t.ok(files[0].equals(files[1]), 'it resumes bit for bit');
  });
}

t.test(
  'a model that only generates is kept in blocks, and a sequence is the same in any company',
  async t => {
    const only = { generationOnly: true, valueHead: false, grammars: {} };
    const blocks = await closing(t, open('blocks', only));
    const float = await closing(t, open('float32', only));
    t.match(blocks.description, /weights in the blocks of their file/);
    t.equal(blocks.parameterCount, float.parameterCount);
    const sampling = { temperature: 1, topK: 0, topP: 1, maxNewTokens: 20, stopTokenIds: [] };
    const generate = (sequenceId: number, length: number) =>
      blocks.generate({
        sequenceId,
        append: Int32Array.from({ length }, (_, i) => (i * 7 + length) % VOCABULARY),
        seed: length,
        sampling,
      });
    const alone = [];
    for (let i = 0; i < 7; i++) alone.push(await generate(i, i + 1));
    const together = await Promise.all(alone.map((_, i) => generate(10 + i, i + 1)));
    alone.forEach((generation, i) => {
      t.same(together[i].tokenIds, generation.tokenIds, `tokens of ${i}`);
      t.same(together[i].logProbs, generation.logProbs, `log-probabilities of ${i}`);
    });
    const lossMask = new Uint8Array(21).fill(1, 1);
    const sequences = alone.slice(0, 1).map(({ tokenIds }) => ({
      tokenIds: Int32Array.from([1, ...tokenIds]),
      lossMask,
    }));
    const [[a], [b]] = await Promise.all([blocks, float].map(policy => policy.score(sequences)));
    t.ok(largestDifference(a.logProbs, b.logProbs) < 1e-4);
    t.ok(largestDifference(a.logProbs.slice(1), alone[0].logProbs) < 0.1);
  },
);

t.test('blocks are refused where there are none, or what is in them would be learned', async t => {
  await t.rejects(open('blocks'), /base precision blocks is of frozen weights/);
  await t.rejects(open('blocks', { lora, quantization: 'nf4' }), /not of weights that are quantized as nf4/);
  const scratch = policyWith({ model: config, basePrecision: 'blocks', generationOnly: true });
  await t.rejects(scratch, /takes a GGUF file with weights in blocks/);
  for (const options of [{ lora }, { generationOnly: true }]) {
    const small = await closing(t, open('auto', options));
    t.notMatch(small.description, /blocks/, 'not where it gains nothing');
  }
});
