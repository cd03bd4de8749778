import t from 'tap';
import { mergeConfig, validateConfig } from '../../shared/config.ts';
import type { Json } from '../../shared/json.ts';
import { conflictsOf } from './sections/schema.ts';
import { RunSettings } from './settings.ts';
import { tinkerClashes } from './tinker-combinations.ts';

const TINKER = {
  train_tags: ['Bandit'],
  tags: { Bandit: { env_id: 'Bandit' } },
  policy: {
    runtime: 'tinker',
    init: 'Qwen/Qwen3-8B',
    tokenizer: './tokenizer',
    value_head: false,
    lora: { rank: 32 },
    tinker: { url: 'http://gpu:8000', server: 'ragen' },
  },
  loss: { entropy_coefficient: 0 },
} satisfies Json;

const clashes = (over: Json) =>
  conflictsOf(tinkerClashes(validateConfig(mergeConfig(TINKER, over), RunSettings)));

t.test('settings that a Tinker server cannot follow are refused by name', async t => {
  t.same(clashes({}), []);
  const refused: readonly (readonly [string, Json])[] = [
    ['policy.tinker', { policy: { tinker: null } }],
    ['policy.tinker', { policy: { runtime: 'onnx' } }],
    ['policy.init', { policy: { init: 'scratch' } }],
    ['policy.tokenizer', { policy: { tokenizer: null } }],
    ['policy.tokenizer', { policy: { tokenizer: 'bytes' } }],
    ['policy.lora', { policy: { lora: null } }],
    ['policy.lora.use_dora', { policy: { lora: { use_dora: true } } }],
    ['policy.lora.rank_stabilized', { policy: { lora: { rank_stabilized: true } } }],
    ['policy.lora.dropout', { policy: { lora: { dropout: 0.1 } } }],
    ['policy.lora.quantization', { policy: { lora: { quantization: 'nf4' } } }],
    ['policy.lora.alpha', { policy: { lora: { alpha: 16 } } }],
    ['policy.lora.target_modules', { policy: { lora: { target_modules: ['q_proj'] } } }],
    ['policy.precision', { policy: { precision: 'float16' } }],
    ['policy.value_head', { policy: { value_head: true } }],
    ['policy.critic', { policy: { critic: {} } }],
    ['policy.reference', { policy: { reference: './folder' } }],
    ['policy.reference_refresh_every', { policy: { reference_refresh_every: 5 } }],
    ['optimizer.ema', { optimizer: { ema: { decay: 0.99 } } }],
    ['warm_start.muon', { warm_start: { muon: { scale: 3, momentum: 0.95 } } }],
    ['optimizer.muon', { optimizer: { muon: { scale: 3, momentum: 0.95 } } }],
    ['generation.engine', { generation: { engine: 'vllm', urls: ['http://a'], adapter_folder: '/a' } }],
    ['loss.entropy_coefficient', { loss: { entropy_coefficient: 0.01 } }],
    ['algorithm.filter.score', { algorithm: { filter: { score: 'entropy' } } }],
    ['diagnostics.gradients.every', { diagnostics: { gradients: { every: 5 } } }],
    ['rollout.temperature', { rollout: { temperature: 0.7 } }],
    ['rollout.top_k', { rollout: { top_k: 5 } }],
    ['validation.min_p', { validation: { min_p: 0.1 } }],
    ['rollout.constrained', { rollout: { constrained: true } }],
    ['warm_start', { warm_start: {}, loss: { kl: { coefficient: 0.1 } } }],
  ];
  for (const [key, over] of refused) {
    t.same(
      clashes(over).map(clash => clash.key),
      [key],
      JSON.stringify(over),
    );
  }
  t.same(clashes({ validation: { top_k: 5, top_p: 0.9, temperature: 0.5 } }), []);
  t.same(clashes({ policy: { lora: { target_modules: ['q_proj', 'k_proj', 'v_proj', 'o_proj'] } } }), []);
});

t.test('settings that one server drops silently are refused for it alone', async t => {
  const keys = (server: string, over: Json = {}) =>
    clashes(mergeConfig({ policy: { tinker: { server } } }, over)).map(({ key }) => key);
  const warm = { warm_start: {} };
  t.same(keys('service', warm), []);
  t.same(keys('skyrl-jax', warm), ['optimizer.clip_norm', 'warm_start.clip_norm']);
  const unclipped = { optimizer: { clip_norm: 0 } };
  t.same(keys('skyrl-jax', unclipped), []);
  t.same(keys('skyrl', unclipped), ['optimizer.weight_decay']);
  const late = { rollout: { asynchronous: { max_staleness: 1 } }, ...unclipped };
  t.same(keys('ragen', late), []);
  t.same(keys('skyrl-jax', late), ['rollout.asynchronous']);
});
