import type { JsonObject } from '../../../shared/json.ts';
import { Problem } from '../../problems.ts';
import type { Variant } from '../../sessions/episodes/variant.ts';

// The tasks of environments: seeds in splits.

/** Characters of a wrong name that an error repeats. */
const MAX_SHOWN_LENGTH = 100;

/** Part of the tasks of an environment. */
interface TaskSplit extends JsonObject {
  readonly name: string;
  readonly type: 'train' | 'validation' | 'test';
}

/** A task, as in `task_spec` of `/create` and in task lists. */
type SplitTask = {
  /** Absent where the environment has no randomness. */
  readonly seed?: number;
  /** Present where the environment has splits. */
  readonly config?: { readonly split: string };
};

interface SeedRange {
  readonly first: number;
  readonly count: number;
}

/** The seeds of each split; the ranges never overlap, even for an environment without splits. */
const SEEDS: { readonly [type in TaskSplit['type']]: SeedRange } = {
  train: { first: 0, count: 10_000 },
  validation: { first: 1_000_000, count: 1000 },
  test: { first: 2_000_000, count: 1000 },
};

const TYPES = Object.keys(SEEDS) as TaskSplit['type'][];

/** The splits of an environment: its own, or ranges of seeds. An environment without randomness has one task. */
export function splitsOf(variant: Variant): readonly TaskSplit[] {
  const own = ownSplits(variant);
  const types = variant.seedable ? TYPES.filter(type => !own || own.has(type)) : TYPES.slice(0, 1);
  return types.map(type => ({ name: type, type }));
}

/** Number of tasks in a split. */
export function countTasks(variant: Variant, split: string): number {
  return variant.seedable ? SEEDS[typeOf(variant, split)].count : 1;
}

/**
 * Tasks of a split: the seeds of its range, with the environment's own split where it has splits.
 * @param start first index; negative ones count from the end, as in Python
 * @param stop index after the last
 * @throws Problem `bad_request` for an unknown split
 */
export function tasksOf(variant: Variant, split: string, start = 0, stop?: number): SplitTask[] {
  const type = typeOf(variant, split);
  const count = countTasks(variant, split);
  const at = (index: number) => Math.min(index < 0 ? Math.max(count + index, 0) : index, count);
  const from = at(start);
  return Array.from({ length: Math.max(0, at(stop ?? count) - from) }, (_, i) =>
    specOf(variant, type, from + i),
  );
}

/** @throws Problem `bad_request` for an unknown index or split */
export function taskAt(variant: Variant, split: string, index: number): SplitTask {
  const count = countTasks(variant, split);
  const at = index < 0 ? count + index : index;
  if (at < 0 || at >= count) {
    throw new Problem('bad_request', `index ${index} is outside the ${count} tasks of the split ${split}`);
  }
  return specOf(variant, typeOf(variant, split), at);
}

function specOf(variant: Variant, type: TaskSplit['type'], index: number): SplitTask {
  return {
    ...(variant.seedable && { seed: SEEDS[type].first + index }),
    ...(ownSplits(variant) && { config: { split: type } }),
  };
}

/** The values of the configuration key `split`; undefined for an environment without splits. */
function ownSplits({ environment }: Variant): ReadonlySet<unknown> | undefined {
  const { properties } = environment.spec.configSchema as { properties?: { [key: string]: SplitSchema } };
  const { anyOf, enum: listed } = properties?.split ?? {};
  const values = listed ?? anyOf?.map(choice => choice.const);
  return values && TYPES.some(type => values.includes(type)) ? new Set(values) : undefined;
}

interface SplitSchema {
  readonly anyOf?: readonly { readonly const?: unknown }[];
  readonly enum?: readonly unknown[];
}

function typeOf(variant: Variant, split: string): TaskSplit['type'] {
  const splits = splitsOf(variant);
  const found = splits.find(({ name }) => name === split);
  if (found) return found.type;
  const known = splits.map(({ name }) => name).join(', ');
  throw new Problem(
    'bad_request',
    `there is no split ${JSON.stringify(split.slice(0, MAX_SHOWN_LENGTH))}; there are ${known}`,
  );
}
