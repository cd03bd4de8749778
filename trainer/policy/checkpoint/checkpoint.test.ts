import { mkdtemp, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { scratchConfig } from '../../models/config.ts';
import { SafetensorsReader, writeSafetensors } from '../../models/files/safetensors.ts';
import type { LocalPolicy } from '../local-policy.ts';
import { closing, play, policyWith, settingsWith, vocabularySize, weightsOf } from '../policies.test-data.ts';

const folder = await mkdtemp(join(tmpdir(), 'ragen-policy-'));
t.after(() => rm(folder, { recursive: true }));

t.test('four steps are two steps, a save, a load and two steps, bit for bit', async t => {
  const step = async (policy: LocalPolicy) =>
    policy.update({ sequences: await play(policy, 6) }, settingsWith());
  const straight = await closing(t, policyWith({ workers: 2 }));
  for (let i = 0; i < 4; i++) await step(straight);
  const first = await closing(t, policyWith({ workers: 2 }));
  for (let i = 0; i < 2; i++) await step(first);
  const saved = join(folder, 'resume');
  await first.save(saved);
  const second = await closing(t, policyWith({ workers: 2, seed: 99 }));
  await second.load(saved);
  t.equal(second.version, 2);
  for (let i = 0; i < 2; i++) await step(second);
  const [a, b] = [await weightsOf(straight), await weightsOf(second)];
  t.ok(a.every((file, i) => file.equals(b[i])));
  t.equal(second.version, 4);
});

t.test('a saved folder is a model to start from, and another model is refused', async t => {
  const files = { 'tokenizer.json': '{"x":1}' };
  const policy = await closing(t, policyWith({ files }));
  const saved = join(folder, 'model');
  await policy.save(saved);
  t.same((await readdir(saved)).sort(), [
    'config.json',
    'model.safetensors',
    'model.safetensors.index.json',
    'optimizer',
    'tokenizer.json',
    'value_head.safetensors',
  ]);
  const again = await closing(t, policyWith({ model: saved, seed: 8 }));
  const [a, b] = [await weightsOf(policy), await weightsOf(again)];
  t.ok(a[0].equals(b[0]) && a[1].equals(b[1]));
  const { weight_map } = JSON.parse(await readFile(join(saved, 'model.safetensors.index.json'), 'utf8'));
  t.same([...new Set(Object.values(weight_map))], ['model.safetensors'], 'engines read the model alone');
  const other = await closing(t, policyWith({ model: scratchConfig({ vocabularySize }) }));
  await t.rejects(other.load(saved), /holds another model: hiddenSize, intermediateSize/);
  await writeFile(join(saved, 'model.safetensors'), 'broken');
  await t.rejects(policyWith({ model: saved }), /not a safetensors file/);
});

t.test(
  'weights in bfloat16 are rounded, moments and value head exact, and learning continues from them',
  async t => {
    const first = await closing(t, policyWith({}));
    await first.update({ sequences: await play(first, 4) }, settingsWith());
    const [exact, rounded] = ['exact', 'rounded'].map(name => join(folder, name));
    await first.save(exact);
    await first.save(rounded, 'bfloat16');
    const config = async (place: string) => JSON.parse(await readFile(join(place, 'config.json'), 'utf8'));
    t.same(await config(rounded), { ...(await config(exact)), torch_dtype: 'bfloat16' });
    for (const name of [
      'optimizer/optimizer.json',
      'optimizer/optimizer.safetensors',
      'value_head.safetensors',
    ]) {
      t.ok((await readFile(join(rounded, name))).equals(await readFile(join(exact, name))), name);
    }
    await using a = await SafetensorsReader.open(join(exact, 'model.safetensors'));
    await using b = await SafetensorsReader.open(join(rounded, 'model.safetensors'));
    for (const { name, type } of b.tensors.values()) {
      t.equal(type, 'BF16');
      const [x, y] = [await a.read(name), await b.read(name)];
      t.ok(
        x.every((value, i) => Math.abs(value - y[i]) <= Math.abs(value) / 256),
        name,
      );
    }
    const second = await closing(t, policyWith({ seed: 99 }));
    await second.load(rounded);
    t.equal(second.version, 1);
    await second.save(join(folder, 'again'), 'bfloat16');
    const files = await Promise.all(
      [rounded, join(folder, 'again')].map(place => readFile(join(place, 'model.safetensors'))),
    );
    t.ok(files[0].equals(files[1]), 'rounding twice changes nothing');
    await second.update({ sequences: await play(second, 4) }, settingsWith());
  },
);

t.test(
  'a checkpoint with its optimizer next to the weights, as older versions wrote it, still opens',
  async t => {
    const first = await closing(t, policyWith({}));
    await first.update({ sequences: await play(first, 4) }, settingsWith());
    const [saved, old] = ['new', 'old'].map(name => join(folder, name));
    await first.save(saved);
    await first.save(old);
    for (const name of await readdir(join(old, 'optimizer')))
      await rename(join(old, 'optimizer', name), join(old, name));
    await rm(join(old, 'optimizer'), { recursive: true });
    await rm(join(old, 'model.safetensors.index.json'));
    const again = await closing(t, policyWith({ seed: 7 }));
    await again.load(old);
    t.equal(again.version, 1);
    await again.save(join(folder, 'from-old'));
    for (const name of ['model.safetensors', 'optimizer/optimizer.safetensors', 'optimizer/optimizer.json']) {
      const [a, b] = await Promise.all(
        [saved, join(folder, 'from-old')].map(place => readFile(join(place, name))),
      );
      t.ok(a.equals(b), name);
    }
  },
);

t.test('a checkpoint without one of its files is refused by the name of the file', async t => {
  const policy = await closing(t, policyWith({}));
  const saved = join(folder, 'parted');
  await policy.save(saved);
  for (const name of [
    'value_head.safetensors',
    'optimizer/optimizer.json',
    'optimizer/optimizer.safetensors',
  ]) {
    const bytes = await readFile(join(saved, name));
    await rm(join(saved, name));
    await t.rejects(policy.load(saved), { message: new RegExp(`parted/${name}`) });
    await writeFile(join(saved, name), bytes);
  }
  await writeFile(join(saved, 'optimizer/optimizer.json'), '{"step":"x","version":1}');
  await t.rejects(policy.load(saved), /optimizer.json must hold `step` and `version`, integers from 0/);
  await rm(join(saved, 'optimizer'), { recursive: true });
  await policy.load(saved);
});

t.test('a base with tensors that its architecture lacks is refused, and errors name the file', async t => {
  const policy = await closing(t, policyWith({}));
  const saved = join(folder, 'biased');
  await policy.save(saved);
  await using before = await SafetensorsReader.open(join(saved, 'model.safetensors'));
  const tensors = await Promise.all(
    [...before.tensors.values()].map(async ({ name, shape }) => ({
      name,
      shape,
      data: await before.read(name),
    })),
  );
  const bias = { name: 'model.layers.0.mlp.up_proj.bias', shape: [1], data: new Float32Array(1) };
  const table = {
    name: 'model.layers.0.self_attn.rotary_emb.inv_freq',
    shape: [1],
    data: new Float32Array(1),
  };
  await writeSafetensors(join(saved, 'model.safetensors'), [...tensors, table]);
  await (await policyWith({ model: saved })).close();
  await writeSafetensors(join(saved, 'model.safetensors'), [...tensors, table, bias]);
  await t.rejects(policyWith({ model: saved }), {
    message:
      /model\.safetensors holds 1 tensors that this architecture does not have, such as .*up_proj\.bias/,
  });
  await writeFile(join(saved, 'config.json'), '{"model_type": "gpt2"}');
  await t.rejects(policyWith({ model: saved }), {
    message: /biased\/config\.json: model_type "gpt2" is not supported/,
  });
});

t.test(
  'a checkpoint of transformers is scored as transformers scores it, with a value head of 0',
  async t => {
    const golden = new URL('../../../test/golden/models/qwen3-tiny/', import.meta.url);
    const { forward } = JSON.parse(await readFile(new URL('expected.json', golden), 'utf8'));
    const policy = await closing(t, policyWith({ model: golden.pathname, grammars: {} }));
    const tokenIds = Int32Array.from(forward.input_ids[0]);
    const [score] = await policy.score([
      { tokenIds, lossMask: Uint8Array.from(tokenIds, (_, i) => (i % 3 === 2 ? 1 : 0)) },
    ]);
    score.logProbs.forEach((logProb, i) => {
      const expected = i % 3 === 2 ? forward.next_token_logprob[0][i - 1] : 0;
      t.ok(Math.abs(logProb - expected) < 1e-5, `log-probability of token ${i}`);
    });
    t.ok(score.values!.every(value => value === 0));
  },
);
