import { ADVANTAGES, advantageEstimator, checkAdvantage } from '../algorithms/advantages/registry.ts';
import { checkFilterSettings } from '../algorithms/filters/settings.ts';
import { checkLossSettings } from '../algorithms/losses/check-settings.ts';
import { policyLoss } from '../algorithms/losses/registry.ts';
import { LEAST_DROPOUT } from '../models/adapters/lora.ts';
import { curriculumFaults } from '../rollout/levels.ts';
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
  branchingClashes,
  hasOwnReference,
  monitorClashes,
  preferenceClashes,
  streamClashes,
  weightClashes,
} from './learning-combinations.ts';
import { scheduleClashes } from './schedules.ts';
import { conflictsOf, faultOf, type Rules, type SettingConflict } from './sections/schema.ts';
import type { RunSettings } from './settings.ts';
import { tinkerClashes } from './tinker-combinations.ts';

/** End of a well-formed response. */
const ANSWER_END = '</answer>';

/** Settings of algorithm, loss and rollout that cannot be used together or would have no effect. */
export function settingConflicts(settings: RunSettings): SettingConflict[] {
  if (settings.train_tags.length === 0) return conflictsOf(taskClashes(settings));
  return [
    algorithmClashes,
    weightClashes,
    preferenceClashes,
    streamClashes,
    scheduleClashes,
    sizeClashes,
    rolloutClashes,
    policyClashes,
    agentClashes,
    groupClashes,
    branchingClashes,
    generationClashes,
    monitorClashes,
    tinkerClashes,
  ].flatMap(rules => conflictsOf(rules(settings)));
}

/** A run without environments can only learn from files. */
function taskClashes({ training, policy, warm_start }: RunSettings): Rules {
  if (training.steps > 0) return { train_tags: 'names no environment to train in; only sft does without' };
  if (policy.init === 'scratch')
    return {
      train_tags: 'names no environment, and a policy from scratch has its words from there: name one',
    };
  return {
    train_tags:
      !warm_start?.files.length &&
      'names no environment, and warm_start.files no conversations: nothing to learn from',
  };
}

function algorithmClashes(settings: RunSettings): Rules {
  const { algorithm, loss, rollout, policy } = settings;
  const takers = ADVANTAGES.filter(name => advantageEstimator(name).needs.includes('values'));
  return {
    'algorithm.advantage': faultOf(() =>
      checkAdvantage(algorithm.advantage, {
        valueHead: policy.value_head,
        groupSize: rollout.group_size,
        contextMode: rollout.context_mode,
      }),
    ),
    'algorithm.across_samples':
      algorithm.across_samples &&
      algorithm.advantage !== 'gae' &&
      `passes values from sample to sample, which algorithm.advantage ${algorithm.advantage} does not: use false, or choose gae`,
    'algorithm.sample_share':
      algorithm.sample_share < 1 &&
      policyLoss(loss.policy).kind !== 'ratio' &&
      `chooses samples by their advantage, which loss.policy ${loss.policy} does not read: use 1`,
    'policy.critic':
      policy.critic &&
      (policy.value_head
        ? !takers.includes(algorithm.advantage) &&
          `${algorithm.advantage} needs no value estimates: leave it null, or choose algorithm.advantage ${takers.join(' or ')}`
        : 'estimates values, but policy.value_head is false, so that nobody asks for any'),
    'algorithm.filter': faultOf(() => checkFilterSettings(filterSettings(settings), rollout.group_size)),
    loss: faultOf(() => checkLossSettings(lossSettings(settings))),
    'algorithm.entropy_on':
      algorithm.entropy_on === 'actions' &&
      hasEntropyBonus(settings) &&
      rollout.prompt !== 'compact' &&
      policy.init !== 'scratch' &&
      'is `actions`, but only the `compact` prompt has separate tokens for actions, so that no token would be rewarded: choose all, or set loss.entropy_coefficient to 0 without a schedule',
    'algorithm.kl_in_reward':
      hasKlInReward(settings) &&
      hasKlLoss(settings) &&
      'KL is in both the reward and the loss, so it counts twice: set one of the coefficients to 0',
    'algorithm.soft_advantage_reweight':
      algorithm.soft_advantage_reweight &&
      rollout.group_size < 2 &&
      `weighs groups by the spread of their episodes, but rollout.group_size is ${rollout.group_size}: use at least 2`,
    'loss.policy':
      policyLoss(loss.policy).kind === 'likelihood' &&
      algorithm.train_on === 'all' &&
      `${loss.policy} imitates what it is given, failures too: choose algorithm.train_on: successes (recipe=expert_iteration), or a loss that learns from rewards`,
    'policy.reference':
      hasKlInReward(settings) &&
      algorithm.reward_scale === 0 &&
      hasOwnReference(policy) &&
      'is null, and only the distance from it is rewarded (algorithm.reward_scale is 0): a checkpoint folder there, or policy.reference_endpoint, names the teacher',
  };
}

/** Sizes of one iteration's training data. */
function sizeClashes({ algorithm, rollout, diagnostics }: RunSettings): Rules {
  const episodes = rollout.env_groups * rollout.group_size;
  return {
    'diagnostics.gradients':
      diagnostics.gradients.every > 0 &&
      rollout.group_size < 2 &&
      `tells groups apart by the spread of their episodes, but rollout.group_size is ${rollout.group_size}: use at least 2`,
    'algorithm.mini_batch_size':
      rollout.context_mode === 'full' &&
      algorithm.mini_batch_size > episodes &&
      `${algorithm.mini_batch_size} is more than the ${episodes} episodes of an iteration`,
  };
}

function rolloutClashes(settings: RunSettings): Rules {
  const { rollout, policy, training } = settings;
  const change = distributionChange(rollout);
  const longest = rollout.max_model_len ?? policy.context;
  const room = rollout.max_model_len === null ? 'policy.context' : 'rollout.max_model_len';
  return {
    'rollout.reward':
      rollout.reward &&
      (rollout.reward.file === null) === (rollout.reward.url === null) &&
      'needs either `file` or `url`, the source of the rewards',
    'rollout.temperature':
      training.steps > 0 &&
      rollout.temperature === 0 &&
      'is 0, so that all episodes of a group are the same: training needs one above 0',
    [`rollout.${change}`]:
      change !== undefined &&
      !needsProximal(settings) &&
      'tokens are sampled from a changed distribution, but the loss takes softmax(logits / temperature), so its ratios would not begin at 1: turn it off, or correct with loss.off_policy.kind: tis',
    'rollout.concurrency':
      rollout.asynchronous &&
      rollout.concurrency < rollout.group_size &&
      `${rollout.concurrency} has no room for a group of ${rollout.group_size} episodes`,
    'rollout.max_model_len':
      longest > policy.context && `${longest} is more than policy.context ${policy.context}`,
    'rollout.response_length':
      rollout.response_length >= longest &&
      `${rollout.response_length} leaves no room for a prompt in ${longest} tokens: lower it, or raise ${room}`,
    'rollout.show_turns_left':
      rollout.show_turns_left &&
      rollout.prompt !== 'compact' &&
      `is for the \`compact\` prompt; \`${rollout.prompt}\` names the turn anyway`,
    'rollout.stop_strings':
      rollout.constrained &&
      rollout.stop_strings.some(text => text !== ANSWER_END) &&
      'would end responses before they are well-formed, which rollout.constrained guarantees: use one of them',
  };
}

function policyClashes({ rollout, policy }: RunSettings): Rules {
  const { tokenizer, lora, runtime } = policy;
  const isScratch = policy.init === 'scratch';
  const dropout = lora?.dropout ?? 0;
  const isBuilt = tokenizer === null || tokenizer === 'words' || tokenizer === 'bytes';
  const blocks = (why: string) =>
    policy.base_precision === 'blocks' && `is blocks, ${why}: choose auto or float32`;
  return {
    'policy.precision':
      policy.precision === 'float16' &&
      runtime === 'onnx' &&
      'is float16, which the CPU does not support: choose policy.runtime: webgpu, or float32',
    'policy.heads':
      isScratch &&
      policy.hidden_size % policy.heads !== 0 &&
      `must divide policy.hidden_size ${policy.hidden_size}, got ${policy.heads}`,
    'policy.lora':
      lora && isScratch && 'adapters need a pretrained model: name one with policy.init: <folder>',
    'policy.lora.dropout':
      dropout > 0 &&
      (dropout < LEAST_DROPOUT || dropout > 1 - LEAST_DROPOUT) &&
      `is ${dropout}, too close to ${Math.round(dropout)}: take 0, or one from 0.002 to 0.998`,
    'policy.lora.quantization':
      lora?.quantization &&
      runtime === 'webgpu' &&
      `is ${lora.quantization}, which only the CPU supports: choose policy.runtime: onnx, or null`,
    'policy.base_precision': [
      runtime === 'webgpu' && blocks('which only the CPU supports'),
      lora?.quantization && blocks('and policy.lora.quantization stores the weights otherwise'),
    ],
    'rollout.max_model_len':
      policy.fit_context &&
      rollout.max_model_len !== null &&
      'bounds the context that policy.fit_context chooses: set policy.context as the maximum, and leave this null',
    'rollout.prompt':
      isScratch &&
      isBuilt &&
      rollout.prompt !== 'compact' &&
      'the words or bytes of a policy from scratch have no chat template, so it needs `compact`; `chat` needs policy.init: <folder>',
    'policy.tokenizer':
      !isScratch &&
      tokenizer !== null &&
      runtime !== 'tinker' &&
      `${policy.init} has its own: leave it null, or choose policy.init: scratch`,
  };
}

/** A program writes its own prompts. */
function agentClashes({ rollout, policy, warm_start }: RunSettings): Rules {
  if (!rollout.agent) return {};
  return {
    'policy.init':
      policy.init === 'scratch' &&
      'rollout.agent needs a policy with a chat template, and one from scratch has none: name a folder',
    'rollout.constrained':
      rollout.constrained && 'has no grammar for what a program asks for: leave it false with rollout.agent',
    'rollout.context_mode':
      (rollout.context_mode !== 'full' || rollout.max_context_window > 0) &&
      'a program of rollout.agent chooses what its prompts show: leave it full',
    'warm_start.files':
      warm_start?.files.length === 0 &&
      'demonstrations have other prompts than a program of rollout.agent: name files',
  };
}

/** Layers that SGLang adapts together: without the second it refuses the first's adapter, or leaves it out. */
const JOINED = [
  ['q_proj', 'v_proj'],
  ['v_proj', 'q_proj'],
  ['k_proj', 'q_proj'],
  ['up_proj', 'gate_proj'],
] as const;

/** Conflicts of settings with external engines. */
function generationClashes({ generation, policy, rollout }: RunSettings): Rules {
  const { engine, urls, adapter_folder } = generation;
  const cut = (['top_k', 'top_p', 'min_p'] as const).find(key => rollout[key] !== (key === 'top_p' ? 1 : 0));
  const adapted = policy.lora?.target_modules ?? [];
  const alone = JOINED.find(([one, other]) => adapted.includes(one) && !adapted.includes(other));
  if (engine === 'local')
    return {
      'generation.urls':
        urls.length > 0 && 'names engines, but generation.engine is local: choose which they are',
    };
  return {
    'generation.urls':
      urls.length === 0 && `names no engine: say where ${engine} runs, e.g. [http://127.0.0.1:8000]`,
    'generation.adapter_folder':
      adapter_folder === null &&
      'is null: name a folder that the trainer writes and the engines read under the same path',
    'policy.lora.use_dora':
      engine !== 'ragen' &&
      policy.lora?.use_dora &&
      `${engine} loads no DoRA adapters: use plain LoRA, or generation.engine local or ragen`,
    'policy.lora.target_modules':
      engine === 'sglang' && alone && `sglang adapts ${alone[0]} with ${alone[1]}: name ${alone[1]} as well`,
    [`rollout.${cut}`]:
      engine === 'sglang' &&
      cut !== undefined &&
      'sglang reports log-probabilities from before it: turn it off, or use ragen or vllm',
    'rollout.bad_words':
      engine === 'sglang' &&
      rollout.bad_words.length > 0 &&
      'sglang has none: use rollout.logit_bias, or another engine',
    'rollout.constrained':
      engine !== 'ragen' &&
      rollout.constrained &&
      `${engine} does not support grammars over token ids: turn it off, or use ragen`,
    'rollout.asynchronous':
      rollout.asynchronous?.keep_stale_cache &&
      'keep_stale_cache has no effect with engines elsewhere: a request ends under the weights it began with',
  };
}

function groupClashes({ rollout, train_tags }: RunSettings): Rules {
  const { env_groups, n_groups, curriculum, adaptive_curriculum, level_replay } = rollout;
  const named = Object.keys(n_groups);
  const waits =
    rollout.asynchronous &&
    "depends on the last iteration's results, which asynchronous collection does not wait for: use one of them";
  const other = curriculum ? 'curriculum' : named.length > 0 && 'n_groups';
  const rules: Rules = {
    'rollout.adaptive_curriculum': [
      adaptive_curriculum && waits,
      adaptive_curriculum && other && `gives the groups of the tags, and so does rollout.${other}: use one`,
    ],
    'rollout.level_replay': level_replay && waits,
  };
  if (adaptive_curriculum) return rules;
  if (curriculum)
    return {
      ...rules,
      'rollout.curriculum': curriculumFaults(curriculum, train_tags),
      'rollout.n_groups':
        named.length > 0 && 'stands next to rollout.curriculum, which gives the groups: use one',
    };
  if (named.length === 0)
    return {
      ...rules,
      'rollout.env_groups':
        env_groups < train_tags.length && `${env_groups} groups cannot serve ${train_tags.length} tags`,
    };
  const sum = Object.values(n_groups).reduce((a, b) => a + b, 0);
  return {
    ...rules,
    'rollout.n_groups': [
      ...named.map(name => !train_tags.includes(name) && `${name} is not among train_tags`),
      ...train_tags.map(name => !named.includes(name) && `gives ${name} of train_tags no groups`),
      sum !== env_groups && `sums to ${sum}, but env_groups is ${env_groups}`,
    ],
  };
}
