import { Kernel, type KernelThread } from '../lowering/kernel.ts';
import {
  ALIGNMENT,
  type DeviceValue,
  type KernelDispatch,
  type ScratchSpace,
  sliceOf,
} from '../lowering/program.ts';
import { inRowSlices } from '../shaders/copy.ts';

const inverseRoot = new Kernel(
  function inverseRoot(this: KernelThread, squares: number[], width: number, epsilon: number): number {
    return 1 / Math.sqrt(squares[this.thread.x] / width + epsilon);
  },
  ['Array', 'Float', 'Float'],
);

/** 1 / √(squares / width + ε) of every row's sum of squares. */
export function inverseRms(
  squares: DeviceValue,
  width: number,
  epsilon: number,
  result: DeviceValue,
  scratch: ScratchSpace,
): KernelDispatch[] {
  return inRowSlices(
    scratch,
    result.length,
    [{ value: squares, width: 1 }],
    { value: result, width: 1 },
    (rows, [own], out) => [inverseRoot.step([rows], [{ value: own }, width, epsilon], out)],
  );
}

const gather = new Kernel(
  function gather(this: KernelThread, table: number[][], ids: number[]): number {
    return table[ids[this.thread.y]][this.thread.x];
  },
  ['Array', 'Array'],
);

/** Takes the rows that are in a part of a table, which starts at row `from`, and leaves the others. */
const gatherPart = new Kernel(
  function gatherPart(
    this: KernelThread,
    result: number[][],
    table: number[][],
    ids: number[],
    from: number,
    to: number,
  ): number {
    let value = result[this.thread.y][this.thread.x];
    const id = ids[this.thread.y];
    if (id >= from && id < to) value = table[id - from][this.thread.x];
    return value;
  },
  ['Array', 'Array', 'Array', 'Integer', 'Integer'],
  { inPlace: 0 },
);

/** Rows of a table [rows, width] by their ids. A table too large for a shader is read in parts. */
export function gatherRows(
  table: DeviceValue,
  ids: DeviceValue,
  width: number,
  result: DeviceValue,
  scratch: ScratchSpace,
): KernelDispatch[] {
  const rows = table.length / width;
  const indices = { value: ids, width: 1 };
  return inRowSlices(scratch, ids.length, [indices], { value: result, width }, (count, [own], out) => {
    if (table.length <= scratch.most) {
      const view = { value: table, extents: [width, rows] };
      return [gather.step([width, count], [view, { value: own }], out)];
    }
    return partsOfTable(table, rows, width, scratch).map(({ value, from, to }) => {
      const views = [
        { value: out, extents: [width, count] },
        { value, extents: [width, to - from] },
      ];
      return gatherPart.step([width, count], [...views, { value: own }, from, to], out);
    });
  });
}

/** Parts of rows [from, to) that a shader can bind, each beginning where a binding may. */
function partsOfTable(table: DeviceValue, rows: number, width: number, { most }: ScratchSpace) {
  const fitting = Math.floor(most / width / ALIGNMENT) * ALIGNMENT;
  const size = fitting === 0 ? rows : fitting;
  return Array.from({ length: Math.ceil(rows / size) }, (_, i) => {
    const [from, to] = [i * size, Math.min(rows, (i + 1) * size)];
    return { value: sliceOf(table, from * width, (to - from) * width), from, to };
  });
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
 * Adds up updates [count, width] by their ids into `result` [rows, width], always in the order of the updates: each row
 * finds its first update and follows the chain of updates with the same id.
 */
export function scatterAdd(
  updates: DeviceValue,
  ids: DeviceValue,
  { rows, width }: { readonly rows: number; readonly width: number },
  result: DeviceValue,
  scratch: ScratchSpace,
): KernelDispatch[] {
  const count = ids.length;
  const [first, next] = [scratch.allocate(rows), scratch.allocate(count)];
  const view = { value: updates, extents: [width, count] };
  return [
    firstUse.step([rows], [{ value: ids }, count], first),
    nextUse.step([count], [{ value: ids }, count], next),
    ...inRowSlices(
      scratch,
      rows,
      [{ value: first, width: 1 }],
      { value: result, width },
      (own, [begin], out) => [sumUses.step([width, own], [view, { value: begin }, { value: next }], out)],
    ),
  ];
}

const take = new Kernel(
  function take(this: KernelThread, x: number[][], ids: number[]): number {
    return x[this.thread.x][ids[this.thread.x]];
  },
  ['Array', 'Array'],
);

/** The entry of each row of x [rows, width] that its id names. */
export function takeLast(
  x: DeviceValue,
  ids: DeviceValue,
  width: number,
  result: DeviceValue,
  scratch: ScratchSpace,
): KernelDispatch[] {
  const operands = [
    { value: x, width },
    { value: ids, width: 1 },
  ];
  return inRowSlices(
    scratch,
    ids.length,
    operands,
    { value: result, width: 1 },
    (rows, [own, names], out) => [
      take.step([rows], [{ value: own, extents: [width, rows] }, { value: names }], out),
    ],
  );
}

const put = new Kernel(
  function put(this: KernelThread, values: number[], ids: number[]): number {
    return ids[this.thread.y] === this.thread.x ? values[this.thread.y] : 0;
  },
  ['Array', 'Array'],
);

/** Rows of zeros, except for each row's value at its id. */
export function putLast(
  values: DeviceValue,
  ids: DeviceValue,
  width: number,
  result: DeviceValue,
  scratch: ScratchSpace,
): KernelDispatch[] {
  const operands = [values, ids].map(value => ({ value, width: 1 }));
  return inRowSlices(scratch, ids.length, operands, { value: result, width }, (rows, own, out) => [
    put.step(
      [width, rows],
      own.map(value => ({ value })),
      out,
    ),
  ]);
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
export function rope(
  x: DeviceValue,
  [cos, sin]: readonly [cos: DeviceValue, sin: DeviceValue],
  { tokens, size }: { readonly tokens: number; readonly size: number },
  result: DeviceValue,
  scratch: ScratchSpace,
): KernelDispatch[] {
  const width = x.length / tokens;
  const operands = [{ value: x, width }, ...[cos, sin].map(value => ({ value, width: size / 2 }))];
  return inRowSlices(scratch, tokens, operands, { value: result, width }, (rows, own, out) => {
    const views = own.map((value, i) => ({ value, extents: [i === 0 ? width : size / 2, rows] }));
    return [rotate.step([width, rows], [...views, size], out)];
  });
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
export function rowDots(
  a: DeviceValue,
  b: DeviceValue,
  width: number,
  result: DeviceValue,
  scratch: ScratchSpace,
): KernelDispatch[] {
  const operands = [a, b].map(value => ({ value, width }));
  return inRowSlices(scratch, result.length, operands, { value: result, width: 1 }, (rows, own, out) => {
    const views = own.map(value => ({ value, extents: [width, rows] }));
    return [dot.step([rows], [...views, width], out)];
  });
}

const fill = new Kernel(
  function fill(this: KernelThread, value: number): number {
    return value;
  },
  ['Float'],
);

/** Fills an array with zeros. */
export function zeros(result: DeviceValue, scratch: ScratchSpace): KernelDispatch[] {
  return inRowSlices(scratch, result.length, [], { value: result, width: 1 }, (rows, _, out) => [
    fill.step([rows], [0], out),
  ]);
}
