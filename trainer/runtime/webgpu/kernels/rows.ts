import type { KernelThread } from '../gpujs.ts';
import { Kernel } from '../kernel.ts';
import type { Step, Value } from '../step.ts';

const inverseRoot = new Kernel(
  function inverseRoot(this: KernelThread, squares: number[], width: number, epsilon: number): number {
    return 1 / Math.sqrt(squares[this.thread.x] / width + epsilon);
  },
  ['Array', 'Float', 'Float'],
);

/** 1 / √(squares / width + ε) of every row's sum of squares. */
export function inverseRms(squares: Value, width: number, epsilon: number, result: Value): Step {
  return inverseRoot.step([result.length], [{ value: squares }, width, epsilon], result);
}

const gather = new Kernel(
  function gather(this: KernelThread, table: number[][], ids: number[]): number {
    return table[ids[this.thread.y]][this.thread.x];
  },
  ['Array', 'Array'],
);

/** Rows of a table [rows, width] by their ids. */
export function gatherRows(table: Value, ids: Value, width: number, result: Value): Step {
  const view = { value: table, extents: [width, table.length / width] };
  return gather.step([width, ids.length], [view, { value: ids }], result);
}

const firstUse = new Kernel(
  function firstUse(this: KernelThread, ids: number[], count: number): number {
    let first = -1;
    for (let i = 0; i < count; i += 1) {
      if (ids[i] === this.thread.x) {
        first = i;
        break;
      }
    }
    return first;
  },
  ['Array', 'Integer'],
);

const nextUse = new Kernel(
  function nextUse(this: KernelThread, ids: number[], count: number): number {
    let next = -1;
    for (let i = this.thread.x + 1; i < count; i += 1) {
      if (ids[i] === ids[this.thread.x]) {
        next = i;
        break;
      }
    }
    return next;
  },
  ['Array', 'Integer'],
);

const sumUses = new Kernel(
  function sumUses(this: KernelThread, updates: number[][], first: number[], next: number[]): number {
    let total = 0;
    let i = first[this.thread.y];
    while (i >= 0) {
      total += updates[i][this.thread.x];
      i = next[i];
    }
    return total;
  },
  ['Array', 'Array', 'Array'],
);

/**
 * Adds updates [count, width] up by their ids into `result` [rows, width], always in the order of the updates: rows find
 * their first update and follow the chain of those with the same id.
 */
export function scatterAdd(
  updates: Value,
  ids: Value,
  rows: number,
  width: number,
  result: Value,
  allocate: (length: number) => Value,
): Step[] {
  const count = ids.length;
  const [first, next] = [allocate(rows), allocate(count)];
  return [
    firstUse.step([rows], [{ value: ids }, count], first),
    nextUse.step([count], [{ value: ids }, count], next),
    sumUses.step(
      [width, rows],
      [{ value: updates, extents: [width, count] }, { value: first }, { value: next }],
      result,
    ),
  ];
}

const take = new Kernel(
  function take(this: KernelThread, x: number[][], ids: number[]): number {
    return x[this.thread.x][ids[this.thread.x]];
  },
  ['Array', 'Array'],
);

/** Of each row of x [rows, width] the entry that its id names. */
export function takeLast(x: Value, ids: Value, width: number, result: Value): Step {
  return take.step([ids.length], [{ value: x, extents: [width, ids.length] }, { value: ids }], result);
}

const put = new Kernel(
  function put(this: KernelThread, values: number[], ids: number[]): number {
    return ids[this.thread.y] === this.thread.x ? values[this.thread.y] : 0;
  },
  ['Array', 'Array'],
);

/** Rows of zeros but for each one's value at its id. */
export function putLast(values: Value, ids: Value, width: number, result: Value): Step {
  return put.step([width, ids.length], [{ value: values }, { value: ids }], result);
}

const rotate = new Kernel(
  function rotate(this: KernelThread, x: number[][], cos: number[][], sin: number[][], size: number): number {
    const half = size / 2;
    const start = Math.floor((this.thread.x + 0.5) / size) * size;
    const i = this.thread.x - start;
    const lower = i < half;
    const angle = lower ? i : i - half;
    const other = lower ? start + i + half : start + i - half;
    const turned = x[this.thread.y][other] * sin[this.thread.y][angle];
    return x[this.thread.y][this.thread.x] * cos[this.thread.y][angle] + (lower ? -turned : turned);
  },
  ['Array', 'Array', 'Array', 'Float'],
);

/** Half-split rotary embedding of x [tokens, heads · size] by cos and sin [tokens, size / 2]. */
export function rope(x: Value, cos: Value, sin: Value, tokens: number, size: number, result: Value): Step {
  const width = x.length / tokens;
  const angles = (value: Value) => ({ value, extents: [size / 2, tokens] });
  const view = { value: x, extents: [width, tokens] };
  return rotate.step([width, tokens], [view, angles(cos), angles(sin), size], result);
}

const dot = new Kernel(
  function dot(this: KernelThread, a: number[][], b: number[][], width: number): number {
    let total = 0;
    for (let i = 0; i < width; i += 1) total += a[this.thread.x][i] * b[this.thread.x][i];
    return total;
  },
  ['Array', 'Array', 'Integer'],
);

/** Σ a ∘ b over every row of `width`. */
export function rowDots(a: Value, b: Value, width: number, result: Value): Step {
  const view = (value: Value) => ({ value, extents: [width, result.length] });
  return dot.step([result.length], [view(a), view(b), width], result);
}

const fill = new Kernel(
  function fill(this: KernelThread, value: number): number {
    return value;
  },
  ['Float'],
);

/** Fills an array with zeros. */
export function zeros(result: Value): Step {
  return fill.step([result.length], [0], result);
}
