import type { Json } from '../../../shared/json.ts';
import type { Task } from './task.ts';

/** Shipped tasks whose tests call a function. Expected results come from the function here, not from the solution. */

/** @param parameters of the Python function, e.g. `nums: list[int], k: int` */
function call(
  name: string,
  parameters: string,
  statement: string,
  solution: string,
  right: (...given: never[]) => Json,
  inputs: readonly (readonly Json[])[],
): Task {
  const head = `def ${name}(${parameters}):`;
  return {
    name,
    statement: `${statement}\n\nWrite a function \`${head.slice(4, -1)}\` that returns the answer.`,
    starter: head,
    entry: name,
    tests: inputs.map(given => ({
      kind: 'call',
      arguments: given,
      result: (right as (...given: readonly Json[]) => Json)(...given),
    })),
    solution: `${head}\n${solution
      .trim()
      .split('\n')
      .map(line => `    ${line}`)
      .join('\n')}\n`,
  };
}

const sum = (list: readonly number[]) => list.reduce((a, b) => a + b, 0);
const gcd = (a: number, b: number): number => (b === 0 ? a : gcd(b, a % b));
const isPrime = (n: number) => {
  if (n < 2) return false;
  for (let d = 2; d * d <= n; d++) if (n % d === 0) return false;
  return true;
};
const range = (n: number) => Array.from({ length: n }, (_, i) => i);

const flatten = (nested: Json[]): Json[] =>
  nested.flatMap(item => (Array.isArray(item) ? flatten(item) : [item]));

export const CALL_TASKS: readonly Task[] = [
  call(
    'sum_even',
    'nums: list[int]',
    'Add up the even numbers of a list.',
    'return sum(n for n in nums if n % 2 == 0)',
    (nums: number[]) => sum(nums.filter(n => n % 2 === 0)),
    [[[1, 2, 3, 4]], [[]], [[-2, 5, 8]], [[7, 9]], [range(1000)]],
  ),
  call(
    'count_vowels',
    'text: str',
    'Count the vowels a, e, i, o, u of a text, small and capital.',
    "return sum(c in 'aeiou' for c in text.lower())",
    (text: string) => text.match(/[aeiou]/gi)?.length ?? 0,
    [['Hello World'], [''], ['xyz'], ['AEIOUaeiou'], ['Programming is fun']],
  ),
  call(
    'second_largest',
    'nums: list[int]',
    'Find the second largest different number of a list; there are at least two different ones.',
    'return sorted(set(nums))[-2]',
    (nums: number[]) => [...new Set(nums)].sort((a, b) => b - a)[1],
    [[[1, 2, 3]], [[5, 5, 4]], [[-1, -2, -2]], [[10, 9, 10, 8]], [[0, 100, 50, 100]]],
  ),
  call(
    'is_palindrome',
    'text: str',
    'Tell whether a text reads the same backwards, letters and digits only, in any case.',
    's = [c for c in text.lower() if c.isalnum()]\nreturn s == s[::-1]',
    (text: string) => {
      const s = text.toLowerCase().replaceAll(/[^a-z0-9]/g, '');
      return s === [...s].reverse().join('');
    },
    [['A man, a plan, a canal: Panama'], ['race a car'], [''], ['ab'], ['12321'], ['No lemon, no melon']],
  ),
  call(
    'run_lengths',
    'text: str',
    'Compress a text: each run of a character becomes the character and the length of the run.',
    "out = ''\ni = 0\nwhile i < len(text):\n    j = i\n    while j < len(text) and text[j] == text[i]:\n        j += 1\n    out += text[i] + str(j - i)\n    i = j\nreturn out",
    (text: string) => text.replaceAll(/(.)\1*/g, run => run[0] + run.length),
    [['aaabbc'], [''], ['abc'], ['zzzzzzzzzzzz'], ['aabbaa']],
  ),
  call(
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
  call(
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
  call(
    'is_balanced',
    'text: str',
    'Tell whether the brackets ()[]{} of a text are balanced.',
    "stack = []\npairs = {')': '(', ']': '[', '}': '{'}\nfor c in text:\n    if c in '([{':\n        stack.append(c)\n    elif c in pairs:\n        if not stack or stack.pop() != pairs[c]:\n            return False\nreturn not stack",
    (text: string) => {
      let s = text.replaceAll(/[^()[\]{}]/g, '');
      for (let before = ''; before !== s; ) {
        before = s;
        s = s.replaceAll(/\(\)|\[\]|\{\}/g, '');
      }
      return s === '';
    },
    [['(a[b]{c})'], ['(]'], [''], ['(('], ['}{'], ['[({})]()']],
  ),
  call(
    'primes_below',
    'n: int',
    'List all prime numbers below n.',
    'return [p for p in range(2, n) if all(p % d for d in range(2, int(p ** 0.5) + 1))]',
    (n: number) => range(n).filter(isPrime),
    [[10], [2], [0], [30], [100]],
  ),
  call(
    'greatest_common_divisor',
    'nums: list[int]',
    'Find the greatest common divisor of a list of positive numbers.',
    'from math import gcd\nfrom functools import reduce\nreturn reduce(gcd, nums)',
    (nums: number[]) => nums.reduce(gcd),
    [[[12, 18]], [[7]], [[100, 75, 50]], [[17, 13]], [[48, 64, 80, 96]]],
  ),
  call(
    'to_roman',
    'n: int',
    'Write a number from 1 to 3999 in Roman numerals.',
    "out = ''\nfor value, sign in [(1000, 'M'), (900, 'CM'), (500, 'D'), (400, 'CD'), (100, 'C'), (90, 'XC'), (50, 'L'), (40, 'XL'), (10, 'X'), (9, 'IX'), (5, 'V'), (4, 'IV'), (1, 'I')]:\n    while n >= value:\n        out += sign\n        n -= value\nreturn out",
    (n: number) => {
      const digit = (d: number, [one, five, ten]: string) =>
        [
          '',
          one,
          one + one,
          one + one + one,
          one + five,
          five,
          five + one,
          five + one + one,
          five + one + one + one,
          one + ten,
        ][d];
      return (
        'M'.repeat(Math.floor(n / 1000)) +
        digit(Math.floor(n / 100) % 10, 'CDM') +
        digit(Math.floor(n / 10) % 10, 'XLC') +
        digit(n % 10, 'IVX')
      );
    },
    [[4], [9], [58], [1994], [3999], [1]],
  ),
  call(
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
  call(
    'longest_common_prefix',
    'words: list[str]',
    'Find the longest common beginning of some words.',
    "if not words:\n    return ''\nfor i, c in enumerate(words[0]):\n    if any(len(w) <= i or w[i] != c for w in words):\n        return words[0][:i]\nreturn words[0]",
    (words: string[]) => {
      let p = words[0] ?? '';
      while (!words.every(w => w.startsWith(p))) p = p.slice(0, -1);
      return p;
    },
    [[['flower', 'flow', 'flight']], [['dog', 'car']], [['same', 'same']], [[]], [['a', 'ab', 'abc']]],
  ),
  call(
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
  call(
    'climb_stairs',
    'n: int',
    'Count the ways to climb n stairs, taking one or two at a time.',
    'a, b = 1, 1\nfor _ in range(n):\n    a, b = b, a + b\nreturn a',
    (n: number) => {
      const ways = [1, 1];
      for (let i = 2; i <= n; i++) ways.push(ways[i - 1] + ways[i - 2]);
      return ways[n];
    },
    [[1], [2], [3], [10], [40], [0]],
  ),
  call(
    'least_coins',
    'coins: list[int], amount: int',
    'Find the least number of coins that make the amount, -1 if none do.',
    "best = [0] + [float('inf')] * amount\nfor a in range(1, amount + 1):\n    for c in coins:\n        if c <= a:\n            best[a] = min(best[a], best[a - c] + 1)\nreturn best[amount] if best[amount] < float('inf') else -1",
    (coins: number[], amount: number) => {
      let layer = new Set([0]);
      const seen = new Set([0]);
      for (let n = 0; layer.size > 0; n++) {
        if (layer.has(amount)) return n;
        const next = new Set<number>();
        for (const a of layer)
          for (const c of coins)
            if (a + c <= amount && !seen.has(a + c)) {
              seen.add(a + c);
              next.add(a + c);
            }
        layer = next;
      }
      return -1;
    },
    [
      [[1, 2, 5], 11],
      [[2], 3],
      [[1], 0],
      [[5, 10, 25], 30],
      [[7, 3], 13],
    ],
  ),
  call(
    'edit_distance',
    'a: str, b: str',
    'Find the least number of insertions, deletions and replacements of a character that make a into b.',
    'row = list(range(len(b) + 1))\nfor i, x in enumerate(a, 1):\n    last, row[0] = row[0], i\n    for j, y in enumerate(b, 1):\n        last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (x != y))\nreturn row[-1]',
    (a: string, b: string) => {
      const d = (i: number, j: number): number =>
        i === 0 || j === 0
          ? i + j
          : a[i - 1] === b[j - 1]
            ? d(i - 1, j - 1)
            : 1 + Math.min(d(i - 1, j), d(i, j - 1), d(i - 1, j - 1));
      return d(a.length, b.length);
    },
    [
      ['kitten', 'sitting'],
      ['', 'abc'],
      ['same', 'same'],
      ['flaw', 'lawn'],
      ['ab', 'ba'],
    ],
  ),
  call(
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
  call(
    'transpose',
    'rows: list[list[int]]',
    'Turn the rows of a table into columns.',
    'return [list(column) for column in zip(*rows)]',
    (rows: number[][]) => (rows[0] ?? []).map((_, c) => rows.map(row => row[c])),
    [
      [
        [
          [1, 2],
          [3, 4],
        ],
      ],
      [[[1, 2, 3]]],
      [[[1], [2]]],
      [[]],
      [
        [
          [1, 2, 3],
          [4, 5, 6],
        ],
      ],
    ],
  ),
  call(
    'spiral',
    'rows: list[list[int]]',
    'List the numbers of a table in a spiral, beginning at the upper left and going right.',
    'out = []\nwhile rows:\n    out += rows[0]\n    rows = [list(r) for r in zip(*rows[1:])][::-1]\nreturn out',
    (rows: number[][]) => {
      const out: number[] = [];
      let rest = rows;
      while (rest.length > 0) {
        out.push(...rest[0]);
        const below = rest.slice(1);
        rest = (below[0] ?? []).map((_, c) => below.map(row => row[c])).reverse();
      }
      return out;
    },
    [
      [
        [
          [1, 2, 3],
          [4, 5, 6],
          [7, 8, 9],
        ],
      ],
      [
        [
          [1, 2],
          [3, 4],
        ],
      ],
      [[[1, 2, 3, 4]]],
      [[[1], [2], [3]]],
    ],
  ),
  call(
    'count_islands',
    'grid: list[str]',
    'Count the islands of a map: groups of # joined to the north, south, east or west.',
    "cells = {(r, c) for r, row in enumerate(grid) for c, x in enumerate(row) if x == '#'}\ncount = 0\nwhile cells:\n    count += 1\n    stack = [cells.pop()]\n    while stack:\n        r, c = stack.pop()\n        for n in ((r + 1, c), (r - 1, c), (r, c + 1), (r, c - 1)):\n            if n in cells:\n                cells.remove(n)\n                stack.append(n)\nreturn count",
    (grid: string[]) => {
      const cells = grid.map(row => [...row]);
      let count = 0;
      const sink = (r: number, c: number): void => {
        if (cells[r]?.[c] !== '#') return;
        cells[r][c] = '.';
        sink(r + 1, c);
        sink(r - 1, c);
        sink(r, c + 1);
        sink(r, c - 1);
      };
      for (let r = 0; r < cells.length; r++)
        for (let c = 0; c < cells[r].length; c++)
          if (cells[r][c] === '#') {
            count++;
            sink(r, c);
          }
      return count;
    },
    [[['##.', '..#', '#..']], [['...']], [['###', '#.#', '###']], [['#.#.#', '.#.#.']], [[]]],
  ),
  call(
    'group_anagrams',
    'words: list[str]',
    'Group the words made of the same letters. Words keep their order in a group, groups that of their first words.',
    "groups = {}\nfor w in words:\n    groups.setdefault(''.join(sorted(w)), []).append(w)\nreturn list(groups.values())",
    (words: string[]) => {
      const groups = new Map<string, string[]>();
      for (const w of words) {
        const key = [...w].sort().join('');
        groups.set(key, [...(groups.get(key) ?? []), w]);
      }
      return [...groups.values()];
    },
    [[['eat', 'tea', 'tan', 'ate', 'nat', 'bat']], [['']], [['a']], [[]], [['ab', 'ba', 'abc', 'cab']]],
  ),
  call(
    'top_words',
    'text: str, k: int',
    'List the k most frequent words, split at blanks, the more frequent first and equals in alphabetical order.',
    'from collections import Counter\ncounts = Counter(text.split())\nreturn sorted(counts, key=lambda w: (-counts[w], w))[:k]',
    (text: string, k: number) => {
      const counts: Record<string, number> = {};
      for (const w of text.split(' ').filter(Boolean)) counts[w] = (counts[w] ?? 0) + 1;
      return Object.keys(counts)
        .sort((a, b) => counts[b] - counts[a] || (a < b ? -1 : 1))
        .slice(0, k);
    },
    [
      ['the cat the dog the cat', 2],
      ['b a', 2],
      ['', 3],
      ['x y z x y x', 1],
      ['one two two three three three', 3],
    ],
  ),
  call(
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
  call(
    'power_mod',
    'base: int, exponent: int, modulus: int',
    'Compute base to the power of exponent modulo modulus; the exponent can be very large.',
    'return pow(base, exponent, modulus)',
    (base: number, exponent: number, modulus: number) => {
      let [r, b, e] = [1n % BigInt(modulus), BigInt(base), BigInt(exponent)];
      for (; e > 0n; e >>= 1n) {
        if (e & 1n) r = (r * b) % BigInt(modulus);
        b = (b * b) % BigInt(modulus);
      }
      return Number(r);
    },
    [
      [2, 10, 1000],
      [3, 0, 7],
      [7, 1_000_000_000, 13],
      [5, 3, 1],
      [123456, 654321, 9973],
    ],
  ),
  call(
    'flatten',
    'nested: list',
    'Flatten a list of numbers and lists, however deep.',
    'out = []\nfor item in nested:\n    out += flatten(item) if isinstance(item, list) else [item]\nreturn out',
    flatten,
    [[[1, [2, [3, [4]]]]], [[]], [[[], [[]]]], [[1, 2]], [[[[[5]]], 6]]],
  ),
  call(
    'caesar',
    'text: str, shift: int',
    'Shift every letter of the alphabet by some places, going round at the end; case stays, other characters stay.',
    "out = ''\nfor c in text:\n    if c.isalpha():\n        base = ord('A') if c.isupper() else ord('a')\n        out += chr((ord(c) - base + shift) % 26 + base)\n    else:\n        out += c\nreturn out",
    (text: string, shift: number) =>
      text.replaceAll(/[a-z]/gi, c => {
        const base = c < 'a' ? 65 : 97;
        return String.fromCharCode(((((c.charCodeAt(0) - base + shift) % 26) + 26) % 26) + base);
      }),
    [
      ['abc XYZ!', 3],
      ['Hello', -5],
      ['', 1],
      ['zZ', 27],
      ['a-b', 0],
    ],
  ),
  call(
    'happy_number',
    'n: int',
    'Tell whether adding up the squares of the digits again and again leads to 1.',
    'seen = set()\nwhile n != 1 and n not in seen:\n    seen.add(n)\n    n = sum(int(d) ** 2 for d in str(n))\nreturn n == 1',
    (n: number) => {
      let x = n;
      for (let i = 0; i < 1000 && x !== 1; i++) x = sum([...String(x)].map(d => Number(d) ** 2));
      return x === 1;
    },
    [[19], [2], [1], [7], [116], [100]],
  ),
  call(
    'trapped_water',
    'heights: list[int]',
    'Walls of width 1 stand side by side. How much rain water stays between them?',
    'water = 0\nfor i, h in enumerate(heights):\n    water += max(0, min(max(heights[:i + 1]), max(heights[i:])) - h)\nreturn water',
    (h: number[]) =>
      sum(h.map((x, i) => Math.min(Math.max(...h.slice(0, i + 1)), Math.max(...h.slice(i))) - x)),
    [[[0, 1, 0, 2, 1, 0, 1, 3, 2, 1, 2, 1]], [[4, 2, 0, 3, 2, 5]], [[]], [[3]], [[5, 0, 5]]],
  ),
  call(
    'course_order',
    'count: int, before: list[list[int]]',
    'Courses 0 to count - 1 have rules [a, b]: a must be taken before b. List the order that takes the least possible number first each time; an empty list if there is none.',
    'import heapq\nfollow = [[] for _ in range(count)]\nwaits = [0] * count\nfor a, b in before:\n    follow[a].append(b)\n    waits[b] += 1\nready = [c for c in range(count) if waits[c] == 0]\nheapq.heapify(ready)\norder = []\nwhile ready:\n    c = heapq.heappop(ready)\n    order.append(c)\n    for d in follow[c]:\n        waits[d] -= 1\n        if waits[d] == 0:\n            heapq.heappush(ready, d)\nreturn order if len(order) == count else []',
    (count: number, before: number[][]) => {
      const order: number[] = [];
      for (;;) {
        const next = range(count).find(
          c => !order.includes(c) && before.every(([a, b]) => b !== c || order.includes(a)),
        );
        if (next === undefined) return order.length === count ? order : [];
        order.push(next);
      }
    },
    [
      [
        4,
        [
          [0, 1],
          [0, 2],
          [1, 3],
          [2, 3],
        ],
      ],
      [
        2,
        [
          [0, 1],
          [1, 0],
        ],
      ],
      [3, []],
      [
        3,
        [
          [2, 1],
          [1, 0],
        ],
      ],
      [1, [[0, 0]]],
    ],
  ),
];
