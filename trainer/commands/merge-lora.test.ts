import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import t from 'tap';
import { mergedWeight } from '../models/adapters/lora.ts';
import { SafetensorsReader } from '../models/files/safetensors.ts';
import {
  assertSameModel,
  findModel,
  findTokenizer,
  isModelFolder,
  readModelConfig,
} from '../policy/checkpoint/model-folder.ts';
import { mergeAdapter } from './merge-lora.ts';

const base = new URL('../../test/golden/models/qwen2-tiny', import.meta.url).pathname;
const adapter = join(base, 'lora');
const up = 'model.layers.1.mlp.up_proj';

t.test('an adapter is merged into its base, all else goes along as it is', async t => {
  const out = join(t.testdir(), 'merged');
  t.equal(await mergeAdapter(adapter, out, { base }), 2 * 7);
  await using before = await SafetensorsReader.open(join(base, 'model.safetensors'));
  await using matrices = await SafetensorsReader.open(join(adapter, 'adapter_model.safetensors'));
  await using after = await SafetensorsReader.open(join(out, 'model.safetensors'));
  t.same([...after.tensors.keys()].sort(), [...before.tensors.keys()].sort());
  const [a, b] = await Promise.all(
    ['A', 'B'].map(side => matrices.read(`base_model.model.${up}.lora_${side}.weight`)),
  );
  const weight = await before.read(`${up}.weight`);
  t.same(await after.read(`${up}.weight`), mergedWeight(weight, { a, b, rank: 4, scale: 2 }));
  t.same(await after.read('model.norm.weight'), await before.read('model.norm.weight'));
  for (const name of ['tokenizer.json', 'chat_template.jinja', 'generation_config.json']) {
    t.same(await readFile(join(out, name)), await readFile(join(base, name)), name);
  }
  t.same(await readModelConfig(out), await readModelConfig(base));
  const half = join(t.testdirName, 'half');
  await mergeAdapter(adapter, half, { base, type: 'BF16' });
  await using small = await SafetensorsReader.open(join(half, 'model.safetensors'));
  t.equal(small.tensors.get(`${up}.weight`)!.type, 'BF16');
  t.match(await readFile(join(half, 'config.json'), 'utf8'), /"(torch_)?dtype": "bfloat16"/);
  await t.rejects(mergeAdapter(adapter, out, { base }), /holds a model already: name another folder/);
  await t.rejects(mergeAdapter(base, join(t.testdirName, 'other')), /nothing to merge/);
});

t.test('an adapter finds the base that is passed, or the one its config names', async t => {
  const config = JSON.parse(await readFile(join(adapter, 'adapter_config.json'), 'utf8'));
  const named = (path: string | null) => JSON.stringify({ ...config, base_model_name_or_path: path });
  const folder = t.testdir({
    absolute: { 'adapter_config.json': named(base) },
    sibling: { 'adapter_config.json': named('../model') },
    lost: { 'adapter_config.json': named(null) },
    model: { 'config.json': await readFile(join(base, 'config.json'), 'utf8') },
    nothing: {},
  });
  const at = (name: string) => join(folder, name);
  t.same(await findModel(base), { base, adapter: null });
  t.same(await findModel(at('absolute')), { base, adapter: at('absolute') });
  t.same(await findModel(at('sibling')), { base: at('model'), adapter: at('sibling') });
  t.same(await findModel(at('lost'), at('model')), { base: at('model'), adapter: at('lost') });
  t.same(await findModel(at('lost'), at('absolute')), { base, adapter: at('lost') }, "an adapter's base");
  await t.rejects(findModel(at('lost')), /its config names none; say where it is/);
  await t.rejects(findModel(at('nothing')), /holds no model/);
  t.same(await Promise.all(['lost', 'model', 'nothing'].map(name => isModelFolder(at(name)))), [
    true,
    true,
    false,
  ]);
  t.equal(await findTokenizer(at('absolute')), base);
  const adapted = await readModelConfig(at('absolute'));
  t.same(adapted.lora?.rank, 4);
  await assertSameModel(at('lost'), adapted);
  await t.rejects(assertSameModel(at('model'), adapted), /holds another model: lora differ/);
});
