import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { cp, mkdtemp, open, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { mergeAdapter } from '../../commands/merge-lora.ts';
import { checkWeights } from '../../policy/checkpoint/checkpoint.ts';
import { readConfig, readModelConfig } from '../../policy/checkpoint/model-folder.ts';
import { LocalPolicy } from '../../policy/local-policy.ts';
import { unpackBlocks } from '../../tensor/graph/operations/blocks.ts';
import { parseConfig } from '../config-json.ts';
import { openWeights, SafetensorsReader } from '../files/safetensors.ts';
import { loadTokenizer, tokenizerFromFiles } from '../tokenizer/load.ts';
import { configOf } from './architectures.ts';
import { type BlockType, decodeBlocks, storageOf, storeBlocks } from './blocks.ts';
import {
  ggufBytes,
  lacksSmollm2,
  SMOLLM2,
  type TensorBytes,
  text,
  u64,
  type Value,
} from './gguf.test-data.ts';
import { readFully, readGgufHeader } from './gguf-file.ts';
import { tokenizerFilesOf } from './gguf-texts.ts';
import { GgufWeights, readRopeFactors } from './gguf-weights.ts';

const golden = fileURLToPath(new URL('../../../test/golden/', import.meta.url));
const folder = await mkdtemp(join(tmpdir(), 'ragen-gguf-'));
t.after(() => rm(folder, { recursive: true }));

async function headerOf(path: string) {
  await using handle = await open(path);
  return await readGgufHeader(handle, path);
}

/** A file of these bytes, as a model's weights. */
async function written(name: string, bytes: Uint8Array): Promise<string> {
  const path = join(folder, name);
  await writeFile(path, bytes);
  return path;
}

t.test('each storage format becomes the numbers of the package gguf, bit for bit', async t => {
  const path = join(golden, 'gguf/blocks.gguf');
  const { tensors } = await headerOf(path);
  await using handle = await open(path);
  const numbers = async (name: string) => {
    const { type, start, end, shape } = tensors.get(name)!;
    const bytes = new Uint8Array(end - start);
    await readFully(handle, bytes, start, path);
    const out = new Float32Array(shape.reduce((a, b) => a * b, 1));
    decodeBlocks(bytes, type, out);
    return new Uint32Array(out.buffer);
  };
  const formats = [...tensors.keys()].filter(name => !name.endsWith('.expected'));
  const all: BlockType[] = [
    'F32',
    'F16',
    'BF16',
    'Q4_0',
    'Q4_1',
    'Q5_0',
    'Q5_1',
    'Q8_0',
    'Q4_K',
    'Q5_K',
    'Q6_K',
  ];
  t.same(formats, all);
  for (const format of formats) {
    t.equal(tensors.get(format)!.type, format);
    t.same(await numbers(format), await numbers(`${format}.expected`), format);
  }
});

t.test('blocks are kept as the numbers of each format', async t => {
  const path = join(golden, 'gguf/blocks.gguf');
  const { tensors } = await headerOf(path);
  await using handle = await open(path);
  for (const [name, { type, start, end, shape }] of tensors) {
    const storage = storageOf(type);
    if (storage === null) continue;
    const bytes = new Uint8Array(end - start);
    await readFully(handle, bytes, start, path);
    const count = shape.reduce((a, b) => a * b, 1);
    const expected = new Float32Array(count);
    decodeBlocks(bytes, type, expected);
    const codes = new Uint8Array((count * storage.bits) / 8);
    const [scales, minimums] = [0, 1].map(() => new Float32Array(count / storage.block));
    storeBlocks(bytes, type, { codes, scales, minimums: storage.minimums ? minimums : null });
    const out = unpackBlocks(
      storage,
      storage.minimums ? [codes, scales, minimums] : [codes, scales],
      new Float32Array(count),
    );
    // Codes of 4 bits with minimums move to their center, which rounds once more.
    const rounds = storage.bits === 4 && storage.minimums;
    const largest = Math.max(...expected.map(Math.abs));
    const worst = Math.max(...out.map((value, i) => Math.abs(value - expected[i])));
    t.ok(rounds ? worst <= largest * 2 ** -23 : worst === 0, `${name}: off by ${worst} of ${largest}`);
  }
});

/** Keys of configs that GGUF has not: ids without a tokenizer, what our golden models alone have, and other spellings. */
const NOT_IN_FILES: string[] = [
  'bosTokenId',
  'eosTokenId',
  'padTokenId',
  'familyKeys',
  'rope',
  'normEpsilon',
];
const NOT_IN_FILES_OF: Record<string, string[]> = {
  mistral: ['architecture'],
  'qwen3-moe': ['layers', 'experts'],
  gemma2: ['attentionScale'],
  smollm3: ['attentionLayers'],
  'gemma3-text': ['attentionScale', 'localRope', 'attentionLayers'],
};

for (const name of [
  'llama3',
  'mistral',
  'qwen3',
  'qwen3-moe',
  'gemma2',
  'gemma3-text',
  'phi4-mini',
  'smollm3',
  'olmo2',
]) {
  t.test(`${name}: a file as llama.cpp's converter writes it is the model that it was made of`, async t => {
    const file = join(golden, `gguf/${name}.gguf`);
    const source = join(golden, 'models/families', name);
    const header = await headerOf(file);
    const handle = await open(file);
    const config = parseConfig(configOf(header, await readRopeFactors(handle, header)));
    const wanted = await readConfig(source);
    for (const key of Object.keys(wanted) as (keyof typeof wanted)[]) {
      // Ids and keys that the files do not have, and Llama 3's frequencies by another name.
      if (NOT_IN_FILES.includes(key) || NOT_IN_FILES_OF[name]?.includes(key)) continue;
      t.same(config[key], wanted[key], key);
    }
    t.equal(Math.fround(config.normEpsilon), Math.fround(wanted.normEpsilon));
    t.equal(config.rope.theta, wanted.rope.theta);
    await using weights = new GgufWeights(handle, header);
    await using original = await SafetensorsReader.open(join(source, 'model.safetensors'));
    for (const tensor of original.tensors.keys()) {
      if (tensor === 'lm_head.weight' && config.tiedEmbeddings) continue;
      // In llama.cpp each layer of that family has experts: the second, which has none, is left out of the file.
      if (name === 'qwen3-moe' && tensor.includes('layers.1.')) continue;
      const read = await weights.read(
        name === 'qwen3-moe' ? tensor.replace('layers.2.', 'layers.1.') : tensor,
      );
      const expected = await original.read(tensor);
      // 1 + w loses bits of w, as in transformers.
      const stored =
        config.normsAddOne && tensor.endsWith('norm.weight')
          ? expected.map(w => Math.fround(1 + w) - 1)
          : expected;
      t.same(read, stored, tensor);
    }
  });
}

const { texts, ids } = JSON.parse(await readFile(join(golden, 'gguf/tokenizers.json'), 'utf8')) as {
  texts: string[];
  ids: { [name: string]: number[][] };
};
for (const [name, expected] of Object.entries(ids)) {
  t.test(`tokenizer ${name} gives the ids of the one that it was made from`, async t => {
    const files = tokenizerFilesOf(await headerOf(join(golden, `gguf/tokenizer-${name}.gguf`)));
    const tokenizer = tokenizerFromFiles(files, name);
    for (const [i, text] of texts.entries())
      t.same(tokenizer.encode(text), expected[i], JSON.stringify(text));
  });
}

/** Qwen2's tiny golden model as a GGUF file of float32, with its tokenizer. */
async function tinyFile(): Promise<{ metadata: Record<string, Value>; tensors: TensorBytes[] }> {
  const source = join(golden, 'models/qwen2-tiny');
  const config = await readConfig(source);
  const { added_tokens, model } = JSON.parse(await readFile(join(source, 'tokenizer.json'), 'utf8'));
  const tokens: string[] = [];
  const kinds = new Int32Array(512).fill(1);
  for (const [token, id] of Object.entries<number>(model.vocab)) tokens[id] = token;
  for (const { id, content } of added_tokens) {
    tokens[id] = content;
    kinds[id] = 3;
  }
  const metadata: Record<string, Value> = {
    'general.architecture': 'qwen2',
    'qwen2.block_count': config.layers,
    'qwen2.context_length': config.maxPositions,
    'qwen2.embedding_length': config.hiddenSize,
    'qwen2.feed_forward_length': config.intermediateSize,
    'qwen2.attention.head_count': config.heads,
    'qwen2.attention.head_count_kv': config.keyValueHeads,
    'qwen2.attention.layer_norm_rms_epsilon': config.normEpsilon,
    'qwen2.rope.freq_base': config.rope.theta,
    'tokenizer.ggml.model': 'gpt2',
    'tokenizer.ggml.pre': 'qwen2',
    'tokenizer.ggml.tokens': tokens,
    'tokenizer.ggml.token_type': kinds,
    'tokenizer.ggml.merges': model.merges.map((pair: string[]) => pair.join(' ')),
    'tokenizer.ggml.eos_token_id': tokens.indexOf('<|im_end|>'),
    'tokenizer.chat_template': await readFile(join(source, 'chat_template.jinja'), 'utf8'),
  };
  const names: [RegExp, string][] = [
    [/^model\.embed_tokens/, 'token_embd'],
    [/^model\.norm/, 'output_norm'],
    [/^lm_head/, 'output'],
    [/^model\.layers\./, 'blk.'],
    [/self_attn\.([qkv])_proj/, 'attn_$1'],
    [/self_attn\.o_proj/, 'attn_output'],
    [/mlp\.(\w+)_proj/, 'ffn_$1'],
    [/input_layernorm/, 'attn_norm'],
    [/post_attention_layernorm/, 'ffn_norm'],
  ];
  await using weights = await SafetensorsReader.open(join(source, 'model.safetensors'));
  const tensors: TensorBytes[] = [];
  for (const { name, shape } of weights.tensors.values()) {
    const bytes = new Uint8Array((await weights.read(name)).buffer);
    const stored = names.reduce((text, [pattern, to]) => text.replace(pattern, to), name);
    tensors.push({ name: stored, shape, type: 0, bytes });
  }
  return { metadata, tensors };
}
const tiny = await tinyFile();

t.test('a policy of a file samples and scores as that of the folder, and its adapters find it', async t => {
  const model = await written('tiny.gguf', ggufBytes(tiny.metadata, tiny.tensors));
  const source = join(golden, 'models/qwen2-tiny');
  const options = { seed: 1, valueHead: false, workers: 1 };
  const lora = { rank: 2, alpha: 4, rankStabilized: false, dora: false, modules: ['q_proj'] as const };
  const ids = (await loadTokenizer(source)).encode('<|im_start|>user\nhi there<|im_end|>\n');
  t.same((await loadTokenizer(model)).encode('<|im_start|>user\nhi there<|im_end|>\n'), ids);
  const scores: unknown[] = [];
  for (const [i, place] of [source, model].entries()) {
    const policy = await LocalPolicy.create({ ...options, model: place, lora });
    const adapter = join(folder, `adapter-${i}`);
    await policy.publish(adapter);
    const tokenIds = Int32Array.from(ids);
    scores.push(await policy.score([{ tokenIds, lossMask: new Uint8Array(ids.length).fill(1, 1) }]));
    await policy.close();
    t.equal((await readModelConfig(adapter)).lora?.rank, 2);
  }
  t.same(scores[1], scores[0]);
  const merged = join(folder, 'merged');
  t.ok((await mergeAdapter(join(folder, 'adapter-1'), merged)) > 0);
  const [one, other] = await Promise.all([merged, source].map(place => loadTokenizer(place)));
  t.same(one.encode('hello'), other.encode('hello'));
});

t.test('broken and hostile files are rejected quickly, with a reason', async t => {
  const plain = { 'general.architecture': 'qwen2' };
  const tensor = (more: Partial<TensorBytes> = {}): TensorBytes => ({
    name: 'x',
    shape: [2, 32],
    type: 0,
    bytes: new Uint8Array(256),
    ...more,
  });
  const whole = ggufBytes(plain, [tensor()]);
  const patched = (at: number, bytes: Uint8Array) => {
    const copy = Buffer.from(whole);
    copy.set(bytes, at);
    return copy;
  };
  const head = (...parts: Uint8Array[]) => Buffer.concat([whole.subarray(0, 8), ...parts]);
  const list = (kind: number, count: bigint) =>
    head(u64(0), u64(1), text('k'), Buffer.from([9, 0, 0, 0, kind, 0, 0, 0]), u64(count));
  const cases: [string, Uint8Array, RegExp][] = [
    ['empty', new Uint8Array(0), /is not a GGUF file: it does not begin with GGUF/],
    ['other', Buffer.from('PK\u0003\u0004 something else'), /does not begin with GGUF/],
    ['version 1', patched(4, Buffer.from([1, 0, 0, 0])), /version 1 is not read; versions 2 and 3 are/],
    ['big-endian', patched(4, Buffer.from([0, 0, 0, 3])), /\(a big-endian file\)/],
    ['tensors without end', patched(8, u64(2n ** 63n)), /holds the number 9223372036854775808/],
    ['many tensors', patched(8, u64(2 ** 40)), /has 1099511627776 tensors; at most 131072 are read/],
    ['more tensors than there are', patched(8, u64(100_000)), /tensor 2 of 100000 has the name ""/],
    ['many keys', patched(16, u64(2 ** 40)), /keys of metadata; at most/],
    ['a long key', head(u64(0), u64(1), u64(2 ** 30)), /bytes of text; at most 256 are read/],
    [
      'a long text',
      head(u64(0), u64(1), text('k'), Buffer.from([8, 0, 0, 0]), u64(2 ** 27)),
      /ends inside the metadata "k"/,
    ],
    ['a list of texts that are not there', list(8, 2n ** 24n), /ends inside the metadata "k"/],
    ['a list of numbers that are not there', list(6, 2n ** 25n), /ends inside the metadata "k"/],
    ['a list of lists', list(9, 1n), /is a list of lists/],
    ['a list longer than any', list(4, 2n ** 50n), /elements; at most/],
    ['a type that is none', list(77, 1n), /has type 77/],
    [
      'a key twice',
      head(
        u64(0),
        u64(2),
        ...Array(2)
          .fill([text('k'), Buffer.from([7, 0, 0, 0, 1])])
          .flat(),
      ),
      /"k" is there twice/,
    ],
    ['control characters', head(u64(0), u64(1), text('a\u001b[2Jb')), /has the name "a\\u001b\[2Jb"/],
    ['a tensor twice', ggufBytes(plain, [tensor(), tensor()]), /tensor "x" is there twice/],
    [
      'an overlap',
      ggufBytes(plain, [tensor(), tensor({ name: 'y', offset: 128 })]),
      /tensor "y" shares bytes with "x"/,
    ],
    ['behind the end', ggufBytes(plain, [tensor({ offset: 4096 })]), /needs bytes \d+ to \d+ of a file of/],
    ['far behind the end', ggufBytes(plain, [tensor({ offset: 2 ** 52 })]), /needs bytes/],
    [
      'unaligned',
      ggufBytes(plain, [tensor({ offset: 1 }), tensor({ name: 'y' })]),
      /no multiple of 32 bytes/,
    ],
    [
      'alignment 0',
      ggufBytes({ ...plain, 'general.alignment': 0 }, [tensor()]),
      /"general.alignment" must be/,
    ],
    [
      'huge shape',
      ggufBytes(plain, [tensor({ shape: [2 ** 30, 2 ** 30] })]),
      /has shape \[1073741824, 1073741824\]/,
    ],
    ['no elements', ggufBytes(plain, [tensor({ shape: [0, 32] })]), /has shape \[0, 32\]/],
    ['five dimensions', ggufBytes(plain, [tensor({ shape: [1, 1, 1, 1, 32] })]), /has 5 dimensions/],
    [
      'part of a block',
      ggufBytes(plain, [tensor({ shape: [2, 31], type: 3 })]),
      /rows of 31 elements, no multiple of the 32/,
    ],
    [
      'a format that is not read',
      ggufBytes(plain, [tensor({ type: 11 })]),
      /stored as Q3_K, which is not read; readable are F32,/,
    ],
    ['an unknown format', ggufBytes(plain, [tensor({ type: 200 })]), /stored as type 200/],
    ['cut off', whole.subarray(0, whole.length - 32), /needs bytes \d+ to \d+ of a file of/],
  ];
  for (const [name, bytes, message] of cases) {
    const path = await written(`${name}.gguf`, bytes);
    const began = performance.now();
    await t.rejects(readConfig(path), { message }, name);
    await t.rejects(openWeights(join(path, 'model.safetensors')), { name: 'GgufError', message }, name);
    t.ok(performance.now() - began < 2000, name);
  }
  for (let length = 0; length < whole.length; length += 7) {
    const path = await written('cut.gguf', whole.subarray(0, length));
    await t.rejects(openWeights(join(path, 'model.safetensors')), { name: 'GgufError' }, `${length} bytes`);
  }
});

t.test('metadata that would make another model is rejected by name', async t => {
  const { metadata, tensors } = tiny;
  const refused = async (changes: Record<string, Value | undefined>, message: RegExp, others = tensors) => {
    const changed = Object.entries({ ...metadata, ...changes }).filter(([, value]) => value !== undefined);
    const path = await written('other.gguf', ggufBytes(Object.fromEntries(changed) as never, others));
    const load = async () => {
      await checkWeights(path, await readConfig(path));
      await loadTokenizer(path);
    };
    await t.rejects(load(), { message });
  };
  await refused(
    { 'general.architecture': 'mamba' },
    /the architecture "mamba" is not supported; supported: llama, qwen2/,
  );
  await refused(
    { 'qwen2.attention.scale': 0.5 },
    /qwen2.attention.scale is not supported for this architecture/,
  );
  await refused(
    { 'qwen2.attention.head_count_kv': Int32Array.of(1, 2) },
    /head_count_kv must be a number, the same for each/,
  );
  await refused({ 'qwen2.block_count': undefined }, /qwen2.block_count is missing/);
  await refused({ 'qwen2.block_count': 3 }, /layers\.2\..* is missing/);
  await refused({ 'qwen2.rope.scaling.type': 'su' }, /rope.scaling.type "su" is not supported/);
  await refused({ 'split.count': 2 }, /is one of several files: merge them with llama-gguf-split --merge/);
  await refused(
    { 'tokenizer.ggml.pre': 'falcon' },
    /tokenizer.ggml.pre "falcon" is not supported; supported: gpt-2, smollm/,
  );
  await refused({ 'tokenizer.ggml.pre': undefined }, /tokenizer.ggml.pre is missing and is not supported/);
  await refused({ 'tokenizer.ggml.model': 't5' }, /tokenizer.ggml.model "t5" is not supported/);
  await refused(
    { 'tokenizer.ggml.token_type': Int32Array.of(1) },
    /token_type must have a number for each token/,
  );
  await refused({ 'tokenizer.ggml.tokens': Array(512).fill('a') }, /the token "a" is there twice/);
  const extra = { name: 'blk.0.attn_q.extra', shape: [4], type: 0, bytes: new Uint8Array(16) };
  await refused({}, /holds 1 tensors that this architecture does not have, such as blk.0.attn_q.extra/, [
    ...tensors,
    extra,
  ]);
});

t.test(
  'a pipe and a link out of the folder are not opened, and a folder may be called like a file',
  async t => {
    execFileSync('mkfifo', [join(folder, 'pipe.gguf')]);
    await t.rejects(readConfig(join(folder, 'pipe.gguf')), /cannot read|no such|ENOTDIR/);
    await symlink('/etc/hostname', join(folder, 'link.gguf'));
    await t.rejects(readConfig(join(folder, 'link.gguf')), /outside the model's folder/);
    const named = join(folder, 'folder.gguf');
    await cp(join(golden, 'models/qwen2-tiny'), named, { recursive: true });
    await checkWeights(named, await readConfig(named));
  },
);

t.test(
  'SmolLM2 is what transformers reads of its file',
  { skip: lacksSmollm2, timeout: 120_000 },
  async t => {
    const config = await readConfig(SMOLLM2);
    await checkWeights(SMOLLM2, config);
    await using weights = await openWeights(join(SMOLLM2, 'model.safetensors'));
    const hash = createHash('sha256');
    // By test/golden/make-gguf.py.
    for (const name of [...weights.tensors.keys()].sort())
      hash.update(name).update(new Uint8Array((await weights.read(name)).buffer));
    t.equal(hash.digest('hex'), '785e20b3e653276b0579b744214a1186d730ba80af04f397f642d6432e5e0154');
    const tokenizer = await loadTokenizer(SMOLLM2);
    t.same(tokenizer.encode('Hello 123<|im_end|>\n'), [19556, 216, 33, 34, 35, 2, 198]);
    // By `tokenizers` 0.23.
    const digits = [
      173, 235, 250, 216, 19133, 216, 16738, 216, 173, 223, 117, 216, 164, 113, 216, 33, 34, 164, 114,
    ];
    t.same(tokenizer.encode('① ² ½ Ⅷ ٣ 12٤'), digits);
  },
);
