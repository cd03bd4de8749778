import { ADVANTAGES, advantageEstimator } from '../algorithms/advantages/registry.ts';
import { leavesPerRoot } from '../rollout/branching/tree-plan.ts';
import type { DescribedTag } from '../rollout/described-tag.ts';
import { treePlan } from './derived.ts';
import type { Rules } from './sections/schema.ts';
import type { RunSettings } from './settings.ts';

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
