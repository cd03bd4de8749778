import { range } from './arithmetic.ts';
import { callTask } from './call-task.ts';
import type { Task } from './task.ts';

/** Shipped tasks about matrices, maps and graphs; their tests call a function. */
export const GRID_TASKS: readonly Task[] = [
  callTask(
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
  callTask(
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
  callTask(
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
  callTask(
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
