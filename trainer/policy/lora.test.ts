import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { mergeAdapter } from '../commands/merge-lora.ts';
import type { LoraConfig } from '../models/adapters/lora.ts';
import { SafetensorsReader } from '../models/files/safetensors.ts';
import { WebGpuRuntime } from '../tensor/runtime/webgpu/webgpu-runtime.ts';
import type { LocalPolicy, LocalPolicyOptions } from './local-policy.ts';
import { closing, largestDifference, play, policyWith, settingsWith } from './policies.test-data.ts';
import type { ScoreRequest } from './policy.ts';

const folder = await mkdtemp(join(tmpdir(), 'ragen-lora-'));
t.after(() => rm(folder, { recursive: true }));
const found = await WebGpuRuntime.open();
await found?.close();

const lora: LoraConfig = {
  rank: 2,
  alpha: 4,
  rankStabilized: false,
  dora: false,
  modules: ['q_proj', 'v_proj', 'up_proj'],
};
const base = join(folder, 'base');
await (async () => {
  const policy = await policyWith({ seed: 11 });
  await policy.save(base);
  await policy.close();
})();

const adapted = (options: Partial<LocalPolicyOptions> = {}): Promise<LocalPolicy> =>
  policyWith({ model: base, lora, ...options });
const step = async (policy: LocalPolicy, count = 6) =>
  policy.update({ sequences: await play(policy, count) }, settingsWith({}, { learningRate: 1e-2 }));
const filesOf = async (policy: LocalPolicy, name: string): Promise<Buffer[]> => {
  const saved = join(folder, name);
  await policy.save(saved);
  const files = ['adapter_model.safetensors', 'value_head.safetensors', 'optimizer/optimizer.safetensors'];
  return Promise.all(files.map(file => readFile(join(saved, file))));
};
const scoresDiffer = async (a: Promise<readonly { logProbs: Float32Array }[]>, b: typeof a) => {
  const [x, y] = await Promise.all([a, b]);
  return Math.max(...x.map(({ logProbs }, i) => largestDifference(logProbs, y[i].logProbs)));
};

t.test('a fresh adapter changes nothing; what it learns, the reference and the base do not', async t => {
  const whole = await closing(t, policyWith({ model: base }));
  const policy = await closing(t, adapted({ workers: 2 }));
  t.equal(policy.parameterCount - whole.parameterCount, 2 * (2 * 16 + 16 + 8 + 16 + 40));
  t.equal(policy.trainedCount, policy.parameterCount - whole.parameterCount + 17);
  t.match(policy.description, /LoRA of rank 2 on q_proj, v_proj, up_proj, \d+ of \d+ weights learned$/);
  const sequences: readonly ScoreRequest[] = await play(policy, 5);
  t.ok((await scoresDiffer(policy.score(sequences), whole.score(sequences))) < 1e-6);
  for (let i = 0; i < 3; i++) await step(policy);
  t.ok((await scoresDiffer(policy.score(sequences), whole.score(sequences))) > 1e-3, 'it has learned');
  t.equal(await scoresDiffer(policy.scoreReference(sequences), whole.score(sequences)), 0);
  t.notOk('values' in (await policy.scoreReference(sequences))[0]);
  const episodes = await play(policy, 5);
  const scores = await policy.score(episodes);
  episodes.forEach(({ logProbs }, n) => {
    t.ok(largestDifference(scores[n].logProbs, logProbs) < 1e-4, `sampled as scored, episode ${n}`);
  });
  const saved = join(folder, 'learned');
  await policy.save(saved);
  t.same((await readdir(saved)).sort(), [
    'adapter_config.json',
    'adapter_model.safetensors',
    'optimizer',
    'value_head.safetensors',
  ]);
  await using optimizer = await SafetensorsReader.open(join(saved, 'optimizer/optimizer.safetensors'));
  t.ok([...optimizer.tensors.keys()].every(name => /lora_|value_head/.test(name)));
  await policy.loadReference(saved);
  t.equal(await scoresDiffer(policy.scoreReference(sequences), policy.score(sequences)), 0);
});

t.test('with dropout, four steps are two steps, a save, a load and two steps, bit for bit', async t => {
  const dropping = { workers: 2, recompute: true, loraDropout: 0.2 };
  const straight = await closing(t, adapted(dropping));
  for (let i = 0; i < 4; i++) await step(straight);
  const first = await closing(t, adapted(dropping));
  for (let i = 0; i < 2; i++) await step(first);
  const saved = join(folder, 'half');
  await first.save(saved);
  const second = await closing(t, policyWith({ model: saved, ...dropping }));
  await second.load(saved);
  t.equal(second.version, 2);
  for (let i = 0; i < 2; i++) await step(second);
  const [a, b] = [await filesOf(straight, 'straight'), await filesOf(second, 'second')];
  t.ok(a.every((file, i) => file.equals(b[i])));
  t.match(await readFile(join(folder, 'second/adapter_config.json'), 'utf8'), /"lora_dropout": 0\.2/);
  const without = await closing(t, adapted({ ...dropping, loraDropout: 0 }));
  const dropped = await closing(t, adapted(dropping));
  const sequences = await play(without, 6);
  t.equal(await scoresDiffer(dropped.score(sequences), without.score(sequences)), 0, 'scores have none');
  for (const policy of [without, dropped]) await policy.update({ sequences }, settingsWith());
  t.notOk((await filesOf(dropped, 'dropped'))[0].equals((await filesOf(without, 'without'))[0]));
});

t.test('DoRA begins as the base, samples what it scores, resumes bit for bit and merges', async t => {
  const dora = { ...lora, dora: true };
  const whole = await closing(t, policyWith({ model: base }));
  for (const quantization of [undefined, 'int8'] as const) {
    const policy = await closing(t, adapted({ lora: dora, quantization }));
    const sequences: readonly ScoreRequest[] = await play(policy, 4);
    const reference = await policy.score(sequences);
    if (quantization === undefined) {
      t.ok((await scoresDiffer(policy.score(sequences), whole.score(sequences))) < 1e-5);
    }
    for (let i = 0; i < 2; i++) await step(policy);
    const saved = join(folder, `dora-${quantization}`);
    await policy.save(saved);
    const resumed = await closing(t, policyWith({ model: saved, quantization, seed: 99 }));
    await resumed.load(saved);
    for (const each of [policy, resumed]) await step(each);
    const [a, b] = [await filesOf(policy, 'dora-a'), await filesOf(resumed, 'dora-b')];
    t.ok(a.every((file, i) => file.equals(b[i])));
    t.ok((await scoresDiffer(policy.scoreReference(sequences), Promise.resolve(reference))) < 1e-5);
    t.ok((await scoresDiffer(policy.score(sequences), Promise.resolve(reference))) > 1e-3, 'it has learned');
    const episodes = await play(policy, 4);
    const played = Promise.resolve(episodes);
    t.ok((await scoresDiffer(policy.score(episodes), played)) < 1e-4, 'sampled as scored');
    if (quantization !== undefined) continue;
    const merged = join(folder, 'dora-merged');
    t.equal(await mergeAdapter(join(folder, 'dora-a'), merged), 3);
    const alone = await closing(t, policyWith({ model: merged }));
    t.ok((await scoresDiffer(policy.score(sequences), alone.score(sequences))) < 1e-5);
  }
});

t.test("PEFT's adapter is scored as PEFT scores it", async t => {
  const golden = new URL('../../test/golden/models/qwen2-tiny/', import.meta.url).pathname;
  const { forward, lora: expected } = JSON.parse(await readFile(join(golden, 'expected.json'), 'utf8'));
  const options = { grammars: {}, valueHead: false, base: golden };
  const policy = await closing(t, policyWith({ ...options, model: join(golden, 'lora') }));
  const rows = forward.input_ids.map((ids: number[], row: number) => {
    const tokenIds = Int32Array.from(ids.filter((_, i) => forward.attention_mask[row][i] === 1));
    return { tokenIds, lossMask: Uint8Array.from(tokenIds, (_, i) => Math.min(i, 1)) };
  });
  const scores = await policy.score(rows);
  const logProbs = scores.flatMap(score => [...score.logProbs.subarray(1)]);
  const loss = -logProbs.reduce((sum, x) => sum + x, 0) / logProbs.length;
  t.ok(Math.abs(loss - expected.loss_mean_over_valid) < 1e-5, `loss ${loss}`);
  const saved = join(folder, 'peft');
  await policy.save(saved);
  const read = async (path: string) => {
    await using file = await SafetensorsReader.open(join(path, 'adapter_model.safetensors'));
    const names = [...file.tensors.keys()].sort();
    return Promise.all(names.map(async name => [name, file.tensors.get(name)!.shape, await file.read(name)]));
  };
  t.same(await read(saved), await read(join(golden, 'lora')), 'and written as it was');
  await t.rejects(
    policyWith({ ...options, base: undefined, model: saved.replace('peft', 'none') }),
    /no model/,
  );
  await t.rejects(
    policyWith({ ...options, model: join(golden, 'lora'), base: undefined }),
    /the base of the adapter .* is not here: its config names shared\/qwen2-tiny/,
  );
});

t.test('adapters that do not fit are refused', async t => {
  const policy = await closing(t, adapted());
  const saved = join(folder, 'saved');
  await policy.save(saved);
  const other = { ...lora, rank: 4 };
  await t.rejects(policyWith({ model: saved, lora: other }), /holds an adapter of .*"rank":2.*"rank":4/);
  const wider = await closing(t, adapted({ lora: other }));
  await t.rejects(wider.load(saved), /holds another model: lora differ/);
  await t.rejects(wider.loadReference(saved), /lora differ/);
  await t.rejects(wider.load(base), /lora differ/);
  const plain = await closing(t, policyWith({ model: base }));
  await t.rejects(plain.load(saved), /lora differ/);
  await t.rejects(plain.loadReference(saved), /has no adapters/);
  t.throws(() => plain.scoreReference([]), /has no adapters/);
  await t.rejects(adapted({ lora: { ...lora, modules: [] } }), /target_modules is empty/);
  const config = JSON.parse(await readFile(join(saved, 'adapter_config.json'), 'utf8'));
  const spoilt = JSON.stringify({ ...config, target_modules: ['q_proj'] });
  await writeFile(join(saved, 'adapter_config.json'), spoilt);
  await t.rejects(policyWith({ model: saved }), /v_proj.*, which no adapter of this model and config has/);
});

const onGpu = { skip: found === null ? 'no GPU here that Dawn can use' : false };
t.test('adapters learn on WebGPU as on ONNX Runtime', onGpu, async t => {
  const gpu = await closing(t, adapted({ runtime: 'webgpu' }));
  const cpu = await closing(t, adapted());
  const sequences = await play(cpu, 5);
  for (const count of [1, 2]) {
    const [a, b] = await Promise.all(
      [gpu, cpu].map(policy => policy.update({ sequences }, settingsWith({}, { learningRate: 1e-2 }))),
    );
    const norms = [a['actor/grad_norm'], b['actor/grad_norm']];
    t.ok(Math.abs(norms[0] / norms[1] - 1) < 1e-4, `gradient norms ${norms} of step ${count}`);
  }
  t.ok((await scoresDiffer(gpu.score(sequences), cpu.score(sequences))) < 1e-4);
  t.ok((await scoresDiffer(gpu.scoreReference(sequences), cpu.scoreReference(sequences))) < 1e-4);
});
