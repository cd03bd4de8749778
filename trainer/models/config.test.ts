import { readFileSync } from 'node:fs';
import t from 'tap';
import type { JsonObject } from '../../shared/json.ts';
import { ModelConfigError, ropeFrequencies, scratchConfig } from './config.ts';
import { configToJson, parseConfig } from './config-json.ts';

const golden = (model: string): JsonObject =>
  JSON.parse(readFileSync(new URL(`../../test/golden/models/${model}/config.json`, import.meta.url), 'utf8'));

const old = {
  model_type: 'llama',
  vocab_size: 100,
  hidden_size: 64,
  intermediate_size: 128,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  rms_norm_eps: 1e-5,
};

t.test('reads what transformers writes and writes what it reads', async t => {
  for (const model of ['qwen2-tiny', 'qwen3-tiny', 'llama-tiny']) {
    const config = parseConfig(golden(model));
    t.same(parseConfig(configToJson(config)), config, model);
  }
  const qwen2 = parseConfig(golden('qwen2-tiny'));
  t.equal(qwen2.rope.theta, 1e6);
  t.ok(qwen2.queryKeyValueBias && qwen2.tiedEmbeddings && !qwen2.outputBias);
  const qwen3 = parseConfig(golden('qwen3-tiny'));
  t.equal(qwen3.headDimension, 32);
  t.ok(qwen3.queryKeyNorm && !qwen3.queryKeyValueBias);
  t.notOk(parseConfig(golden('llama-tiny')).tiedEmbeddings);
});

t.test('the old spelling of rotary settings means the same as the new', async t => {
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

t.test('unsupported model settings are refused by name', async t => {
  const refusals: [JsonObject, RegExp][] = [
    [{ ...old, model_type: 'gemma3' }, /model_type "gemma3".*qwen2, qwen3, llama/],
    [{ ...old, use_sliding_window: true }, /sliding-window/],
    [{ ...old, layer_types: ['full_attention', 'sliding_attention'] }, /sliding_attention/],
    [{ ...old, rope_scaling: { rope_type: 'yarn', factor: 4 } }, /rope_type "yarn"/],
    [{ ...old, quantization_config: { quant_method: 'gptq' } }, /quantization_config: .*f32, f16 or bf16/],
    [{ ...old, partial_rotary_factor: 0.5 }, /partial_rotary_factor 0\.5/],
    [{ ...old, hidden_act: 'gelu' }, /hidden_act "gelu"/],
    [{ ...old, num_key_value_heads: 3 }, /must divide the 4 heads, got 3/],
    [{ ...old, hidden_size: 'big' }, /hidden_size must be a number, got "big"/],
  ];
  for (const [json, message] of refusals)
    t.throws(() => parseConfig(json), { name: ModelConfigError.name, message });
  t.throws(() => scratchConfig({ vocabularySize: 46, hiddenSize: 62 }), /size of a head/);
});
