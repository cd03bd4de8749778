import type { Task } from './task.ts';

/** Shipped tasks for programs that read and print. Expected output comes from the function here, not from the solution. */

function stdin(
  name: string,
  statement: string,
  solution: string,
  right: (lines: readonly string[]) => string | number,
  inputs: readonly string[],
): Task {
  return {
    name,
    statement: `${statement}\n\nWrite a program that reads standard input and prints the answer.`,
    starter: '',
    entry: null,
    tests: inputs.map(input => ({
      kind: 'stdin',
      input: `${input}\n`,
      output: `${right(input.split('\n'))}\n`,
    })),
    solution: `${solution.trim()}\n`,
  };
}

const numbers = (line: string) => line.split(' ').filter(Boolean).map(Number);
const sum = (list: readonly number[]) => list.reduce((a, b) => a + b, 0);

export const STDIN_TASKS: readonly Task[] = [
  stdin(
    'add_two',
    'The line has two whole numbers. Print their sum.',
    'a, b = map(int, input().split())\nprint(a + b)',
    ([line]) => sum(numbers(line)),
    ['1 2', '-5 5', '1000000 1', '0 0', '-7 -8'],
  ),
  stdin(
    'reverse_words',
    'Print the words of the line in reverse order.',
    "print(' '.join(input().split()[::-1]))",
    ([line]) => line.split(' ').reverse().join(' '),
    ['hello big world', 'one', 'a b', 'x y z w'],
  ),
  stdin(
    'fizz_buzz',
    'The line has a number n. Print the numbers from 1 to n, a line each, but Fizz for multiples of 3, Buzz for multiples of 5 and FizzBuzz for both.',
    "for i in range(1, int(input()) + 1):\n    print(('Fizz' if i % 3 == 0 else '') + ('Buzz' if i % 5 == 0 else '') or i)",
    ([line]) =>
      Array.from(
        { length: Number(line) },
        (_, i) =>
          [i + 1, 'Fizz', 'Buzz', 'FizzBuzz'][Number((i + 1) % 3 === 0) + 2 * Number((i + 1) % 5 === 0)],
      ).join('\n'),
    ['5', '15', '1', '30'],
  ),
  stdin(
    'mean',
    'The first line has a number n, the second n whole numbers. Print their mean with two decimals.',
    "input()\na = list(map(int, input().split()))\nprint(f'{sum(a) / len(a):.2f}')",
    ([, line]) => (sum(numbers(line)) / numbers(line).length).toFixed(2),
    ['3\n1 2 4', '1\n5', '4\n-1 1 -1 1', '2\n1 2'],
  ),
  stdin(
    'digit_sum',
    'Print the sum of the digits of a number that may have hundreds of digits.',
    'print(sum(map(int, input().strip())))',
    ([line]) => sum([...line].map(Number)),
    ['123', '0', '9'.repeat(300), '1000001'],
  ),
  stdin(
    'collatz',
    'The line has a number n. Halve it while it is even, otherwise triple it and add 1, until it is 1. Print the number of steps.',
    'n = int(input())\nsteps = 0\nwhile n != 1:\n    n = n // 2 if n % 2 == 0 else 3 * n + 1\n    steps += 1\nprint(steps)',
    ([line]) => {
      let [n, s] = [Number(line), 0];
      for (; n !== 1; s++) n = n % 2 === 0 ? n / 2 : 3 * n + 1;
      return s;
    },
    ['1', '6', '27', '97', '1024'],
  ),
  stdin(
    'matrix_product',
    'The first line has n. Then follow the n rows of a matrix A and the n rows of a matrix B. Print the rows of A times B.',
    'n = int(input())\na = [list(map(int, input().split())) for _ in range(n)]\nb = [list(map(int, input().split())) for _ in range(n)]\nfor row in a:\n    print(*[sum(row[k] * b[k][j] for k in range(n)) for j in range(n)])',
    ([first, ...rest]) => {
      const n = Number(first);
      const rows = rest.map(numbers);
      return rows
        .slice(0, n)
        .map(row => row.map((_, j) => sum(row.map((x, k) => x * rows[n + k][j]))).join(' '))
        .join('\n');
    },
    ['2\n1 2\n3 4\n5 6\n7 8', '1\n3\n-4', '2\n1 0\n0 1\n9 8\n7 6'],
  ),
  stdin(
    'queue_commands',
    'The first line has a number of commands. push x puts x at the end of a queue, pop takes and prints the first (or prints empty), size prints the length.',
    "from collections import deque\nq = deque()\nfor _ in range(int(input())):\n    c = input().split()\n    if c[0] == 'push':\n        q.append(c[1])\n    elif c[0] == 'pop':\n        print(q.popleft() if q else 'empty')\n    else:\n        print(len(q))",
    ([, ...commands]) => {
      const q: string[] = [];
      const out: (string | number)[] = [];
      for (const command of commands) {
        const [verb, x] = command.split(' ');
        if (verb === 'push') q.push(x);
        else out.push(verb === 'pop' ? (q.shift() ?? 'empty') : q.length);
      }
      return out.join('\n');
    },
    ['5\npush 1\npush 2\npop\nsize\npop', '2\npop\nsize', '4\npush a\nsize\npop\npop'],
  ),
  stdin(
    'shortest_path',
    'The first line has n and m, then m lines have a b w: a road between towns a and b (from 1 to n) of length w. Print the length of the shortest way from 1 to n, or -1.',
    'import heapq\nn, m = map(int, input().split())\nroads = {i: [] for i in range(1, n + 1)}\nfor _ in range(m):\n    a, b, w = map(int, input().split())\n    roads[a].append((b, w))\n    roads[b].append((a, w))\nbest = {}\nheap = [(0, 1)]\nwhile heap:\n    d, t = heapq.heappop(heap)\n    if t in best:\n        continue\n    best[t] = d\n    for u, w in roads[t]:\n        heapq.heappush(heap, (d + w, u))\nprint(best.get(n, -1))',
    ([first, ...rest]) => {
      const [n] = numbers(first);
      const d = new Array<number>(n + 1).fill(Infinity);
      d[1] = 0;
      for (let i = 0; i < n; i++)
        for (const line of rest) {
          const [a, b, w] = numbers(line);
          d[a] = Math.min(d[a], d[b] + w);
          d[b] = Math.min(d[b], d[a] + w);
        }
      return Number.isFinite(d[n]) ? d[n] : -1;
    },
    ['3 3\n1 2 5\n2 3 4\n1 3 20', '2 0', '4 4\n1 2 1\n2 3 1\n3 4 1\n1 4 2', '3 1\n1 2 7', '1 0'],
  ),
  stdin(
    'maze',
    'The first line has the numbers of rows and columns, then follow the rows: # wall, . floor, S start, E exit. Print the least number of steps from S to E, or -1.',
    "from collections import deque\nh, w = map(int, input().split())\ng = [input() for _ in range(h)]\ns = next((r, c) for r in range(h) for c in range(w) if g[r][c] == 'S')\nseen = {s: 0}\nq = deque([s])\nans = -1\nwhile q:\n    r, c = q.popleft()\n    if g[r][c] == 'E':\n        ans = seen[(r, c)]\n        break\n    for a, b in ((r + 1, c), (r - 1, c), (r, c + 1), (r, c - 1)):\n        if 0 <= a < h and 0 <= b < w and g[a][b] != '#' and (a, b) not in seen:\n            seen[(a, b)] = seen[(r, c)] + 1\n            q.append((a, b))\nprint(ans)",
    ([, ...rows]) => {
      const w = rows[0].length;
      const cells = rows.join('');
      let layer = new Set([cells.indexOf('S')]);
      const seen = new Set(layer);
      for (let steps = 0; layer.size > 0; steps++) {
        if (layer.has(cells.indexOf('E'))) return steps;
        const next = new Set<number>();
        for (const at of layer)
          for (const to of [
            at + w,
            at - w,
            ...(at % w > 0 ? [at - 1] : []),
            ...(at % w < w - 1 ? [at + 1] : []),
          ])
            if (cells[to] !== undefined && cells[to] !== '#' && !seen.has(to)) {
              seen.add(to);
              next.add(to);
            }
        layer = next;
      }
      return -1;
    },
    ['3 3\nS..\n##.\nE..', '1 2\nSE', '2 2\nS#\n#E', '4 5\nS.#..\n..#.E\n#...#\n.....'],
  ),
  stdin(
    'knapsack',
    'The first line has n and a capacity, then n lines have the weight and the value of a thing. Print the greatest value that fits.',
    'n, cap = map(int, input().split())\nbest = [0] * (cap + 1)\nfor _ in range(n):\n    w, v = map(int, input().split())\n    for c in range(cap, w - 1, -1):\n        best[c] = max(best[c], best[c - w] + v)\nprint(best[cap])',
    ([first, ...rest]) => {
      const [n, cap] = numbers(first);
      const things = rest.map(numbers);
      let best = 0;
      for (let set = 0; set < 2 ** n; set++) {
        const chosen = things.filter((_, i) => (set >> i) & 1);
        if (sum(chosen.map(([w]) => w)) <= cap) best = Math.max(best, sum(chosen.map(([, v]) => v)));
      }
      return best;
    },
    ['3 50\n10 60\n20 100\n30 120', '1 5\n6 10', '4 7\n1 1\n3 4\n4 5\n5 7', '2 3\n1 2\n2 3'],
  ),
  stdin(
    'count_inversions',
    'The first line has n, the second n numbers. Print the number of pairs that stand in the wrong order.',
    'import bisect\ninput()\nseen = []\ncount = 0\nfor x in map(int, input().split()):\n    count += len(seen) - bisect.bisect_right(seen, x)\n    bisect.insort(seen, x)\nprint(count)',
    ([, line]) => {
      const a = numbers(line);
      return sum(a.map((x, i) => a.slice(i + 1).filter(y => y < x).length));
    },
    ['5\n2 4 1 3 5', '3\n1 2 3', '4\n4 3 2 1', '4\n1 1 1 1', '1\n9'],
  ),
  stdin(
    'common_letters',
    'Two lines have a word each. Print the letters that both have, each once and in alphabetical order, or none.',
    "a, b = set(input()), set(input())\nprint(''.join(sorted(a & b)) or 'none')",
    ([a, b]) =>
      [...new Set(a)]
        .filter(c => b.includes(c))
        .sort()
        .join('') || 'none',
    ['apple\nplane', 'abc\nxyz', 'zoo\nooze', 'same\nsame'],
  ),
  stdin(
    'bracket_depth',
    'Print how deep the round brackets of the line are nested; they are balanced.',
    "depth = best = 0\nfor c in input():\n    depth += (c == '(') - (c == ')')\n    best = max(best, depth)\nprint(best)",
    ([line]) => {
      const opened = Array.from(line, (_, i) => line.slice(0, i + 1));
      return Math.max(0, ...opened.map(part => part.split('(').length - part.split(')').length));
    },
    ['(a(b)c)', 'abc', '((()))()', '()(()())'],
  ),
  stdin(
    'base_conversion',
    'The line has a number in decimal notation and a base from 2 to 16. Print the number in that base, in small letters.',
    "n, b = map(int, input().split())\nout = ''\nwhile True:\n    out = '0123456789abcdef'[n % b] + out\n    n //= b\n    if n == 0:\n        break\nprint(out)",
    ([line]) => {
      const [n, b] = numbers(line);
      return n.toString(b);
    },
    ['10 2', '255 16', '0 7', '100 3', '65535 8'],
  ),
  stdin(
    'bank',
    'The first line has a number of bookings, then lines have a name and an amount (which may be negative). Print each name with its balance, in alphabetical order.',
    't = {}\nfor _ in range(int(input())):\n    n, a = input().split()\n    t[n] = t.get(n, 0) + int(a)\nfor n in sorted(t):\n    print(n, t[n])',
    ([, ...rows]) => {
      const t = new Map<string, number>();
      for (const row of rows) {
        const [name, amount] = row.split(' ');
        t.set(name, (t.get(name) ?? 0) + Number(amount));
      }
      return [...t]
        .sort(([a], [b]) => (a < b ? -1 : 1))
        .map(([name, amount]) => `${name} ${amount}`)
        .join('\n');
    },
    ['3\nann 5\nbob 7\nann -2', '1\nzoe 0', '4\nb 1\na 1\nb 1\na -1'],
  ),
  stdin(
    'pascal',
    'The line has a number n. Print the first n rows of the triangle of Pascal.',
    'row = [1]\nfor _ in range(int(input())):\n    print(*row)\n    row = [1] + [a + b for a, b in zip(row, row[1:])] + [1]',
    ([line]) => {
      const choose = (n: number, k: number): number => (k === 0 ? 1 : (choose(n, k - 1) * (n - k + 1)) / k);
      return Array.from({ length: Number(line) }, (_, n) =>
        Array.from({ length: n + 1 }, (_, k) => choose(n, k)).join(' '),
      ).join('\n');
    },
    ['1', '3', '5', '8'],
  ),
  stdin(
    'closest_pair',
    'The first line has n, which is at least 2, then n lines have the coordinates of a point. Print the smallest distance of two points with three decimals.',
    "from math import dist\nfrom itertools import combinations\np = [tuple(map(int, input().split())) for _ in range(int(input()))]\nprint(f'{min(dist(a, b) for a, b in combinations(p, 2)):.3f}')",
    ([, ...rows]) => {
      const p = rows.map(numbers);
      return Math.min(
        ...p.flatMap(([x, y], i) => p.slice(i + 1).map(([u, v]) => Math.hypot(x - u, y - v))),
      ).toFixed(3);
    },
    ['2\n0 0\n3 4', '3\n0 0\n1 1\n5 5', '4\n0 0\n10 0\n0 10\n9 9'],
  ),
  stdin(
    'rock_paper_scissors',
    'Each line has two moves out of R, P and S until a line with END. Print how many rounds the first player won, the second won, and were drawn.',
    "w = l = d = 0\nwhile True:\n    s = input()\n    if s == 'END':\n        break\n    a, b = s.split()\n    if a == b:\n        d += 1\n    elif a + b in ('RS', 'SP', 'PR'):\n        w += 1\n    else:\n        l += 1\nprint(w, l, d)",
    rows => {
      const count = [0, 0, 0];
      for (const row of rows.slice(0, -1)) {
        const [a, b] = row.split(' ').map(x => 'RPS'.indexOf(x));
        count[[2, 0, 1][(a - b + 3) % 3]]++;
      }
      return count.join(' ');
    },
    ['R S\nP P\nS R\nEND', 'END', 'P R\nP S\nS P\nR P\nEND'],
  ),
  stdin(
    'balanced_teams',
    'The first line has an even number n, the second n skills. Pair everybody so that the sum of the differences in the pairs is least; print that sum.',
    'input()\na = sorted(map(int, input().split()))\nprint(sum(b - c for c, b in zip(a[::2], a[1::2])))',
    ([, line]) => {
      const a = numbers(line).sort((x, y) => x - y);
      return sum(a.map((x, i) => (i % 2 === 0 ? -x : x)));
    },
    ['4\n1 9 2 8', '2\n5 5', '6\n10 1 7 3 2 9'],
  ),
];
