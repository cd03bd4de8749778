import { ADVANTAGES, advantageEstimator, checkAdvantage } from '../algorithms/advantages/registry.ts';
import { checkFilterSettings } from '../algorithms/filters/settings.ts';
import { checkLossSettings } from '../algorithms/losses/check-settings.ts';
import { policyLoss } from '../algorithms/losses/registry.ts';
import { LEAST_DROPOUT } from '../models/adapters/dropout.ts';
import { curriculumFaults } from '../rollout/levels/curriculum.ts';
import { branchingClashes } from './branching-combinations.ts';
import {
  distributionChange,
  filterSettings,
  hasEntropyBonus,
  hasKlInReward,
  hasKlLoss,
  lossSettings,
  needsProximal,
} from './derived.ts';
import {
  hasOwnReference,
  monitorClashes,
  preferenceClashes,
  streamClashes,
  weightClashes,
} from './learning-combinations.ts';
import { scheduleClashes } from './schedule-combinations.ts';
import type { SettingConflict } from './sections/schema.ts';
import type { RunSettings } from './settings.ts';
import { tinkerClashes } from './tinker-combinations.ts';

/** End of a well-formed response. */
const ANSWER_END = '</answer>';

/** Settings of algorithm, loss and rollout that exclude each other or would have no effect. */
export function settingConflicts(settings: RunSettings): SettingConflict[] {
  if (settings.train_tags.length === 0) return taskClashes(settings);
  return [
    ...algorithmClashes(settings),
    ...scheduleClashes(settings),
    ...sizeClashes(settings),
    ...rolloutClashes(settings),
    ...policyClashes(settings),
    ...agentClashes(settings),
    ...groupClashes(settings),
    ...branchingClashes(settings),
    ...generationClashes(settings),
    ...monitorClashes(settings),
    ...tinkerClashes(settings),
  ];
}

/** A run without environments can only learn from files. */
function taskClashes({ training, policy, warm_start }: RunSettings): SettingConflict[] {
  const key = 'train_tags';
  if (training.steps > 0)
    return [{ key, message: 'names no environment to train in; only sft does without' }];
  if (policy.init === 'scratch') {
    return [
      { key, message: 'names no environment, and a policy from scratch has its words from there: name one' },
    ];
  }
  if ((warm_start?.files ?? []).length === 0) {
    return [
      { key, message: 'names no environment, and warm_start.files no conversations: nothing to learn from' },
    ];
  }
  return [];
}

function algorithmClashes(settings: RunSettings): SettingConflict[] {
  const { algorithm, loss, rollout, policy } = settings;
  const found: SettingConflict[] = [];
  const add = (key: string, message: string) => found.push({ key, message });
  const refused = (key: string, check: () => void) => {
    try {
      check();
    } catch (error) {
      add(key, (error as Error).message);
    }
  };
  refused('algorithm.advantage', () =>
    checkAdvantage(algorithm.advantage, {
      valueHead: policy.value_head,
      groupSize: rollout.group_size,
      contextMode: rollout.context_mode,
    }),
  );
  const { critic } = policy;
  if (critic && !policy.value_head) {
    add('policy.critic', 'estimates values, but policy.value_head is false, so that nobody asks for any');
  } else if (critic && !advantageEstimator(algorithm.advantage).needs.includes('values')) {
    const takers = ADVANTAGES.filter(name => advantageEstimator(name).needs.includes('values'));
    add(
      'policy.critic',
      `${algorithm.advantage} needs no value estimates: leave it null, or choose algorithm.advantage ${takers.join(' or ')}`,
    );
  }
  refused('algorithm.filter', () => checkFilterSettings(filterSettings(settings), rollout.group_size));
  refused('loss', () => checkLossSettings(lossSettings(settings)));
  if (
    algorithm.entropy_on === 'actions' &&
    hasEntropyBonus(settings) &&
    rollout.prompt !== 'compact' &&
    policy.init !== 'scratch'
  ) {
    add(
      'algorithm.entropy_on',
      'is `actions`, but only the `compact` prompt has separate tokens for actions, so that no token would be rewarded: choose all, or set loss.entropy_coefficient to 0 without a schedule',
    );
  }
  if (hasKlInReward(settings) && hasKlLoss(settings)) {
    add(
      'algorithm.kl_in_reward',
      'KL is in both the reward and the loss, so it counts twice: set one of the coefficients to 0',
    );
  }
  if (algorithm.soft_advantage_reweight && rollout.group_size < 2) {
    add(
      'algorithm.soft_advantage_reweight',
      `weighs groups by the spread of their episodes, but rollout.group_size is ${rollout.group_size}: use at least 2`,
    );
  }
  if (policyLoss(loss.policy).kind === 'likelihood' && algorithm.train_on === 'all') {
    add(
      'loss.policy',
      `${loss.policy} imitates what it is given, failures too: choose algorithm.train_on: successes (recipe=expert_iteration), or a loss that learns from rewards`,
    );
  }
  if (hasKlInReward(settings) && algorithm.reward_scale === 0 && hasOwnReference(policy)) {
    add(
      'policy.reference',
      'is null, and only the distance from it is rewarded (algorithm.reward_scale is 0): a checkpoint folder there, or policy.reference_endpoint, names the teacher',
    );
  }
  found.push(...weightClashes(settings), ...preferenceClashes(settings), ...streamClashes(settings));
  return found;
}

/** The sizes of what is learned from in one iteration. */
function sizeClashes(settings: RunSettings): SettingConflict[] {
  const { algorithm, rollout } = settings;
  const found: SettingConflict[] = [];
  const add = (key: string, message: string) => found.push({ key, message });
  const episodes = rollout.env_groups * rollout.group_size;
  if (settings.diagnostics.gradients.every > 0 && rollout.group_size < 2) {
    add(
      'diagnostics.gradients',
      `tells groups apart by the spread of their episodes, but rollout.group_size is ${rollout.group_size}: use at least 2`,
    );
  }
  if (algorithm.mini_batch_size > episodes) {
    add(
      'algorithm.mini_batch_size',
      `${algorithm.mini_batch_size} is more than the ${episodes} episodes of an iteration`,
    );
  }
  return found;
}

function rolloutClashes(settings: RunSettings): SettingConflict[] {
  const { rollout, policy, training } = settings;
  const found: SettingConflict[] = [];
  const add = (key: string, message: string) => found.push({ key, message });
  if (rollout.reward && (rollout.reward.file === null) === (rollout.reward.url === null)) {
    add('rollout.reward', 'needs either `file` or `url`, which say who gives the rewards');
  }
  if (training.steps > 0 && rollout.temperature === 0) {
    add(
      'rollout.temperature',
      'is 0, so that all episodes of a group are the same: training needs one above 0',
    );
  }
  const change = distributionChange(rollout);
  if (change !== undefined && !needsProximal(settings)) {
    add(
      `rollout.${change}`,
      'tokens are sampled from a changed distribution, but the loss takes softmax(logits / temperature), so its ratios ' +
        'would not begin at 1: turn it off, or correct with loss.off_policy.kind: tis',
    );
  }
  if (rollout.asynchronous && rollout.concurrency < rollout.group_size) {
    add(
      'rollout.concurrency',
      `${rollout.concurrency} has no room for a group of ${rollout.group_size} episodes`,
    );
  }
  const longest = rollout.max_model_len ?? policy.context;
  if (longest > policy.context) {
    add('rollout.max_model_len', `${longest} is more than policy.context ${policy.context}`);
  }
  if (rollout.response_length >= longest) {
    add(
      'rollout.response_length',
      `${rollout.response_length} leaves no room for a prompt in ${longest} tokens: lower it, or raise ` +
        (rollout.max_model_len === null ? 'policy.context' : 'rollout.max_model_len'),
    );
  }
  if (rollout.show_turns_left && rollout.prompt !== 'compact') {
    add(
      'rollout.show_turns_left',
      `is for the \`compact\` prompt; \`${rollout.prompt}\` names the turn anyway`,
    );
  }
  if (rollout.constrained && rollout.stop_strings.some(text => text !== ANSWER_END)) {
    add(
      'rollout.stop_strings',
      'would end responses before they are well-formed, which rollout.constrained promises: use one of them',
    );
  }
  return found;
}

function policyClashes({ rollout, policy }: RunSettings): SettingConflict[] {
  const found: SettingConflict[] = [];
  const add = (key: string, message: string) => found.push({ key, message });
  if (policy.precision === 'float16' && policy.runtime === 'onnx') {
    add(
      'policy.precision',
      'is float16, which the processor does not multiply in: choose policy.runtime: webgpu, or float32',
    );
  }
  if (policy.init === 'scratch' && policy.hidden_size % policy.heads !== 0) {
    add('policy.heads', `must divide policy.hidden_size ${policy.hidden_size}, got ${policy.heads}`);
  }
  if (policy.lora && policy.init === 'scratch') {
    add(
      'policy.lora',
      'adapters are learned next to a model that can do something already: name one with policy.init: <folder>',
    );
  }
  const dropout = policy.lora?.dropout ?? 0;
  if (dropout > 0 && (dropout < LEAST_DROPOUT || dropout > 1 - LEAST_DROPOUT)) {
    add(
      'policy.lora.dropout',
      `is ${dropout}, too close to ${Math.round(dropout)}: take 0, or one from 0.002 to 0.998`,
    );
  }
  if (policy.lora?.quantization && policy.runtime === 'webgpu') {
    add(
      'policy.lora.quantization',
      `is ${policy.lora.quantization}, which only the processor computes with: choose policy.runtime: onnx, or null`,
    );
  }
  if (policy.base_precision === 'blocks') {
    const refuse = (why: string) => add('policy.base_precision', `is blocks, ${why}: choose auto or float32`);
    if (policy.runtime === 'webgpu') refuse('which only the processor computes with');
    if (policy.lora?.quantization) refuse('and policy.lora.quantization stores the weights otherwise');
  }
  if (policy.fit_context && rollout.max_model_len !== null) {
    add(
      'rollout.max_model_len',
      'bounds a context that policy.fit_context has yet to choose: set policy.context, which is then the most, and leave this null',
    );
  }
  const { tokenizer } = policy;
  const isBuilt = tokenizer === null || tokenizer === 'words' || tokenizer === 'bytes';
  if (policy.init === 'scratch' && isBuilt && rollout.prompt !== 'compact') {
    add(
      'rollout.prompt',
      'the words or bytes of a policy from scratch have no chat template, so it needs `compact`; `chat` needs policy.init: <folder>',
    );
  }
  if (policy.init !== 'scratch' && tokenizer !== null && policy.runtime !== 'tinker') {
    add('policy.tokenizer', `${policy.init} has its own: leave it null, or choose policy.init: scratch`);
  }
  return found;
}

/** A program writes its own prompts. */
function agentClashes({ rollout, policy, warm_start }: RunSettings): SettingConflict[] {
  if (!rollout.agent) return [];
  const found: SettingConflict[] = [];
  const add = (key: string, message: string) => found.push({ key, message });
  if (policy.init === 'scratch') {
    add(
      'policy.init',
      'rollout.agent needs a policy with a chat template, and one from scratch has none: name a folder',
    );
  }
  if (rollout.constrained) {
    add(
      'rollout.constrained',
      'has no grammar for what a program asks for: leave it false with rollout.agent',
    );
  }
  if (rollout.context_mode !== 'full' || rollout.max_context_window > 0) {
    add('rollout.context_mode', 'a program of rollout.agent chooses what its prompts show: leave it full');
  }
  if (warm_start && warm_start.files.length === 0) {
    add('warm_start.files', 'demonstrations have other prompts than a program of rollout.agent: name files');
  }
  return found;
}

/** Conflicts of settings with engines elsewhere. */
function generationClashes({ generation, policy, rollout }: RunSettings): SettingConflict[] {
  const { engine, urls, adapter_folder } = generation;
  const found: SettingConflict[] = [];
  const add = (key: string, message: string) => found.push({ key, message });
  if (engine === 'local') {
    if (urls.length > 0)
      add('generation.urls', 'names engines, but generation.engine is local: choose which they are');
    return found;
  }
  if (urls.length === 0)
    add('generation.urls', `names no engine: say where ${engine} runs, e.g. [http://127.0.0.1:8000]`);
  if (adapter_folder === null) {
    add(
      'generation.adapter_folder',
      'is null: name a folder that the trainer writes and the engines read under the same path',
    );
  }
  if (engine !== 'ragen' && policy.lora?.use_dora) {
    add(
      'policy.lora.use_dora',
      `${engine} loads no DoRA adapters: use plain LoRA, or generation.engine local or ragen`,
    );
  }
  if (engine === 'sglang' && rollout.bad_words.length > 0) {
    add('rollout.bad_words', 'sglang has none: use rollout.logit_bias, or another engine');
  }
  const cut = (['top_k', 'top_p', 'min_p'] as const).find(key => rollout[key] !== (key === 'top_p' ? 1 : 0));
  if (engine === 'sglang' && cut !== undefined) {
    add(
      `rollout.${cut}`,
      'sglang reports log-probabilities from before it: turn it off, or use ragen or vllm',
    );
  }
  if (engine !== 'ragen' && rollout.constrained) {
    add('rollout.constrained', `${engine} knows no grammars over token ids: turn it off, or use ragen`);
  }
  if (rollout.asynchronous?.keep_stale_cache) {
    add(
      'rollout.asynchronous',
      'keep_stale_cache has no effect with engines elsewhere: a request ends under the weights it began with',
    );
  }
  return found;
}

function groupClashes({ rollout, train_tags }: RunSettings): SettingConflict[] {
  const { env_groups, n_groups, curriculum, adaptive_curriculum, level_replay } = rollout;
  const found: SettingConflict[] = [];
  const add = (key: string, message: string) => found.push({ key, message });
  const named = Object.keys(n_groups);
  for (const [key, on] of [
    ['rollout.adaptive_curriculum', adaptive_curriculum !== null],
    ['rollout.level_replay', level_replay !== null],
  ] as const) {
    if (on && rollout.asynchronous) {
      add(
        key,
        "depends on the last iteration's results, which asynchronous collection does not wait for: use one of them",
      );
    }
  }
  if (adaptive_curriculum) {
    if (curriculum || named.length > 0) {
      add(
        'rollout.adaptive_curriculum',
        `gives the groups of the tags, and so does rollout.${curriculum ? 'curriculum' : 'n_groups'}: use one`,
      );
    }
    return found;
  }
  if (curriculum) {
    for (const fault of curriculumFaults(curriculum, train_tags)) add('rollout.curriculum', fault);
    if (named.length > 0)
      add('rollout.n_groups', 'stands next to rollout.curriculum, which gives the groups: use one');
    return found;
  }
  if (named.length === 0) {
    if (env_groups < train_tags.length) {
      add('rollout.env_groups', `${env_groups} groups cannot serve ${train_tags.length} tags`);
    }
    return found;
  }
  for (const name of named) {
    if (!train_tags.includes(name)) add('rollout.n_groups', `${name} is not among train_tags`);
  }
  for (const name of train_tags) {
    if (!named.includes(name)) add('rollout.n_groups', `gives ${name} of train_tags no groups`);
  }
  const sum = Object.values(n_groups).reduce((a, b) => a + b, 0);
  if (sum !== env_groups) add('rollout.n_groups', `sums to ${sum}, but env_groups is ${env_groups}`);
  return found;
}
