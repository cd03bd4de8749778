import { Random } from '../../../shared/random.ts';
import type { CaseInput, OperationCase } from './cases.test-data.ts';
import {
  type BlockStorage,
  blockLayout,
  type Quantization,
  quantize,
  quantizedLayout,
} from './operations/blocks.ts';
import { allocate, sizeOf } from './tensor.ts';

const [ROWS, HEADS, KEY_HEADS, SIZE] = [5, 6, 2, 8];
const [SLOTS, PAGES, BLOCK_SIZE] = [3, 4, 16];
const PLACES = SLOTS * PAGES * BLOCK_SIZE;

function waves(shape: readonly number[], phase: number): CaseInput {
  const length = shape.reduce((a, b) => a * b, 1);
  const values = Array.from({ length }, (_, i) => Math.fround(Math.sin(phase + i * 0.37) * 1.5));
  return { dtype: 'float32', shape, values };
}

function numbers(dtype: 'float32' | 'int32', shape: readonly number[], values: readonly number[]): CaseInput {
  return { dtype, shape, values };
}

/** Operations on arrays that stay on a device, for runtimes that have such. */
export const deviceCases: readonly OperationCase[] = [
  {
    operation: 'putRows',
    title: 'of a table of heads',
    inputs: {
      table: waves([7, 2, 4], 0),
      rows: waves([3, 2, 4], 1),
      places: numbers('int32', [3], [5, 0, 2]),
    },
    differentiate: [],
    build: (g, { table, rows, places }) => g.putRows(table, rows, places),
  },
  ...[
    { title: 'of grouped queries over pages in any order', window: 0, softcap: 0 },
    { title: 'over a window, with capped scores', window: 21, softcap: 0.8 },
  ].map(
    ({ title, window, softcap }): OperationCase => ({
      operation: 'pagedAttention',
      title,
      inputs: {
        q: waves([ROWS, HEADS, SIZE], 2),
        k: waves([PLACES, KEY_HEADS, SIZE], 3),
        v: waves([PLACES, KEY_HEADS, SIZE], 4),
        tables: numbers('float32', [SLOTS, PAGES], [11, 2, 5, 0, 7, 1, 3, 10, 4, 6, 8, 9]),
        slots: numbers('int32', [ROWS], [2, 0, 0, 1, 2]),
        positions: numbers('int32', [ROWS], [0, 15, 16, 63, 40]),
      },
      differentiate: [],
      build: (g, { q, k, v, tables, slots, positions }) =>
        g.pagedAttention([q, k, v, tables, slots, positions], {
          blockSize: BLOCK_SIZE,
          scale: 0.4,
          window,
          softcap,
        }),
    }),
  ),
  {
    operation: 'sample',
    title: 'of rows by temperature, top-k, top-p, min-p and greedily',
    inputs: {
      logits: waves([8, 40], 5),
      settings: numbers(
        'float32',
        [8, 5],
        [
          [1, 0, 1, 0.9, 0],
          [2, 0, 1, 0.1, 0],
          [1, 5, 1, 0.7, 0],
          [1, 0, 0.6, 0.99, 0],
          [1, 12, 0.5, 0.4, 0],
          [1, 0, 1, 0.95, 0.3],
          [2, 20, 0.9, 0.6, 0.1],
          [0, 0, 1, -1, 0],
        ].flat(),
      ),
    },
    differentiate: [],
    build: (g, { logits, settings }) => g.sample(logits, settings),
  },
  {
    operation: 'sample',
    title: 'of equals, of which the first stay',
    inputs: {
      logits: numbers(
        'float32',
        [4, 6],
        [
          [1, 2, 1, 1, 2, 1],
          [1, 2, 1, 1, 2, 1],
          [0, 0, 0, 0, 0, 0],
          [-2, 3, 3, 1, 3, 0],
        ].flat(),
      ),
      settings: numbers(
        'float32',
        [4, 5],
        [
          [1, 3, 1, 0.999, 0],
          [1, 4, 0.95, 0.999, 0],
          [1, 0, 0.4, 0.999, 0],
          [0, 0, 1, -1, 0],
        ].flat(),
      ),
    },
    differentiate: [],
    build: (g, { logits, settings }) => g.sample(logits, settings),
  },
];

const random = Random.fromSeed(20_241);
const drawn = (length: number) => Float32Array.from({ length }, () => random.float() * 2 - 1);
const floats = (shape: readonly number[], values: Float32Array): CaseInput => ({
  dtype: 'float32',
  shape,
  values: Array.from(values),
});

function quantizedCase(
  kind: Quantization,
  outputs: number,
  inputs: number,
  transposed: boolean,
): OperationCase {
  const layout = quantizedLayout(kind, [outputs, inputs]);
  const { dtype, shape } = layout.codes;
  const codes = allocate(dtype, sizeOf(shape)) as Int8Array | Uint8Array;
  const scales = new Float32Array(sizeOf(layout.scales.shape));
  quantize(kind, drawn(outputs * inputs), inputs, codes, scales);
  const rows = 5;
  const from = transposed ? outputs : inputs;
  return {
    operation: 'quantizedMatmul',
    title: `of ${kind} [${outputs}, ${inputs}]${transposed ? ', transposed' : ''}`,
    inputs: {
      x: floats([rows, from], drawn(rows * from)),
      codes: { dtype, shape, values: Array.from(codes) },
      scales: floats(layout.scales.shape, scales),
    },
    differentiate: ['x'],
    build: (g, { x, codes, scales }) =>
      g.apply('quantizedMatmul', [x, codes, scales], { kind, outputs, inputs, transposed }),
  };
}

function blockCases(storage: BlockStorage): OperationCase[] {
  const [outputs, inputs] = [24, 96];
  const layout = blockLayout(storage, [outputs, inputs]);
  const rng = Random.fromSeed(storage.block);
  const count = sizeOf(layout.scales);
  const drawnAround = (scale: number) => Float32Array.from({ length: count }, () => scale * rng.normal());
  const codes = Array.from({ length: sizeOf(layout.codes) }, () => rng.integer(256));
  const weight = {
    codes: { dtype: 'uint8' as const, shape: layout.codes, values: codes },
    scales: floats(layout.scales, drawnAround(0.02)),
    ...(storage.minimums ? { minimums: floats(layout.scales, drawnAround(0.1)) } : {}),
  };
  const what = `${storage.bits} bits in blocks of ${storage.block}${storage.minimums ? ' with minimums' : ''}`;
  const products = [false, true].map((transposed): OperationCase => {
    const from = transposed ? outputs : inputs;
    return {
      operation: 'blockMatmul',
      title: `of ${what}${transposed ? ', transposed' : ''}`,
      inputs: { x: floats([5, from], drawn(5 * from)), ...weight },
      differentiate: ['x'],
      build: (g, { x, ...parts }) =>
        g.apply('blockMatmul', [x, ...Object.values(parts)], { ...storage, outputs, inputs, transposed }),
    };
  });
  return [
    ...products,
    {
      operation: 'blockRows',
      title: `of ${what}`,
      inputs: { ids: { dtype: 'int32', shape: [4], values: [23, 0, 7, 7] }, ...weight },
      differentiate: [],
      build: (g, { ids, ...parts }) =>
        g.apply('blockRows', [ids, ...Object.values(parts)], { ...storage, outputs, inputs }),
    },
  ];
}

/** Products with quantized weights, for runtimes that have them. */
export const quantizedCases: readonly OperationCase[] = [
  ...(['int8', 'nf4'] as const).flatMap(kind => [
    quantizedCase(kind, 6, 128, false),
    quantizedCase(kind, 72, 80, false),
    quantizedCase(kind, 72, 80, true),
    quantizedCase(kind, 16, 8, false),
  ]),
  ...([4, 8] as const).flatMap(bits =>
    [16, 32].flatMap(block => [false, true].flatMap(minimums => blockCases({ bits, block, minimums }))),
  ),
];
