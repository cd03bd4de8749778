import { ADVANTAGES, advantageEstimator } from '../algorithms/advantages/registry.ts';
import { policyLoss } from '../algorithms/losses/registry.ts';
import { leavesPerRoot } from '../rollout/branching/tree-plan.ts';
import type { DescribedTag } from '../rollout/described-tag.ts';
import {
  hasCrossEntropy,
  hasKlInReward,
  hasKlLoss,
  hasPreferenceLoss,
  isSelfDistilled,
  monitorSettings,
  needsReference,
  treePlan,
} from './derived.ts';
import type { Rules } from './sections/schema.ts';
import type { RunSettings } from './settings.ts';

/** Conflicts about copies of the learned weights: their average, and the reference. */
export function weightClashes(settings: RunSettings): Rules {
  const { optimizer, rollout, generation, policy } = settings;
  const others =
    (rollout.asynchronous && 'rollout.asynchronous samples with the weights that learn at the same time') ||
    (generation.engine !== 'local' && `${generation.engine} has the weights that learn`);
  const isRefreshed = policy.reference_refresh_every !== null;
  const endpoint = policy.reference_endpoint;
  return {
    'optimizer.ema':
      optimizer.ema?.validate &&
      others &&
      `validates the average of the weights, but ${others}: set optimizer.ema.validate to false`,
    'policy.reference_refresh_every': [
      isRefreshed &&
        !needsReference(settings) &&
        'refreshes a reference that no term uses: give a KL term a coefficient',
      isRefreshed &&
        !hasOwnReference(policy) &&
        'refreshes the reference, but policy.reference or policy.reference_endpoint names a fixed one: use one of them',
    ],
    'policy.reference_endpoint': endpoint && [
      !needsReference(settings) && 'names a reference that no term uses: give a KL term a coefficient',
      policy.reference !== null && 'stands next to policy.reference, which names one, too: use one',
      rollout.temperature !== 1 &&
        `scores at temperature 1, but rollout.temperature is ${rollout.temperature}: use 1`,
      rollout.constrained && 'does not know the grammar of rollout.constrained: set that to false',
    ],
  };
}

/** True if the reference is an earlier copy of the policy. */
export function hasOwnReference({ reference, reference_endpoint }: RunSettings['policy']): boolean {
  return reference === null && reference_endpoint === null;
}

/** A monitored metric that no validation has would end the run at its first one. */
export function monitorClashes(settings: RunSettings): Rules {
  if (!monitorSettings(settings)) return {};
  const { metric } = settings.training.monitor;
  const [, first, ...rest] = metric.split('/');
  const sets = Object.keys(settings.validation.sets);
  const groups = [...(settings.validation.tags ?? settings.train_tags), ...sets];
  const isThere = rest.length === 0 ? ['success', 'return'].includes(first) : groups.includes(first);
  const valid = ['success', 'return', ...groups.map(name => `${name}/…`)].map(name => `val-env/${name}`);
  return {
    'training.monitor.metric': !isThere && `no validation has ${metric}; there are ${valid.join(', ')}`,
  };
}

/** Loss terms without anything to learn from, or without an effect. */
export function streamClashes(settings: RunSettings): Rules {
  const { algorithm, loss, rollout, policy, diagnostics } = settings;
  const steps = Math.ceil((rollout.env_groups * rollout.group_size) / algorithm.mini_batch_size);
  const { perSequence = false } = advantageEstimator(algorithm.advantage);
  const perSequenceNames = ADVANTAGES.filter(name => advantageEstimator(name).perSequence).join(', ');
  const isDistilled = isSelfDistilled(settings);
  const isGdpo = algorithm.advantage === 'gdpo';
  return {
    'loss.cross_entropy': [
      loss.cross_entropy.observations > 0 &&
        rollout.context_mode === 'single_turn' &&
        'weighs what the environment writes after a response, which no sequence of rollout.context_mode single_turn has: use full',
      hasCrossEntropy(loss) &&
        hasPreferenceLoss(settings) &&
        `is a separate term, and ${loss.policy} is averaged over pairs: set its weights to 0`,
    ],
    'diagnostics.gradients':
      hasCrossEntropy(loss) &&
      diagnostics.gradients.every > 0 &&
      'does not measure the gradient of the cross-entropy separately: use every: 0, or set the weights of loss.cross_entropy to 0',
    'loss.policy':
      loss.policy === 'kl_cov' &&
      rollout.context_mode === 'full' &&
      algorithm.ppo_epochs * steps === 1 &&
      rollout.asynchronous === null &&
      'is kl_cov, with a penalty of |log ratio| that has no gradient at the first step, and an iteration has one step: use a smaller algorithm.mini_batch_size or more ppo_epochs',
    'algorithm.advantage':
      policyLoss(loss.policy).sequenceLevel === true &&
      (!perSequence || hasKlInReward(settings)) &&
      `${algorithm.advantage} may differ from token to token, and ${loss.policy} takes one advantage per sequence: choose ${perSequenceNames}${hasKlInReward(settings) ? ', and loss.kl in place of algorithm.kl_in_reward' : ''}`,
    'loss.kl':
      isDistilled &&
      !hasKlLoss(settings) &&
      'shows demonstrations to a reference that nothing compares with: give it a coefficient, 1 for estimator reverse',
    'loss.kl.demonstration': isDistilled && [
      (!hasOwnReference(policy) || needsReference(settings)) &&
        'makes the policy its own reference, and another one is named or needed: leave policy.reference and policy.reference_endpoint null, and use no other term with a reference',
      rollout.group_size < 2 &&
        `shows another episode of the group, but rollout.group_size is ${rollout.group_size}: use at least 2`,
    ],
    'policy.reference':
      algorithm.advantage === 'iw_opd' &&
      hasOwnReference(policy) &&
      'is null, and iw_opd learns from the reference alone: a checkpoint folder there, or policy.reference_endpoint, names the teacher',
    'algorithm.reward_components':
      isGdpo &&
      Object.keys(algorithm.reward_components ?? {}).length === 0 &&
      'is empty, and gdpo compares components: name some, e.g. {reward: 1, format_penalty: 1}',
    'algorithm.reward_normalization':
      isGdpo &&
      algorithm.reward_components !== null &&
      algorithm.reward_normalization.method !== 'identity' &&
      'normalizes the sum of the rewards, and gdpo normalizes each component by itself: use identity',
  };
}

/** Pairs are made of whole episodes of a group. */
export function preferenceClashes(settings: RunSettings): Rules {
  const { algorithm, loss, rollout, diagnostics } = settings;
  if (!hasPreferenceLoss(settings)) return {};
  const { fill, loss_scaling } = algorithm.filter;
  const faults: { readonly [key: string]: string | false } = {
    'rollout.group_size': rollout.group_size < 2 && 'is 1, and a pair takes two: use at least 2',
    'rollout.context_mode': rollout.context_mode !== 'full' && 'cuts episodes, and pairs are whole: use full',
    'algorithm.mini_batch_size':
      algorithm.mini_batch_size < 2 && 'is 1, and a pair takes two: use at least 2',
    'algorithm.train_on': algorithm.train_on !== 'all' && 'drops failures, which pairs need: use all',
    'algorithm.overlong_mask': algorithm.overlong_mask && 'would split pairs: use false',
    'algorithm.filter.fill':
      fill !== 'none' && fill !== 'refill' && `is ${fill}, which would split pairs: use none or refill`,
    'algorithm.filter.loss_scaling':
      loss_scaling !== 'none' && 'scales advantages, which pairs have none of: use none',
    'algorithm.kl_in_reward':
      hasKlInReward(settings) && 'has no part in returns, by which pairs are chosen: use 0',
    'loss.entropy_coefficient': loss.entropy_coefficient > 0 && 'has no term in a preference loss: use 0',
    'diagnostics.gradients':
      diagnostics.gradients.every > 0 && 'tells apart parts of a loss that dpo does not have: use every: 0',
  };
  return Object.fromEntries(
    Object.entries(faults).map(([key, why]) => [key, why && `${why} (loss.policy is ${loss.policy})`]),
  );
}

/** Conflicts of episodes that branch, of those that continue others, and of valued histories. */
export function branchingClashes(settings: RunSettings): Rules {
  const { rollout, algorithm, loss } = settings;
  const { tree, prefix, vine } = rollout;
  const { advantage } = algorithm;
  const { ofTrees = false } = advantageEstimator(advantage);
  const comparing = ADVANTAGES.filter(name => advantageEstimator(name).ofTrees).join(', ');
  const plan = treePlan(settings);
  const leaves = plan && plan.roots * leavesPerRoot(plan);
  const perRun = (key: 'tree' | 'vine' | 'prefix') => [
    rollout[key] !== null &&
      rollout.agent !== null &&
      'copies the state of an episode, which a program of rollout.agent keeps to itself: use one of them',
    rollout[key] !== null &&
      rollout.asynchronous !== null &&
      (key === 'prefix'
        ? "depends on the last iteration's results, which asynchronous collection does not wait for: use one of them"
        : 'compares branches under the same weights, and asynchronous collection may change those between a branch and its chain: set rollout.asynchronous to null'),
  ];
  return {
    'algorithm.advantage': [
      ofTrees &&
        !tree &&
        `${advantage} compares the leaves of trees, but rollout.tree is null: give it settings, e.g. rollout.tree={}`,
      !ofTrees &&
        tree !== null &&
        `${advantage} takes episodes to be independent, but with rollout.tree they share turns: choose ${comparing}, or set rollout.tree to null`,
      advantage === 'vine' &&
        !vine &&
        'vine takes values of histories from other continuations, but rollout.vine is null: give it settings, e.g. rollout.vine={}',
      advantage !== 'vine' &&
        vine &&
        `${advantage} uses no values of rollout.vine, which cost ${vine.clones} continuations a turn: choose vine, or set rollout.vine to null`,
    ],
    'rollout.tree': [
      leaves !== undefined &&
        leaves > rollout.group_size &&
        `comes to up to ${leaves} leaves a group (${plan?.roots} roots), but rollout.group_size is ${rollout.group_size}: raise that, or use fewer roots, branches or children`,
      ...perRun('tree'),
    ],
    'rollout.tree.turns':
      tree?.where === 'fixed' &&
      tree.turns === null &&
      'is null, and `fixed` branches at given turns: name some, e.g. [1], or choose where: drawn',
    'rollout.prefix': [
      tree && prefix && 'continues single episodes, and rollout.tree makes none: use one of them',
      ...perRun('prefix'),
    ],
    'loss.aggregation':
      tree &&
      loss.aggregation === 'seq_mean_token_mean' &&
      'seq_mean_token_mean divides by the tokens of a leaf, without those of shared turns: choose token_mean, seq_mean_token_sum or dr_grpo with rollout.tree',
    'algorithm.reward_normalization':
      (tree || vine) &&
      algorithm.reward_normalization.method !== 'identity' &&
      'compares whole episodes: use identity with rollout.tree and rollout.vine',
    'rollout.prefix.low':
      prefix && prefix.low > prefix.high && `is ${prefix.low}, above rollout.prefix.high ${prefix.high}`,
    'rollout.prefix.adaptive.least':
      prefix &&
      prefix.adaptive.least > prefix.adaptive.most &&
      `is ${prefix.adaptive.least}, above rollout.prefix.adaptive.most ${prefix.adaptive.most}`,
    'rollout.luck':
      prefix &&
      rollout.luck === 'same' &&
      !prefix.deterministic &&
      'is same, and rollout.prefix chooses episodes by their outcome: the same luck again would bias what is learned. Use fresh, or rollout.prefix.deterministic: true where nothing is random after the start',
    'rollout.vine': [
      vine &&
        (tree || prefix) &&
        `values the histories of whole episodes: set rollout.${tree === null ? 'prefix' : 'tree'} to null, or rollout.vine`,
      ...perRun('vine'),
    ],
    'algorithm.gamma':
      vine && algorithm.gamma !== 1 && `is ${algorithm.gamma}, and vine compares undiscounted returns: use 1`,
    'algorithm.kl_in_reward':
      vine &&
      algorithm.kl_in_reward.coefficient > 0 &&
      'is not part of the reward of continuations: use loss.kl.coefficient with rollout.vine',
  };
}

/**
 * Capabilities for branches that the training environments lack.
 * @returns notes on the substitutes
 * @throws Error naming the setting, the environment and the missing capability
 */
export function checkBranching(settings: RunSettings, tags: readonly DescribedTag[]): string[] {
  const { tree, vine, prefix, luck, state_key } = settings.rollout;
  const notes: string[] = [];
  for (const { tag, copyable, seedable, reseedable } of tags) {
    if (!settings.train_tags.includes(tag.name)) continue;
    const id = tag.environmentId;
    for (const [key, on] of [
      ['rollout.tree', tree !== null],
      ['rollout.vine', vine !== null],
      ['rollout.prefix', prefix !== null],
    ] as const) {
      if (!on) continue;
      if (!copyable && !seedable)
        throw new Error(`${key}: ${id} has neither snapshot nor seed, so an episode cannot be branched`);
      if (!copyable)
        notes.push(
          `${key}: ${id} has no capability snapshot: each branch opens a session with the same seed and plays the actions again`,
        );
    }
    if (prefix && !reseedable && !prefix.deterministic) {
      throw new Error(
        `rollout.prefix: ${id} has no capability reseed, so continuations would have the luck of the episode that was chosen by its outcome, which biases what is learned: set rollout.prefix.deterministic to true if nothing is random after the start, or rollout.prefix to null`,
      );
    }
    if ((tree || vine) && luck === 'fresh' && !reseedable)
      notes.push(
        `rollout.luck: ${id} has no capability reseed, so branches have the same luck (rollout.luck: same)`,
      );
    if (state_key === 'state' && !(copyable && reseedable))
      throw new Error(
        `rollout.state_key: ${id} has no state keys (capabilities snapshot and reseed): choose observation`,
      );
  }
  return notes;
}
