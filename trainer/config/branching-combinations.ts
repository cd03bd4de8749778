import { ADVANTAGES, advantageEstimator } from '../algorithms/advantages/registry.ts';
import { leavesPerRoot } from '../rollout/branching/tree-plan.ts';
import type { DescribedTag } from '../rollout/described-tag.ts';
import { treePlan } from './derived.ts';
import type { SettingConflict } from './sections/schema.ts';
import type { RunSettings } from './settings.ts';

type Clash = readonly [on: boolean, key: string, message: string];

/** Conflicts of episodes that branch, and of those that continue others. */
export function branchingClashes(settings: RunSettings): SettingConflict[] {
  const { rollout, algorithm, loss } = settings;
  const { tree, prefix } = rollout;
  const { ofTrees = false } = advantageEstimator(algorithm.advantage);
  const comparing = ADVANTAGES.filter(name => advantageEstimator(name).ofTrees).join(', ');
  const plan = treePlan(settings);
  const leaves = plan && plan.roots * leavesPerRoot(plan);
  const clashes: readonly Clash[] = [
    [
      ofTrees && !tree,
      'algorithm.advantage',
      `${algorithm.advantage} compares the leaves of trees, but rollout.tree is null: give it settings, e.g. rollout.tree={}`,
    ],
    [
      !ofTrees && tree !== null,
      'algorithm.advantage',
      `${algorithm.advantage} takes episodes to be independent, but with rollout.tree they share turns: choose ${comparing}, or set rollout.tree to null`,
    ],
    [
      leaves !== undefined && leaves > rollout.group_size,
      'rollout.tree',
      `comes to up to ${leaves} leaves a group (${plan?.roots} roots), but rollout.group_size is ${rollout.group_size}: raise that, or use fewer roots, branches or children`,
    ],
    [
      tree?.where === 'fixed' && tree.turns === null,
      'rollout.tree.turns',
      'is null, and `fixed` branches at given turns: name some, e.g. [1], or choose where: drawn',
    ],
    [
      tree !== null && prefix !== null,
      'rollout.prefix',
      'continues single episodes, and rollout.tree makes none: use one of them',
    ],
    [
      tree !== null && loss.aggregation === 'seq_mean_token_mean',
      'loss.aggregation',
      'seq_mean_token_mean divides by the tokens of a leaf, of which shared turns are no part: choose token_mean, seq_mean_token_sum or dr_grpo with rollout.tree',
    ],
    [
      (tree !== null || rollout.vine !== null) && algorithm.reward_normalization.method !== 'identity',
      'algorithm.reward_normalization',
      'compares whole episodes: use identity with rollout.tree and rollout.vine',
    ],
    [
      prefix !== null && prefix.low > prefix.high,
      'rollout.prefix.low',
      `is ${prefix?.low}, above rollout.prefix.high ${prefix?.high}`,
    ],
    [
      prefix !== null && prefix.adaptive.least > prefix.adaptive.most,
      'rollout.prefix.adaptive.least',
      `is ${prefix?.adaptive.least}, above rollout.prefix.adaptive.most ${prefix?.adaptive.most}`,
    ],
    [
      prefix !== null && rollout.luck === 'same' && !prefix.deterministic,
      'rollout.luck',
      'is same, and rollout.prefix chooses episodes by their outcome: the same luck again would bias what is learned. Use fresh, or rollout.prefix.deterministic: true where nothing is random after the start',
    ],
    ...(['tree', 'vine', 'prefix'] as const).flatMap(key => [
      [
        rollout[key] !== null && rollout.agent !== null,
        `rollout.${key}`,
        'copies the state of an episode, which a program of rollout.agent keeps to itself: use one of them',
      ] as const,
      [
        rollout[key] !== null && rollout.asynchronous !== null,
        `rollout.${key}`,
        key !== 'prefix'
          ? 'compares branches under the same weights, and asynchronous collection may change those between a branch and its chain: set rollout.asynchronous to null'
          : "depends on the last iteration's results, which asynchronous collection does not wait for: use one of them",
      ] as const,
    ]),
  ];
  return [...clashes, ...vineClashes(settings)].flatMap(([on, key, message]) =>
    on ? [{ key, message }] : [],
  );
}

/** Conflicts of valued histories. */
function vineClashes({ rollout, algorithm }: RunSettings): readonly Clash[] {
  const { tree, prefix, vine } = rollout;
  return [
    [
      algorithm.advantage === 'vine' && !vine,
      'algorithm.advantage',
      'vine takes values of histories from other continuations, but rollout.vine is null: give it settings, e.g. rollout.vine={}',
    ],
    [
      algorithm.advantage !== 'vine' && vine !== null,
      'algorithm.advantage',
      `${algorithm.advantage} uses no values of rollout.vine, which cost ${vine?.clones} continuations a turn: choose vine, or set rollout.vine to null`,
    ],
    [
      vine !== null && (tree !== null || prefix !== null),
      'rollout.vine',
      `values the histories of whole episodes: set rollout.${tree === null ? 'prefix' : 'tree'} to null, or rollout.vine`,
    ],
    [
      vine !== null && algorithm.gamma !== 1,
      'algorithm.gamma',
      `is ${algorithm.gamma}, and vine compares undiscounted returns: use 1`,
    ],
    [
      vine !== null && algorithm.kl_in_reward.coefficient > 0,
      'algorithm.kl_in_reward',
      'is no part of what continuations earn: use loss.kl_coefficient with rollout.vine',
    ],
  ];
}

/**
 * What the environments of the training tags lack for branches.
 * @returns notes on what is done instead
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
