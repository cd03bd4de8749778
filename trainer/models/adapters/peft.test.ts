import t from 'tap';
import type { JsonObject } from '../../../shared/json.ts';
import { parseConfig } from '../config-json.ts';
import { read } from '../golden.test-data.ts';
import { loraSpecs } from '../parameters.ts';
import { LORA_MODULES, type LoraModule, loraScale } from './lora.ts';
import { parsePeftConfig, peftConfigToJson, withLora } from './peft.ts';

const golden: JsonObject = read('qwen2-tiny', 'lora/adapter_config.json');

t.test(
  'the config of an adapter is read as PEFT writes it, and written so that it reads the same',
  async t => {
    const adapter = parsePeftConfig(golden);
    t.same(adapter, {
      lora: { rank: 4, alpha: 8, rankStabilized: false, dora: false, modules: LORA_MODULES.slice(0, 7) },
      base: 'shared/qwen2-tiny',
      revision: null,
    });
    t.same(parsePeftConfig(peftConfigToJson(adapter)), adapter);
    const stabilized = parsePeftConfig({ ...golden, use_rslora: true, target_modules: ['v_proj', 'q_proj'] });
    t.same(stabilized.lora.modules, ['q_proj', 'v_proj']);
    t.ok(parsePeftConfig(read('qwen2-tiny', 'dora/adapter_config.json')).lora.dora);
    t.equal(loraScale(stabilized.lora), 4);
    t.equal(loraScale(adapter.lora), 2);
    t.same(parsePeftConfig({ ...golden, target_modules: 'all-linear' }).lora.modules, [...LORA_MODULES]);
    t.same(parsePeftConfig({ ...golden, lora_dropout: 0.05 }), adapter, 'dropout is of training');
    const named = [0, 1].flatMap(layer =>
      ['self_attn.q_proj', 'mlp.up_proj'].map(module => `model.layers.${layer}.${module}`),
    );
    t.same(parsePeftConfig({ ...golden, target_modules: named }).lora.modules, ['q_proj', 'up_proj']);
  },
);

t.test('options that would compute something else are rejected by name', async t => {
  const refused = (change: JsonObject, message: RegExp) =>
    t.throws(() => parsePeftConfig({ ...golden, ...change }), message);
  refused({ peft_type: 'IA3' }, /peft_type "IA3" is not supported; supported: LORA/);
  refused({ task_type: 'SEQ_CLS' }, /task_type "SEQ_CLS"/);
  refused({ bias: 'all' }, /bias "all": trained biases are not supported/);
  refused({ rank_pattern: { 'mlp.up_proj': 8 } }, /rank_pattern \{"mlp.up_proj":8\} is not supported/);
  refused({ modules_to_save: ['lm_head'] }, /modules_to_save \["lm_head"\] is not supported/);
  refused({ layers_to_transform: [0, 1] }, /layers_to_transform \[0,1\] is not supported/);
  refused({ init_lora_weights: 'pissa' }, /init_lora_weights "pissa" changes the base/);
  refused({ target_modules: '.*_proj' }, /patterns are not supported/);
  refused({ target_modules: ['embed_tokens'] }, /holds "embed_tokens", which cannot have an adapter here/);
  refused({ target_modules: [] }, /target_modules is empty/);
  refused({ r: 0 }, /rank \(r\) must be an integer of at least 1, got 0/);
  refused({ lora_alpha: null }, /alpha must be above 0, got null/);
  refused({ some_new_option: { on: true } }, /some_new_option .* is not supported/);
});

t.test('adapters are of the linear layers that a family has', async t => {
  const config = (model: string) => parseConfig(read(`families/${model}`, 'config.json'));
  const modules = (model: string, wanted: readonly LoraModule[]) =>
    withLora(config(model), { rank: 2, alpha: 4, rankStabilized: false, dora: false, modules: wanted }).lora!
      .modules;
  t.same(modules('gemma2', LORA_MODULES), LORA_MODULES.slice(0, 7));
  t.same(modules('phi3', LORA_MODULES), ['o_proj', 'down_proj', 'qkv_proj', 'gate_up_proj']);
  const ofExperts = loraSpecs(config('qwen3-moe'), {
    rank: 2,
    alpha: 4,
    rankStabilized: false,
    dora: false,
    modules: LORA_MODULES,
  });
  t.notOk(
    ofExperts.some(({ name }) => name.includes('experts')),
    'no adapters on experts',
  );
  t.throws(
    () => modules('phi3', ['q_proj']),
    /holds q_proj, which models of type phi3 do not have; .*qkv_proj/,
  );
});
