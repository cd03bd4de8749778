import t from 'tap';
import type { JsonObject } from '../../shared/json.ts';
import { read } from './golden.test-data.ts';
import { LORA_MODULES, loraScale } from './lora.ts';
import { parsePeftConfig, peftConfigToJson } from './peft.ts';

const golden: JsonObject = read('qwen2-tiny', 'lora/adapter_config.json');

t.test(
  'the config of an adapter is read as PEFT writes it, and written so that it reads the same',
  async t => {
    const adapter = parsePeftConfig(golden);
    t.same(adapter, {
      lora: { rank: 4, alpha: 8, rankStabilized: false, modules: [...LORA_MODULES] },
      base: 'shared/qwen2-tiny',
      revision: null,
    });
    t.same(parsePeftConfig(peftConfigToJson(adapter)), adapter);
    const stabilized = parsePeftConfig({ ...golden, use_rslora: true, target_modules: ['v_proj', 'q_proj'] });
    t.same(stabilized.lora.modules, ['q_proj', 'v_proj']);
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

t.test('options that would compute something else are refused by name', async t => {
  const refused = (change: JsonObject, message: RegExp) =>
    t.throws(() => parsePeftConfig({ ...golden, ...change }), message);
  refused({ peft_type: 'IA3' }, /peft_type "IA3" is not supported; supported: LORA/);
  refused({ task_type: 'SEQ_CLS' }, /task_type "SEQ_CLS"/);
  refused({ bias: 'all' }, /bias "all": trained biases are not supported/);
  refused({ use_dora: true }, /use_dora true is not supported; it must be off/);
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
