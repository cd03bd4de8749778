import type { Json } from '../../../../shared/json.ts';
import { range, sum } from './arithmetic.ts';
import { callTask } from './call-task.ts';
import type { Task } from './task.ts';

const flatten = (nested: Json[]): Json[] =>
  nested.flatMap(item => (Array.isArray(item) ? flatten(item) : [item]));

/** Shipped tasks about lists; their tests call a function. */
export const LIST_TASKS: readonly Task[] = [
  callTask(
    'sum_even',
    'nums: list[int]',
    'Add up the even numbers of a list.',
    'return sum(n for n in nums if n % 2 == 0)',
    (nums: number[]) => sum(nums.filter(n => n % 2 === 0)),
    [[[1, 2, 3, 4]], [[]], [[-2, 5, 8]], [[7, 9]], [range(1000)]],
  ),
  callTask(
    'second_largest',
    'nums: list[int]',
    'Find the second largest different number of a list; there are at least two different ones.',
    'return sorted(set(nums))[-2]',
    (nums: number[]) => [...new Set(nums)].sort((a, b) => b - a)[1],
    [[[1, 2, 3]], [[5, 5, 4]], [[-1, -2, -2]], [[10, 9, 10, 8]], [[0, 100, 50, 100]]],
  ),
  callTask(
    'rotate',
    'nums: list[int], k: int',
    'Rotate a list to the right by k places.',
    'if not nums:\n    return nums\nk %= len(nums)\nreturn nums[len(nums) - k:] + nums[:len(nums) - k]',
    (nums: number[], k: number) =>
      nums.map((_, i) => nums[(((i - k) % nums.length) + nums.length) % nums.length]),
    [
      [[1, 2, 3, 4, 5], 2],
      [[1], 7],
      [[], 3],
      [[1, 2, 3], 3],
      [[1, 2, 3, 4], 5],
    ],
  ),
  callTask(
    'two_sum',
    'nums: list[int], target: int',
    'Find the positions i < j of the only two numbers that add up to the target.',
    'seen = {}\nfor j, n in enumerate(nums):\n    if target - n in seen:\n        return [seen[target - n], j]\n    seen[n] = j',
    (nums: number[], target: number) => {
      for (let j = 0; j < nums.length; j++)
        for (let i = 0; i < j; i++) if (nums[i] + nums[j] === target) return [i, j];
      return null;
    },
    [
      [[2, 7, 11, 15], 9],
      [[3, 2, 4], 6],
      [[3, 3], 6],
      [[-1, 5, 9, -4], 1],
      [[0, 4, 3, 0], 0],
    ],
  ),
  callTask(
    'merge_sorted',
    'a: list[int], b: list[int]',
    'Merge two sorted lists into one sorted list.',
    'return sorted(a + b)',
    (a: number[], b: number[]) => [...a, ...b].sort((x, y) => x - y),
    [
      [
        [1, 3],
        [2, 4],
      ],
      [[], []],
      [[], [1]],
      [
        [5, 6],
        [1, 2],
      ],
      [[1, 1], [1]],
    ],
  ),
  callTask(
    'max_subarray',
    'nums: list[int]',
    'Find the largest sum of a run of neighbouring numbers; the run has at least one.',
    'best = here = nums[0]\nfor n in nums[1:]:\n    here = max(n, here + n)\n    best = max(best, here)\nreturn best',
    (nums: number[]) => {
      let best = -Infinity;
      for (let i = 0; i < nums.length; i++)
        for (let j = i, s = 0; j < nums.length; j++) {
          s += nums[j];
          best = Math.max(best, s);
        }
      return best;
    },
    [[[-2, 1, -3, 4, -1, 2, 1, -5, 4]], [[1]], [[-3, -1, -2]], [[5, 4, -1, 7, 8]], [[0, -1, 0]]],
  ),
  callTask(
    'longest_increasing',
    'nums: list[int]',
    'Find the length of the longest strictly increasing subsequence.',
    'from bisect import bisect_left\ntails = []\nfor n in nums:\n    i = bisect_left(tails, n)\n    if i == len(tails):\n        tails.append(n)\n    else:\n        tails[i] = n\nreturn len(tails)',
    (nums: number[]) => {
      const best: number[] = [];
      for (const n of nums) best.push(1 + Math.max(0, ...best.filter((_, j) => nums[j] < n)));
      return Math.max(0, ...best);
    },
    [[[10, 9, 2, 5, 3, 7, 101, 18]], [[]], [[7, 7, 7]], [[0, 1, 0, 3, 2, 3]], [[5, 4, 3]]],
  ),
  callTask(
    'binary_search',
    'nums: list[int], target: int',
    'Find the position of a number in a sorted list without repetitions, -1 if it is missing.',
    'from bisect import bisect_left\ni = bisect_left(nums, target)\nreturn i if i < len(nums) and nums[i] == target else -1',
    (nums: number[], target: number) => nums.indexOf(target),
    [
      [[1, 3, 5, 7], 5],
      [[1, 3, 5, 7], 4],
      [[], 1],
      [[2], 2],
      [range(1000).map(i => i * 2), 1998],
    ],
  ),
  callTask(
    'flatten',
    'nested: list',
    'Flatten a list of numbers and lists, however deep.',
    'out = []\nfor item in nested:\n    out += flatten(item) if isinstance(item, list) else [item]\nreturn out',
    flatten,
    [[[1, [2, [3, [4]]]]], [[]], [[[], [[]]]], [[1, 2]], [[[[[5]]], 6]]],
  ),
  callTask(
    'trapped_water',
    'heights: list[int]',
    'Walls of width 1 stand side by side. How much rain water stays between them?',
    'water = 0\nfor i, h in enumerate(heights):\n    water += max(0, min(max(heights[:i + 1]), max(heights[i:])) - h)\nreturn water',
    (h: number[]) =>
      sum(h.map((x, i) => Math.min(Math.max(...h.slice(0, i + 1)), Math.max(...h.slice(i))) - x)),
    [[[0, 1, 0, 2, 1, 0, 1, 3, 2, 1, 2, 1]], [[4, 2, 0, 3, 2, 5]], [[]], [[3]], [[5, 0, 5]]],
  ),
];
