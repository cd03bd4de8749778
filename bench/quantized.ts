/**
 * What weights of fewer bits would gain where tokens are generated on the processor: the feed-forward products of a shape's
 * layers one after the other, so that weights come from memory where they do in the model, with weights as float32 (as the
 * policy has them), float16 cast before each product, and in blocks of 32 with 8 and 4 bits (MatMulNBits, int8 arithmetic).
 *
 *     npm run bench:quantized [-- --shapes nano,0.1B,0.5B --threads 1 --rounds 9]
 *
 * All kinds take turns; the median and the best of the processor's time for a pass count, over all threads, so that other
 * programs on the machine count little. Then what one change of all weights costs: float32 is read where the optimizer writes
 * it, the others have to be converted after every update.
 */

import { InferenceSession, Tensor } from 'onnxruntime-node';
import {
  encodeModel,
  type OnnxInitializer,
  type OnnxNode,
} from '../trainer/tensor/runtime/onnx/model-proto.ts';
import { type Shape, shapeNamed } from './compute/shapes.ts';
import { positiveInteger, scriptFlags } from './flags.ts';
import { cpuMsSince, median } from './measuring.ts';

/** Layers at most: more of a large shape do not fit next to each other, and do not fit the caches anyway. */
const MAX_LAYERS = 8;
const BLOCK = 32;
const ROWS = [8, 16, 32, 64, 256];
const OPSETS = { '': 21, 'com.microsoft': 1 };
const FLOAT_BYTES = 4;
/** 2⁻⁸ as float32 and as float16: products of ones then neither grow nor vanish. */
const SCALE = 2 ** -8;
const HALF_SCALE = 0x1c00;

const { values: flags } = scriptFlags(import.meta.filename, {
  options: {
    shapes: { type: 'string', default: 'nano,0.1B,0.5B' },
    threads: { type: 'string', default: '1' },
    rounds: { type: 'string', default: '9' },
  },
});
const [threads, rounds] = (['threads', 'rounds'] as const).map(name => positiveInteger(name, flags[name]));

/** Writes a product [rows, inputs] × weights: its nodes and their constants. */
type Product = (
  x: string,
  y: string,
  inputs: number,
  outputs: number,
) => { readonly nodes: readonly OnnxNode[]; readonly initializers: readonly OnnxInitializer[] };

const node = (
  opType: string,
  inputs: readonly string[],
  output: string,
  attributes: OnnxNode['attributes'] = {},
  domain = '',
): OnnxNode => ({ opType, domain, inputs, outputs: [output], attributes });

const float: Product = (x, y, inputs, outputs) => ({
  nodes: [node('Gemm', [x, `${y}.w`], y, { transB: 1 })],
  initializers: [floats(`${y}.w`, [outputs, inputs])],
});

const half: Product = (x, y, inputs, outputs) => ({
  nodes: [node('Cast', [`${y}.w`], `${y}.f`, { to: 1 }), node('Gemm', [x, `${y}.f`], y, { transB: 1 })],
  initializers: [
    {
      name: `${y}.w`,
      type: 'float16',
      shape: [outputs, inputs],
      bytes: new Uint8Array(new Uint16Array(outputs * inputs).fill(HALF_SCALE).buffer),
    },
  ],
});

const blocks =
  (bits: 4 | 8): Product =>
  (x, y, inputs, outputs) => ({
    nodes: [
      node(
        'MatMulNBits',
        [x, `${y}.w`, `${y}.s`],
        y,
        { K: inputs, N: outputs, bits, block_size: BLOCK, accuracy_level: 4 },
        'com.microsoft',
      ),
    ],
    initializers: [
      {
        name: `${y}.w`,
        type: 'uint8',
        shape: [outputs, inputs / BLOCK, (BLOCK * bits) / 8],
        bytes: new Uint8Array((outputs * inputs * bits) / 8).fill(bits === 8 ? 129 : 0x99),
      },
      floats(`${y}.s`, [(outputs * inputs) / BLOCK]),
    ],
  });

const KINDS: readonly { readonly name: string; readonly product: Product; readonly optimize: boolean }[] = [
  { name: 'float32', product: float, optimize: true },
  // Optimized, the casts of constants would be done once and for all.
  { name: 'float16, cast', product: half, optimize: false },
  { name: '8 bits', product: blocks(8), optimize: true },
  { name: '4 bits', product: blocks(4), optimize: true },
];

for (const name of flags.shapes.split(',')) {
  const shape = shapeNamed(name);
  const layers = Math.min(shape.layers, MAX_LAYERS);
  const count = 2 * layers * shape.hidden * shape.feedForward;
  console.log(
    `${name}: ${layers} layers of ${shape.hidden} × ${shape.feedForward}, ${((count * FLOAT_BYTES) / 2 ** 20).toFixed(1)} MiB as float32; ${conversionTime(count).toFixed(1)} ms to convert them to float16 in JavaScript`,
  );
  for (const rows of ROWS) await compare(shape, layers, rows);
}

/** Prints the times of all kinds for passes of this many rows. */
async function compare(shape: Shape, layers: number, rows: number): Promise<void> {
  const kinds = await Promise.all(
    KINDS.map(async kind => ({
      ...kind,
      session: await sessionOf(kind, shape, layers, rows),
      times: [] as number[],
    })),
  );
  const x = new Tensor('float32', new Float32Array(rows * shape.hidden).fill(1), [rows, shape.hidden]);
  for (let round = 0; round <= rounds; round++) {
    for (const { session, times } of kinds) {
      const before = process.cpuUsage();
      await session.run({ x });
      if (round > 0) times.push(cpuMsSince(before));
    }
  }
  const [float] = kinds;
  const results = kinds.map(({ name, times }) => {
    const ratios = [median(float.times) / median(times), Math.min(...float.times) / Math.min(...times)];
    return `${name} ${median(times).toFixed(2)} ms (${ratios.map(ratio => ratio.toFixed(2)).join(', best to best ')})`;
  });
  console.log(`  ${rows} rows: ${results.join('; ')}`);
  for (const { session } of kinds) await session.release();
}

function sessionOf(
  { product, optimize }: (typeof KINDS)[number],
  { hidden, feedForward }: Shape,
  layers: number,
  rows: number,
): Promise<InferenceSession> {
  const nodes: OnnxNode[] = [];
  const initializers: OnnxInitializer[] = [];
  let x = 'x';
  for (let layer = 0; layer < layers; layer++) {
    for (const [name, inputs, outputs] of [
      ['up', hidden, feedForward],
      ['down', feedForward, hidden],
    ] as const) {
      const part = product(x, `${name}${layer}`, inputs, outputs);
      nodes.push(...part.nodes);
      initializers.push(...part.initializers);
      x = `${name}${layer}`;
    }
  }
  const value = (name: string) => ({ name, type: 'float32' as const, shape: [rows, hidden] });
  const model = { nodes, inputs: [value('x')], outputs: [value(x)], initializers, opsets: OPSETS };
  return InferenceSession.create(encodeModel(model), {
    intraOpNumThreads: threads,
    graphOptimizationLevel: optimize ? 'all' : 'disabled',
    logSeverityLevel: 3,
  });
}

/** Milliseconds of the processor to round this many weights to half precision by their bits. */
function conversionTime(count: number): number {
  const weights = new Uint32Array(count).fill(0x3b80_0000);
  const converted = new Uint16Array(count);
  const before = process.cpuUsage();
  for (let i = 0; i < count; i++) {
    const bits = weights[i];
    converted[i] = ((bits >>> 16) & 0x8000) | (((bits & 0x7fff_ffff) - 0x3800_0000 + 0xfff) >>> 13);
  }
  return cpuMsSince(before);
}

function floats(name: string, shape: readonly number[]): OnnxInitializer {
  const count = shape.reduce((a, b) => a * b, 1);
  const bytes = new Uint8Array(new Float32Array(count).fill(SCALE).buffer);
  return { name, type: 'float32', shape, bytes };
}
