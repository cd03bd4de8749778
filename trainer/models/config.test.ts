import { readFileSync } from 'node:fs';
import t from 'tap';
import type { JsonObject } from '../../shared/json.ts';
import { ModelConfigError, scratchConfig } from './config.ts';
import { configToJson, configToText, parseConfig } from './config-json.ts';
import { ropeFrequencies, ropeTables } from './rope.ts';

const golden = (file: string) =>
  JSON.parse(readFileSync(new URL(`../../test/golden/models/${file}`, import.meta.url), 'utf8'));

const old = {
  model_type: 'llama',
  vocab_size: 100,
  hidden_size: 64,
  intermediate_size: 128,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  rms_norm_eps: 1e-5,
};

t.test('configs of transformers are read, and written back unchanged', async t => {
  for (const model of ['qwen2-tiny', 'qwen3-tiny', 'llama-tiny']) {
    const config = parseConfig(golden(`${model}/config.json`));
    t.same(parseConfig(configToJson(config)), config, model);
  }
  const capped = parseConfig(golden('families/gemma2/config.json'));
  t.match(configToText(capped), /^ {2}"final_logit_softcapping": 3\.0,$/m, 'as transformers 5 wants it');
  t.same(parseConfig(JSON.parse(configToText(capped))), capped);
  const qwen2 = parseConfig(golden('qwen2-tiny/config.json'));
  t.equal(qwen2.rope.theta, 1e6);
  t.ok(qwen2.queryKeyValueBias && qwen2.tiedEmbeddings && !qwen2.outputBias);
  const qwen3 = parseConfig(golden('qwen3-tiny/config.json'));
  t.equal(qwen3.headDimension, 32);
  t.ok(qwen3.queryKeyNorm === 'head' && !qwen3.queryKeyValueBias);
  t.notOk(parseConfig(golden('llama-tiny/config.json')).tiedEmbeddings);
});

t.test('the old spelling of rotary settings equals the new one', async t => {
  const scaling = {
    rope_type: 'llama3',
    factor: 8,
    low_freq_factor: 1,
    high_freq_factor: 4,
    original_max_position_embeddings: 8192,
  };
  const before = parseConfig({ ...old, rope_theta: 5e5, rope_scaling: scaling });
  const after = parseConfig({ ...old, rope_parameters: { rope_theta: 5e5, ...scaling } });
  t.same(before, after);
  t.same(parseConfig(configToJson(after)), after);
  const linear = parseConfig({ ...old, rope_scaling: { type: 'linear', factor: 2 } });
  t.same(linear.rope, { theta: 1e4, scaling: { kind: 'linear', factor: 2 } });
});

t.test('llama3 scaling keeps short waves, stretches long ones and interpolates between', async t => {
  const scaling = {
    rope_type: 'llama3',
    factor: 8,
    low_freq_factor: 1,
    high_freq_factor: 4,
    original_max_position_embeddings: 64,
  };
  const plain = ropeFrequencies(parseConfig({ ...old, rope_theta: 100 }));
  const scaled = ropeFrequencies(parseConfig({ ...old, rope_theta: 100, rope_parameters: scaling }));
  for (let i = 0; i < plain.length; i++) {
    const wavelength = (2 * Math.PI) / plain[i];
    if (wavelength < 16) t.equal(scaled[i], plain[i], `short wave ${i}`);
    else if (wavelength > 64) t.equal(scaled[i], plain[i] / 8, `long wave ${i}`);
    else t.ok(scaled[i] < plain[i] && scaled[i] > plain[i] / 8, `wave ${i} between`);
  }
});

t.test('rotary frequencies of every scaling are those of transformers', async t => {
  for (const { name, context, rope_parameters, frequencies, attention_factor } of golden(
    'families/rope.json',
  )) {
    const config = {
      ...parseConfig({ ...old, head_dim: 8, max_position_embeddings: 128, rope_parameters }),
      context,
    };
    t.same(parseConfig(configToJson(config)).rope, config.rope, name);
    // transformers stretches them further where a sequence is longer than the model's positions, which none is here.
    const ours = ropeFrequencies(config);
    const worst = Math.max(...ours.map((x, i) => Math.abs(x / frequencies[i] - 1)));
    t.ok(worst < 1e-6, `${name}, ${context} positions: ${worst}`);
    const { cos } = ropeTables(config, [0]);
    t.ok(Math.abs(cos[0] - attention_factor) < 1e-6, `${name}: factor ${cos[0]}`);
  }
});

t.test('settings that a family does not have are rejected by name', async t => {
  const sizes = { ...old, num_key_value_heads: 4, head_dim: 16 };
  const refusals: [JsonObject, RegExp][] = [
    [{ model_type: 'gemma2', use_bidirectional_attention: true }, /use_bidirectional_attention true/],
    [
      { model_type: 'gemma2', layer_types: ['full_attention'] },
      /layer_types must list the kinds of 2 layers/,
    ],
    [
      { model_type: 'gemma2', layer_types: ['full_attention', 'linear_attention'] },
      /holds "linear_attention"/,
    ],
    [
      { model_type: 'gemma3_text', attn_logit_softcapping: 50 },
      /attn_logit_softcapping 50: Gemma 3 has no caps/,
    ],
    [{ model_type: 'mistral', attention_bias: true }, /attention_bias true is not supported for .* mistral/],
    [{ model_type: 'phi3', rope_scaling: { type: 'yarn', factor: 2 } }, /rope_type "yarn".*phi3/],
    [
      { model_type: 'phi3', rope_scaling: { type: 'longrope', short_factor: [1], long_factor: [1] } },
      /short_factor must hold 8 numbers, got 1/,
    ],
    [{ model_type: 'phi3', partial_rotary_factor: 0.2 }, /must be an even number of at most 16, got 3/],
    [{ model_type: 'smollm3', no_rope_layers: [1] }, /no_rope_layers must list 2 layers, got 1/],
    [{ model_type: 'olmo2', final_logit_softcapping: 30 }, /final_logit_softcapping 30/],
    [
      { model_type: 'qwen2', layer_types: ['full_attention', 'sliding_attention'] },
      /use_sliding_window is off/,
    ],
    [{ model_type: 'qwen3_moe', num_experts: 4, num_experts_per_tok: 5 }, /at most the 4 experts, got 5/],
  ];
  for (const [json, message] of refusals) {
    t.throws(() => parseConfig({ ...sizes, ...json }), { name: ModelConfigError.name, message });
  }
});

t.test('unsupported model settings are refused by name', async t => {
  const refusals: [JsonObject, RegExp][] = [
    [
      { ...old, model_type: 'gemma3' },
      /model_type "gemma3".*qwen2, qwen3, llama, mistral, gemma2, gemma3_text/,
    ],
    [{ ...old, use_sliding_window: true }, /use_sliding_window true is not supported for model_type llama/],
    [{ ...old, sliding_window: 64 }, /sliding_window 64 is not supported for model_type llama/],
    [{ ...old, layer_types: ['full_attention', 'sliding_attention'] }, /sliding_attention/],
    [{ ...old, rope_scaling: { rope_type: 'proportional' } }, /rope_type "proportional".*yarn, longrope/],
    [{ ...old, rope_parameters: { partial_rotary_factor: 0.5 } }, /partial_rotary_factor 0\.5/],
    [{ ...old, quantization_config: { quant_method: 'gptq' } }, /quantization_config: .*f32, f16 or bf16/],
    [{ ...old, partial_rotary_factor: 0.5 }, /partial_rotary_factor 0\.5/],
    [{ ...old, hidden_act: 'relu' }, /hidden_act "relu".*gelu_pytorch_tanh/],
    [{ ...old, num_key_value_heads: 3 }, /must divide the 4 heads, got 3/],
    [{ ...old, hidden_size: 'big' }, /hidden_size must be a number, got "big"/],
  ];
  for (const [json, message] of refusals)
    t.throws(() => parseConfig(json), { name: ModelConfigError.name, message });
  t.throws(() => scratchConfig({ vocabularySize: 46, hiddenSize: 62 }), /size of a head/);
});

t.test('a file without an object is refused', async t => {
  for (const value of [null, [], 3]) t.throws(() => parseConfig(value), /must hold a JSON object/);
});
