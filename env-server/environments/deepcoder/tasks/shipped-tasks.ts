import { GRID_TASKS } from './grids.ts';
import { LIST_TASKS } from './lists.ts';
import { NUMBER_TASKS } from './numbers.ts';
import { STDIN_TASKS } from './stdin-tasks.ts';
import type { Task } from './task.ts';
import { TEXT_TASKS } from './texts.ts';

/** Names of the tasks with tests that call a function, in the order that seeds number them: a new one comes last. */
const CALL_ORDER = [
  'sum_even',
  'count_vowels',
  'second_largest',
  'is_palindrome',
  'run_lengths',
  'rotate',
  'two_sum',
  'is_balanced',
  'primes_below',
  'greatest_common_divisor',
  'to_roman',
  'merge_sorted',
  'longest_common_prefix',
  'max_subarray',
  'climb_stairs',
  'least_coins',
  'edit_distance',
  'longest_increasing',
  'transpose',
  'spiral',
  'count_islands',
  'group_anagrams',
  'top_words',
  'binary_search',
  'power_mod',
  'flatten',
  'caesar',
  'happy_number',
  'trapped_water',
  'course_order',
];

const CALL_TASKS_BY_NAME = new Map(
  [...GRID_TASKS, ...LIST_TASKS, ...NUMBER_TASKS, ...TEXT_TASKS].map(task => [task.name, task]),
);

/** The shipped tasks. */
export const TASKS: readonly Task[] = [
  ...CALL_ORDER.map(name => CALL_TASKS_BY_NAME.get(name)!),
  ...STDIN_TASKS,
];
