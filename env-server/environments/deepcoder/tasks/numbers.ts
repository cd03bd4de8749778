import { range, sum } from './arithmetic.ts';
import { callTask } from './call-task.ts';
import type { Task } from './task.ts';

const gcd = (a: number, b: number): number => (b === 0 ? a : gcd(b, a % b));

const isPrime = (n: number) => {
  if (n < 2) return false;
  for (let d = 2; d * d <= n; d++) if (n % d === 0) return false;
  return true;
};

/** Shipped tasks about numbers; their tests call a function. */
export const NUMBER_TASKS: readonly Task[] = [
  callTask(
    'primes_below',
    'n: int',
    'List all prime numbers below n.',
    'return [p for p in range(2, n) if all(p % d for d in range(2, int(p ** 0.5) + 1))]',
    (n: number) => range(n).filter(isPrime),
    [[10], [2], [0], [30], [100]],
  ),
  callTask(
    'greatest_common_divisor',
    'nums: list[int]',
    'Find the greatest common divisor of a list of positive numbers.',
    'from math import gcd\nfrom functools import reduce\nreturn reduce(gcd, nums)',
    (nums: number[]) => nums.reduce(gcd),
    [[[12, 18]], [[7]], [[100, 75, 50]], [[17, 13]], [[48, 64, 80, 96]]],
  ),
  callTask(
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
  callTask(
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
  callTask(
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
  callTask(
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
];
