import { readdirSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { ConfigError } from '../../shared/config.ts';
import { LORA_MODULES } from '../models/adapters/lora.ts';
import { optimizerSettings } from '../training/update/update.ts';
import { groupsPerTag, levelSeeds, lossSettings } from './derived.ts';
import { configName, loadRunSettings, RECIPES } from './load.ts';
import { loraConfig } from './sections/policy.ts';

const configs = fileURLToPath(new URL('../../configs/', import.meta.url));
/** Files that others extend; they are not runs themselves. */
const PARTS = ['algorithm.yaml', 'base.yaml', 'tags.yaml', 'text.yaml'];

/** Sizes that a config tunes, not a choice of algorithm. */
const TUNED = { entropy_coefficient: 0, value_coefficient: 0 };

const problemsOf = (...overrides: string[]) => {
  try {
    loadRunSettings(`${configs}quickstart.yaml`, overrides);
  } catch (error) {
    if (error instanceof ConfigError) return error.problems;
    throw error;
  }
  return [];
};

t.test('every recipe that ships is valid', async t => {
  const recipes = readdirSync(configs).filter(name => name.endsWith('.yaml') && !PARTS.includes(name));
  t.ok(recipes.length > 0);
  for (const name of recipes) t.doesNotThrow(() => loadRunSettings(configs + name), name);
});

t.test('the product’s configs are found by name', async t => {
  const file = `${t.testdir({ 'run.yaml': 'extends: ragen:bandit-nano\nseed: 4\n' })}/run.yaml`;
  const byPath = loadRunSettings(`${configs}bandit-nano.yaml`, ['seed=4']);
  t.same(loadRunSettings(file), byPath);
  t.same(loadRunSettings('ragen:bandit-nano', ['seed=4']), byPath);
  t.equal(configName('ragen:bandit-nano'), 'bandit-nano');
  t.equal(configName('a/b.yaml'), 'b');
  t.throws(
    () => loadRunSettings('ragen:bandit-nanu'),
    /command line: there is no config ragen:bandit-nanu, did you mean `bandit-nano`\?; valid: algorithm, /,
  );
  writeFileSync(file, 'extends: ragen:nothing-like-it\n');
  t.throws(() => loadRunSettings(file), /run\.yaml: there is no config ragen:nothing-like-it; valid/);
});

const resolvedTinker = (config: string) =>
  loadRunSettings(config, ['recipe=[grpo, tinker]', 'policy.init=Qwen/Qwen3-8B', 'policy.tokenizer=there']);

t.test('every recipe applies to every config and replaces its algorithm', async t => {
  const names = readdirSync(RECIPES.folder).map(name => name.replace('.yaml', ''));
  for (const name of [
    'starpo',
    'starpo_s',
    'grpo',
    'dr_grpo',
    'dapo',
    'reinforce_pp',
    'rloo',
    'gspo',
    'gigpo',
  ]) {
    t.ok(names.includes(name), name);
  }
  const resolved = (config: string, name: string) =>
    loadRunSettings(`${configs}${config}.yaml`, [
      `recipe=${name}`,
      ...(name === 'lora' || name === 'chat' ? ['policy.init=here'] : []),
      ...(['distillation', 'iw_opd'].includes(name) ? ['policy.reference=teacher'] : []),
    ]);
  // Goes with a recipe without a critic.
  for (const name of names.filter(name => name !== 'tinker')) {
    const some = resolved('sokoban-nano', name);
    const other = resolved('sokoban-nano-grpo', name);
    t.same(some.recipe, [name]);
    if (name === 'asynchronous' || name === 'lora') continue;
    t.same(some.algorithm, other.algorithm, name);
    t.same({ ...some.loss, ...TUNED }, { ...other.loss, ...TUNED }, name);
  }
  const remote = resolvedTinker(`${configs}sokoban-nano.yaml`);
  t.match(remote, { recipe: ['grpo', 'tinker'], policy: { runtime: 'tinker', value_head: false } });
  const both = loadRunSettings(`${configs}quickstart.yaml`, [
    'recipe=[grpo, asynchronous]',
    'rollout.group_size=4',
  ]);
  t.match(both, {
    recipe: ['grpo', 'asynchronous'],
    algorithm: { advantage: 'grpo' },
    rollout: { env_groups: 32, group_size: 4, asynchronous: { max_staleness: 1 } },
  });
  t.equal(resolved('frozenlake-ppo', 'dpo').schedules.entropy_coefficient, null, 'its loss has no such term');
  t.throws(
    () => resolved('quickstart', 'grppo'),
    /recipe.*there is no "grppo", did you mean `grpo`\?; valid: .*dapo/,
  );
});

t.test(
  'tags must exist, groups must add up, and members of a group are needed where they are compared',
  async t => {
    const first = (...overrides: string[]) => {
      const [problem] = problemsOf(...overrides);
      return `${problem?.key}: ${problem?.message}`;
    };
    t.match(
      first('train_tags=[Lake]'),
      /train_tags: no tag is named Lake; defined under `tags`: .*FrozenLake/,
    );
    t.match(first('validation.tags=[Nowhere]'), /validation\.tags: no tag/);
    t.match(first('validation.sets.far.tags=[Nowhere]'), /validation\.sets\.far\.tags: no tag/);
    t.match(first('validation.sets.Bandit.seed=7'), /validation\.sets\.Bandit: is named like a tag/);
    t.match(
      first('validation.sets.far.seed=10050'),
      /rollout\.start_seed: .* overlap .* validation\.sets\.far/,
    );
    t.match(first('training.monitor.metric=train/success'), /training\.monitor\.metric/);
    t.match(first('rollout.n_groups.FrozenLake=3'), /n_groups: sums to 3, but env_groups is 256/);
    t.match(first('rollout.n_groups.Bandit=256'), /n_groups: Bandit is not among train_tags/);
    t.match(
      first('train_tags=[FrozenLake, Bandit]', 'rollout.n_groups.Bandit=256'),
      /gives FrozenLake of train_tags no/,
    );
    t.match(first('algorithm.advantage=grpo'), /algorithm\.advantage: grpo compares/);
    t.match(
      first('rollout.adaptive_curriculum={}', 'rollout.n_groups.FrozenLake=256'),
      /adaptive_curriculum: .*n_groups: use one/,
    );
    t.match(first('rollout.level_replay={}', 'rollout.asynchronous={}'), /level_replay: .*asynchronous/);
    t.match(first('rollout.reward={}'), /rollout\.reward: needs either `file` or `url`/);
    t.match(first('loss.policy=cross_entropy'), /loss\.policy: .*train_on: successes/);
    const groups = ['rollout.env_groups=32', 'rollout.group_size=8'];
    t.match(
      first(
        'recipe=grpo',
        'rollout.context_mode=full',
        'loss.policy=kl_cov',
        'algorithm.mini_batch_size=256',
      ),
      /loss\.policy: is kl_cov, .* no gradient at the first step, and an iteration has one step/,
    );
    t.match(
      first('recipe=gmpo', 'algorithm.advantage=turn_loo', 'rollout.context_mode=full'),
      /algorithm\.advantage: turn_loo may differ from token to token, .*choose grpo, dr_grpo, rloo/,
    );
    t.match(
      first('recipe=echo', 'rollout.context_mode=single_turn'),
      /loss\.cross_entropy: weighs what the environment writes after a response/,
    );
    t.match(
      first('recipe=gdpo', 'algorithm.reward_components=null'),
      /algorithm\.reward_components: is empty, and gdpo compares components/,
    );
    t.match(
      first('recipe=sdft', 'policy.reference=teacher'),
      /loss\.kl\.demonstration: makes the policy its own reference, and another one is named/,
    );
    t.match(first('recipe=iw_opd'), /policy\.reference: is null, and iw_opd learns from the reference alone/);
    t.match(
      first('loss.policy=dro', 'loss.dual_clip=3'),
      /loss: loss\.dro\.beta is null; dro needs it above 0/,
    );
    t.match(
      first('recipe=cispo', 'loss.anchor=rollout', 'loss.off_policy.kind=tis'),
      /loss\.off_policy\.kind tis corrects for the rollout again: use one of them/,
    );
    t.match(
      first(...groups, 'algorithm.advantage=grpo', 'loss.policy=sapo'),
      /loss\.aggregation is token_mean, but sapo is defined as a mean over sequences: use seq_mean_token_mean/,
    );
    t.match(first('recipe=distillation'), /policy\.reference: .* names the teacher/);
    t.match(first('schedules.clip_low={kind: steps}'), /schedules\.clip_low: is `steps` without `values`/);
    t.match(first('schedules.clip_low={begin: 9, end: 3}'), /schedules\.clip_low: ends at step 3, before/);
    t.equal(
      problemsOf('loss.clip_low=2', 'schedules.clip_high={to: 0.3}').length,
      1,
      'no schedule is blamed for a setting that is wrong without it',
    );
    t.match(
      first('schedules.kl_coefficient={to: 1}', 'algorithm.kl_in_reward.coefficient=1'),
      /algorithm\.kl_in_reward: .* counts twice/,
    );
    t.match(first('policy.value_head=false'), /algorithm\.advantage: gae needs value estimates/);
    t.match(
      first('algorithm.mini_batch_size=512', 'rollout.context_mode=full', 'rollout.max_context_window=0'),
      /mini_batch_size: 512 is more than the 256/,
    );
    t.same(problemsOf('algorithm.mini_batch_size=512'), [], 'there each turn is a sequence');
    t.match(first('rollout.prompt=chat'), /rollout\.prompt: the words or bytes of a policy from scratch/);
    t.match(first('policy.heads=3'), /policy\.heads: must divide/);
    t.match(first('recipe=chat'), /rollout\.prompt: .* no chat template.*policy\.init: <folder>/);
    t.match(
      first('policy.fit_context=true', 'rollout.max_model_len=100'),
      /rollout\.max_model_len: .*leave this null/,
    );
    t.match(
      first('policy.tokenizer=bytes', 'policy.init=here', 'warm_start=null'),
      /policy\.tokenizer: here has its own/,
    );
    t.same(problemsOf('recipe=chat', 'policy.init=here'), [], 'a chat model meets no conflict');
    t.match(first('recipe=lora'), /policy\.lora: .* name one with policy\.init: <folder>/);
    t.match(
      first('policy.init=here', 'policy.lora.dropout=0.001'),
      /policy\.lora\.dropout: is 0\.001, too close to 0: take 0, or one from 0\.002/,
    );
    t.match(
      first('policy.init=here', 'policy.lora.quantization=nf4', 'policy.runtime=webgpu'),
      /policy\.lora\.quantization: is nf4, which only the CPU supports/,
    );
    const blocks = ['policy.init=here', 'policy.base_precision=blocks'];
    t.match(
      first(...blocks, 'policy.runtime=webgpu'),
      /policy\.base_precision: is blocks, which only the CPU supports: choose auto or float32/,
    );
    t.match(
      first(...blocks, 'policy.lora.quantization=nf4'),
      /policy\.base_precision: is blocks, and policy\.lora\.quantization stores the weights otherwise/,
    );
    t.match(first('policy.init=here', 'policy.lora.target_modules=[lm_head]'), /policy\.lora.*q_proj/s);
  },
);

t.test('an address with a password is refused without it, and the setting of a token is named', async t => {
  const problems = problemsOf(
    'servers=[http://ann:secret@host:8080]',
    'rollout.reward={url: "https://secret@host/reward"}',
  );
  t.same(
    problems.map(({ key }) => key),
    ['servers.0.url', 'rollout.reward.url'],
  );
  t.match(problems[0].message, /give a token by the variable RAGEN_TOKEN or servers\.0\.token/);
  t.match(problems[1].message, /give a token by rollout\.reward\.token_env/);
  t.notMatch(JSON.stringify(problems), /secret/);
});

t.test('adapters are on all linear layers by default', async t => {
  const settings = (...overrides: string[]) =>
    loadRunSettings(`${configs}quickstart.yaml`, ['policy.init=here', ...overrides]).policy.lora;
  t.equal(settings(), null);
  t.same(loraConfig(settings('recipe=[grpo, lora]', 'policy.lora.rank=4')!), {
    rank: 4,
    alpha: 32,
    rankStabilized: false,
    dora: false,
    modules: [...LORA_MODULES],
  });
  t.same(settings('policy.lora={}')!.rank, 16);
});

t.test('levels of training, validation and warm start never share a seed', async t => {
  t.same(problemsOf('validation.seed=9488'), []);
  t.match(
    problemsOf('validation.seed=9489')[0].message,
    /seeds 10000 to 73999 overlap those of validation\.seed/,
  );
  t.match(problemsOf('warm_start.start_seed=200')[0].key, 'warm_start.start_seed');
});

t.test('groups are split over the tags evenly or as named', async t => {
  const mixture = ['train_tags=[FrozenLake, Sokoban, Bandit]'];
  t.same(
    groupsPerTag(loadRunSettings(`${configs}quickstart.yaml`, mixture), 1).map(({ groups }) => groups),
    [86, 85, 85],
  );
  const named = [...mixture, 'rollout.n_groups={Sokoban: 200, FrozenLake: 50, Bandit: 6}'];
  t.same(groupsPerTag(loadRunSettings(`${configs}quickstart.yaml`, named), 1), [
    { tag: 'FrozenLake', groups: 50 },
    { tag: 'Sokoban', groups: 200 },
    { tag: 'Bandit', groups: 6 },
  ]);
});

t.test('the loss has no value term without a value head; the learning rate follows the schedule', async t => {
  const ppo = loadRunSettings(`${configs}quickstart.yaml`);
  const grpo = loadRunSettings(`${configs}frozenlake-grpo.yaml`);
  t.equal(lossSettings(ppo).value.coefficient, 0.5);
  t.equal(lossSettings(grpo).value.coefficient, 0);
  t.ok(Math.abs(optimizerSettings(ppo, 0).learningRate - 1e-4) < 1e-12);
  t.equal(optimizerSettings(ppo, 9).learningRate, 1e-3);
});

t.test('combinations that cannot work are refused with the reason', async t => {
  const refusal = (file: string, ...overrides: string[]) => {
    try {
      loadRunSettings(`${configs}${file}.yaml`, overrides);
    } catch (error) {
      if (error instanceof ConfigError)
        return error.problems.map(({ key, message }) => `${key}: ${message}`).join('\n');
      throw error;
    }
    return '';
  };
  const cases: readonly (readonly [string, RegExp])[] = [
    ['loss.policy=gspo', /loss: loss\.aggregation is token_mean, but gspo/],
    ['loss.dual_clip=0.5', /loss\.dual_clip is 0\.5/],
    ['loss.off_policy={kind: icepop, low: 3, high: 2}', /loss\.off_policy\.low … high is 3 … 2/],
    [
      'loss.kl.coefficient=0.1 algorithm.kl_in_reward.coefficient=0.1',
      /kl_in_reward: KL is in both the reward and the loss/,
    ],
    [
      'policy.init=/nowhere rollout.prompt=chat policy.context=512 loss.entropy_coefficient=0.01',
      /entropy_on: is `actions`, but only the `compact` prompt has separate tokens/,
    ],
    [
      'policy.init=/nowhere rollout.prompt=chat policy.context=512 loss.entropy_coefficient=0 schedules.entropy_coefficient={to: 0.01}',
      /entropy_on: is `actions`/,
    ],
    ['algorithm.soft_advantage_reweight=true', /soft_advantage_reweight: .*group_size is 1/],
    ['policy.critic={} policy.value_head=false', /policy\.critic: estimates values, but policy\.value_head/],
    [
      'policy.critic={} recipe=reinforce_pp policy.value_head=true',
      /policy\.critic: reinforce_pp needs no value estimates: .* gae or bi_level_gae/,
    ],
    ['policy.critic={rate: 1}', /policy\.critic.*rate/],
    ['rollout.temperature=0', /rollout\.temperature: is 0/],
    ['rollout.top_p=0.9', /rollout\.top_p: tokens are sampled from a changed distribution/],
    [
      'loss.off_policy={kind: tis} rollout.top_p=0.9 generation={engine: sglang, urls: [http://a], adapter_folder: /a}',
      /rollout\.top_p: sglang reports log-probabilities from before it/,
    ],
    [
      'policy.init=here policy.lora.target_modules=[q_proj, up_proj] generation={engine: sglang, urls: [http://a], adapter_folder: /a}',
      /target_modules: sglang adapts q_proj with v_proj: name v_proj as well/,
    ],
    [
      'policy.init=here policy.lora.target_modules=[q_proj, v_proj, up_proj] generation={engine: sglang, urls: [http://a], adapter_folder: /a}',
      /target_modules: sglang adapts up_proj with gate_proj: name gate_proj as well/,
    ],
    ['rollout.min_p=0.1', /rollout\.min_p: tokens are sampled from a changed distribution/],
    ['rollout.repetition_penalty=1.1', /rollout\.repetition_penalty: tokens are sampled from a changed/],
    ['rollout.logit_bias={5: 1}', /rollout\.logit_bias: tokens are sampled from a changed/],
    ['rollout.logit_bias={five: 1}', /rollout\.logit_bias/],
    ['rollout.bad_words=[no]', /rollout\.bad_words: tokens are sampled from a changed/],
    ['rollout.presence_penalty=3', /rollout\.presence_penalty/],
    ['rollout.max_model_len=200', /max_model_len: 200 is more than policy\.context 161/],
    ['rollout.max_model_len=8', /response_length: 8 leaves no room .* raise rollout\.max_model_len/],
    [
      'rollout.context_mode=single_turn algorithm.advantage=bi_level_gae',
      /bi_level_gae needs the turns of an episode/,
    ],
    [
      'algorithm.sample_share=0.5 recipe=dpo rollout.context_mode=full',
      /sample_share: chooses samples by their advantage, which loss\.policy dpo does not read: use 1/,
    ],
    [
      'algorithm.across_samples=true algorithm.advantage=bi_level_gae',
      /across_samples: passes values from sample to sample, which algorithm\.advantage bi_level_gae does not/,
    ],
    [
      'rollout.constrained=true rollout.stop_strings=[Up]',
      /stop_strings: would end responses before they are well-formed/,
    ],
    ["rollout.stop_strings=['']", /stop_strings.*at least 1|stop_strings.*fewer than 1/],
    [
      'policy.precision=float16',
      /policy\.precision: is float16, .* choose policy\.runtime: webgpu, or float32/,
    ],
    [
      'rollout.curriculum={stages: [{weights: {Sokoban: 1}}]}',
      /curriculum: stage 0: Sokoban not among train_tags/,
    ],
    ['optimizer.ema={} rollout.asynchronous={}', /optimizer\.ema: .*set optimizer\.ema\.validate to false/],
    ['recipe=dpo rollout.context_mode=single_turn', /rollout\.context_mode: .* pairs are whole: use full/],
    [
      'recipe=dpo schedules.entropy_coefficient={from: 0.1}',
      /schedules\.entropy_coefficient: has no term in/,
    ],
    ['recipe=dpo schedules.clip_high={from: 0.1, to: 0.3}', /schedules\.clip_high: clips a ratio, which dpo/],
    [
      'recipe=dpo schedules.kl_coefficient={to: 0.1}',
      /schedules\.kl_coefficient: .* dpo keeps the policy near/,
    ],
    ['recipe=expert_iteration schedules.clip_low={to: 0.1}', /schedules\.clip_low: clips a ratio, which/],
    [
      'schedules.clip_low={from: 0.2, to: 2}',
      /schedules\.clip_low: takes a value .*clip_low is 2; it must be/,
    ],
    [
      'schedules.clip_low={kind: cosine, from: 1, to: 0.2}',
      /schedules\.clip_low: .*clip_low is 1; it must be/,
    ],
    [
      'schedules.clip_low={kind: steps, values: [{from_step: 5, value: 0.5}, {from_step: 9, value: 3}]}',
      /schedules\.clip_low: .*clip_low is 3; it must be/,
    ],
    ['recipe=dpo loss.aggregation=token_mean', /use seq_mean_token_sum/],
    ['recipe=dpo rollout.group_size=1', /rollout\.group_size: is 1, and a pair takes two/],
    [
      'recipe=distillation policy.reference_endpoint={url: http://t/v1, model: m} rollout.temperature=0.7 policy.reference=t',
      /reference_endpoint: stands next to[\s\S]*scores at temperature 1/,
    ],
    ['optimizer.ema.decay=1', /optimizer\.ema/],
    ['optimizer.muon.momentum=1', /optimizer\.muon/],
    ['policy.reference_refresh_every=5', /reference_refresh_every: .*give a KL term a coefficient/],
    [
      'policy.reference_refresh_every=5 policy.reference=teacher loss.kl.coefficient=0.1',
      /reference_refresh_every: .*names a fixed one/,
    ],
    [
      'training.keep_best=true training.monitor.metric=val-env/greedy/success',
      /monitor\.metric: no validation has val-env\/greedy\/success; there are val-env\/success, val-env\/return, val-env\/FrozenLake\/…/,
    ],
    [
      'training.early_stopping.patience=3 training.monitor.metric=val-env/loss',
      /no validation has val-env\/loss/,
    ],
    ['algorithm.filter.fill=repeat', /filter\.fill: got "repeat".*valid: none, refill, copy, delete, pad/],
  ];
  for (const [overrides, reason] of cases) {
    t.match(refusal('quickstart', ...overrides.split(/ (?=[a-z_.]+=)/)), reason, overrides);
  }
  t.equal(
    refusal('quickstart', 'rollout.top_p=0.9', 'loss.off_policy.kind=tis'),
    '',
    'with a correction it may be cut',
  );
  const best = 'training.keep_best=true';
  t.equal(refusal('sokoban-nano', best, 'training.monitor.metric=val-env/greedy/success'), '');
  t.equal(refusal('quickstart', best, 'training.monitor.metric=val-env/FrozenLake/num_actions'), '');
  t.equal(refusal('frozenlake-grpo', 'loss.policy=gspo', 'loss.aggregation=seq_mean_token_mean'), '');
});

t.test(
  "a run's seed moves the levels of training, demonstrations and validation; validation can be pinned",
  async t => {
    const seeds = (...overrides: string[]) =>
      levelSeeds(loadRunSettings(`${configs}quickstart.yaml`, overrides));
    t.same(seeds(), { training: 10_000, validation: 123, demonstrations: 1_000_000 });
    const moved = seeds('seed=2');
    t.same(moved, { training: 200_010_000, validation: 200_000_123, demonstrations: 201_000_000 });
    t.same(seeds('seed=2', 'seeds.validation=7'), { ...moved, validation: 7 });
    t.match(problemsOf('seeds.validation=10000'), [{ key: 'rollout.start_seed' }]);
  },
);
