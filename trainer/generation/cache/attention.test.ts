import t from 'tap';
import { Random } from '../../../shared/random.ts';
import { MemoryPlan } from '../../tensor/runtime/wasm/kernels.ts';
import {
  type AttentionShape,
  blockBytes,
  FUTURE_MASK,
  openAttention,
  PAST_MASK,
  SHAPE_WORDS,
} from './kv-cache.ts';
import { BLOCK_SIZE } from './sequence-cache.ts';

const MEMORY_PAGES = 64;
const BASE_THETA = 100;

/** Positions that a row sees where the shape is windowed. */
const WINDOW = 19;

/** One run of attention in plain float64 over all rows of one sequence. */
function reference(shape: AttentionShape, q: Float32Array, k: Float32Array, v: Float32Array, rows: number) {
  const { heads, keyValueHeads, headDimension } = shape;
  const half = headDimension / 2;
  const turn = (source: Float32Array, start: number, position: number) =>
    Float64Array.from({ length: headDimension }, (_, j) => {
      const i = j % half;
      const angle = position * BASE_THETA ** (-i / half);
      const [a, b] = [source[start + i], source[start + half + i]];
      return j < half ? a * Math.cos(angle) - b * Math.sin(angle) : b * Math.cos(angle) + a * Math.sin(angle);
    });
  const out = new Float64Array(rows * heads * headDimension);
  for (let row = 0; row < rows; row++) {
    for (let head = 0; head < heads; head++) {
      const shared = Math.floor((head * keyValueHeads) / heads);
      const query = turn(q, (row * heads + head) * headDimension, row);
      const weights: number[] = [];
      const { scale = 1 / Math.sqrt(headDimension), softcap, windowed } = shape;
      for (let past = 0; past <= row; past++) {
        const key = turn(k, (past * keyValueHeads + shared) * headDimension, past);
        const score = scale * query.reduce((sum, x, i) => sum + x * key[i], 0);
        const capped = softcap == null ? score : softcap * Math.tanh(score / softcap);
        weights.push(windowed && past <= row - WINDOW ? 0 : Math.exp(capped));
      }
      const total = weights.reduce((a, b) => a + b);
      weights.forEach((weight, past) => {
        for (let j = 0; j < headDimension; j++) {
          out[(row * heads + head) * headDimension + j] +=
            (weight / total) * v[(past * keyValueHeads + shared) * headDimension + j];
        }
      });
    }
  }
  return out;
}

for (const shape of [
  { heads: 4, keyValueHeads: 4, headDimension: 16 },
  { heads: 4, keyValueHeads: 2, headDimension: 32 },
  { heads: 2, keyValueHeads: 1, headDimension: 64 },
  { heads: 3, keyValueHeads: 1, headDimension: 8 },
  { heads: 4, keyValueHeads: 2, headDimension: 16, windowed: true },
  { heads: 2, keyValueHeads: 1, headDimension: 16, windowed: true, scale: 0.9, softcap: 2.5 },
]) {
  t.test(`attention in pieces over blocks equals plain attention: ${JSON.stringify(shape)}`, async t => {
    const { heads, keyValueHeads, headDimension } = shape;
    const layers = 2;
    const rows = BLOCK_SIZE + 21;
    const memory = new WebAssembly.Memory({ initial: MEMORY_PAGES, maximum: MEMORY_PAGES });
    const plan = new MemoryPlan();
    const place = (floats: number): number => plan.place(floats);
    const places = {
      angles: place(rows * headDimension),
      query: place(headDimension),
      scores: place(rows + BLOCK_SIZE),
      futureMask: place(FUTURE_MASK.length),
      pastMask: place(PAST_MASK.length),
      queries: place(2 * rows * heads * headDimension),
      keys: place(2 * rows * keyValueHeads * headDimension),
      values: place(2 * rows * keyValueHeads * headDimension),
      mixed: place(2 * rows * heads * headDimension),
      runs: place(8),
      shape: place(SHAPE_WORDS),
    };
    const tables = [place(16), place(16)];
    const blocks = place((6 * blockBytes(shape, layers)) / 4);
    const floats = (start: number, count: number) => new Float32Array(memory.buffer, start, count);
    const words = (start: number, count: number) => new Int32Array(memory.buffer, start, count);
    floats(places.futureMask, FUTURE_MASK.length).set(FUTURE_MASK);
    floats(places.pastMask, PAST_MASK.length).set(PAST_MASK);
    const half = headDimension / 2;
    const angles = floats(places.angles, rows * headDimension);
    for (let p = 0; p < rows; p++) {
      for (let i = 0; i < half; i++) {
        angles[p * headDimension + i] = Math.cos(p * BASE_THETA ** (-i / half));
        angles[p * headDimension + half + i] = Math.sin(p * BASE_THETA ** (-i / half));
      }
    }
    // Blocks of the two sequences lie interleaved and in no order.
    words(tables[0], 3).set([4, 0, 3].map(n => blocks + n * blockBytes(shape, layers)));
    words(tables[1], 3).set([1, 5, 2].map(n => blocks + n * blockBytes(shape, layers)));
    floats(blocks, (6 * blockBytes(shape, layers)) / 4).fill(1e3);

    const kernel = openAttention(shape, places, memory);
    const rng = Random.fromSeed(5);
    const random = (count: number) => Float32Array.from({ length: count }, () => rng.normal());
    const sequences = [0, 1].map(() => ({
      q: random(rows * heads * headDimension),
      k: random(rows * keyValueHeads * headDimension),
      v: random(rows * keyValueHeads * headDimension),
      got: new Float32Array(rows * heads * headDimension),
    }));
    const layerOffset = blockBytes(shape, layers) / layers;
    let done = 0;
    for (const count of [7, 1, 1, 20, 1, rows - 30]) {
      const [qWidth, kWidth] = [heads * headDimension, keyValueHeads * headDimension];
      sequences.forEach(({ q, k, v }, s) => {
        const rowsOf = (array: Float32Array, width: number) =>
          array.subarray(done * width, (done + count) * width);
        floats(places.queries, 2 * count * qWidth).set(rowsOf(q, qWidth), s * count * qWidth);
        floats(places.keys, 2 * count * kWidth).set(rowsOf(k, kWidth), s * count * kWidth);
        floats(places.values, 2 * count * kWidth).set(rowsOf(v, kWidth), s * count * kWidth);
      });
      words(places.runs, 8).set([0, count, done, tables[0], count, count, done, tables[1]]);
      kernel(2, layerOffset, places.angles, WINDOW);
      sequences.forEach(({ got }, s) => {
        got.set(
          floats(places.mixed, 2 * count * qWidth).subarray(s * count * qWidth, (s + 1) * count * qWidth),
          done * qWidth,
        );
      });
      done += count;
    }
    t.equal(done, rows);
    for (const { q, k, v, got } of sequences) {
      const expected = reference(shape, q, k, v, rows);
      const worst = got.reduce((max, x, i) => Math.max(max, Math.abs(x - expected[i])), 0);
      t.ok(worst < 5e-6, `largest error ${worst}`);
    }
  });
}
