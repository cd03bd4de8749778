import type { Json, JsonObject } from '../../shared/json.ts';
import type { KeptPrefix } from './branching/prefix.ts';
import type { TreePlan, VinePlan } from './branching/tree-plan.ts';

/** A named environment with its configuration and the caps of a rollout in it. */
export interface Tag {
  readonly name: string;
  readonly environmentId: string;
  readonly config: JsonObject;
  /** Pins the start of every episode; absent: levels follow the seeds. */
  readonly options?: JsonObject;
  /** Example actions in place of those that the environment lists. */
  readonly actions?: readonly Json[];
  /** Largest distance of numbers in JSON actions from 0 or their one bound where the schema sets none; absent: any. */
  readonly numberSpan?: number;
  readonly maxTurns: number;
  readonly maxActionsPerTurn: number;
  readonly maxActionsPerTrajectory: number;
  /** Added once to a turn with an unknown action or without a valid one; 0 or negative. */
  readonly formatPenalty: number;
}

/** A group to be played: `size` episodes that start from the same state. */
export interface GroupPlan {
  readonly groupId: number;
  readonly tag: string;
  readonly seed: number;
  readonly size: number;
  /** Seeds the draws of its agents; absent: the collection's seed does. */
  readonly samplingSeed?: number;
  /** Its episodes must be one token sequence each, where the context mode is `full`. */
  readonly whole?: boolean;
  /** Its episodes keep the state of every turn as plain JSON, for display. */
  readonly record?: boolean;
  /** Its episodes are the leaves of trees; `size` is the maximum. */
  readonly tree?: TreePlan;
  /** Histories of its episodes are valued by other continuations. */
  readonly vine?: VinePlan;
  /** Its episodes continue an earlier one, with other draws. */
  readonly prefix?: KeptPrefix;
  /** Its turns have state names. */
  readonly stateKeys?: boolean;
}

/**
 * The groups of one collection: tag by tag, every group with its own seed, counted up from `firstSeed`. Training
 * advances `firstSeed` by the number of groups each iteration; validation always uses the same.
 */
export function planGroups(plan: {
  readonly tags: readonly { readonly tag: string; readonly groups: number }[];
  readonly groupSize: number;
  readonly firstSeed: number;
  /** Number of the first group; 0 by default. */
  readonly firstGroup?: number;
  /** Number of first groups that keep the states of their turns; 0 by default. */
  readonly recorded?: number;
  /** Episodes must be one token sequence each. */
  readonly whole?: boolean;
  readonly tree?: TreePlan;
  readonly vine?: VinePlan;
  readonly stateKeys?: boolean;
}): GroupPlan[] {
  const { firstGroup = 0, recorded = 0, whole = false, tree, vine, stateKeys = false } = plan;
  const groups: GroupPlan[] = [];
  for (const { tag, groups: count } of plan.tags) {
    for (let i = 0; i < count; i++) {
      const n = groups.length;
      groups.push({
        groupId: firstGroup + n,
        tag,
        seed: plan.firstSeed + n,
        size: plan.groupSize,
        ...(n < recorded ? { record: true } : {}),
        ...(whole ? { whole } : {}),
        ...(tree ? { tree } : {}),
        ...(vine ? { vine } : {}),
        ...(stateKeys ? { stateKeys } : {}),
      });
    }
  }
  return groups;
}
