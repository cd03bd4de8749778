import {
  type Code,
  compileKernel,
  FunctionLocals,
  f32,
  f32x4,
  forLoop,
  i32,
} from '../../tensor/runtime/wasm/code.ts';
import { acrossLanes, powerOfTwo, times } from '../../tensor/runtime/wasm/vector-math.ts';
import { PAGE_POSITIONS } from '../cache/page-table.ts';

const POSITION_BITS = 4;
const LANES = 4;
const VECTORS_PER_PAGE = PAGE_POSITIONS / LANES;
const FLOAT_BYTES = 4;
const VECTOR_BYTES = LANES * FLOAT_BYTES;
/** Vector sums kept in registers at once; x86-64 has sixteen vector registers. */
const SUMS = 2 * VECTORS_PER_PAGE;
/** Score of positions that are not there yet; its weight is 0. Scores are in units of log 2. */
const NO_SCORE = -1e30;

/**
 * Added to the scores of the last page: read from element 15 − p on, it hides all positions of the page after its p-th.
 */
export const FUTURE_MASK = Float32Array.from({ length: 2 * PAGE_POSITIONS }, (_, i) =>
  i < PAGE_POSITIONS ? 0 : NO_SCORE,
);

/** Words of a run record: what one sequence does in a tick. */
export const RUN_WORDS = 4;

export interface AttentionShape {
  readonly heads: number;
  readonly keyValueHeads: number;
  /** A multiple of 8. */
  readonly headDimension: number;
}

/** Fixed places in the shared memory, in bytes. */
export interface AttentionPlaces {
  /** cos then sin of a position's angles, [positions, 2, headDimension / 2]. */
  readonly angles: number;
  /** One head's query. */
  readonly query: number;
  /** Scores of one query against all positions, rounded up to whole pages. */
  readonly scores: number;
  /** {@link FUTURE_MASK} */
  readonly futureMask: number;
  /** Rows of the tick: [rows, heads · headDimension], twice [rows, keyValueHeads · headDimension]. */
  readonly queries: number;
  readonly keys: number;
  readonly values: number;
  /** [rows, heads · headDimension] */
  readonly mixed: number;
  readonly runs: number;
}

/** Bytes of one page: keys and values of all layers for 16 positions of one sequence. */
export function pageBytes(shape: AttentionShape, layers: number): number {
  return layers * layerBytes(shape);
}

/** Bytes of one layer in a page. */
export function layerBytes(shape: AttentionShape): number {
  return shape.keyValueHeads * headBytes(shape);
}

function headBytes(shape: AttentionShape): number {
  return 2 * PAGE_POSITIONS * shape.headDimension * FLOAT_BYTES;
}

/** `run(runCount, layerOffset)`: attention of every row of the tick in one layer. */
export type AttentionKernel = (runCount: number, layerOffset: number) => void;

/**
 * Attention over a paged cache for a batch of sequences of any lengths, compiled for one shape.
 *
 * The tick's rows are cut into runs, each a record of four 32-bit words: first row, number of rows, position of the
 * first row in its sequence, address of the sequence's list of page addresses. For each run and head the kernel turns
 * the row's key and query by their rotary angles, writes key and value into the page of the row's position, and mixes
 * the values of all positions up to it: rows of one run see each other causally. Keys and values of a run are written
 * before its first query, so that no load waits for a store of a part of what it reads.
 *
 * Inside a page every (layer, key-value head) has its keys as [4, headDimension, 4] (four positions side by side, so
 * that a score vector needs no sum across lanes) and its values as [16, headDimension].
 */
export function compileAttention(
  shape: AttentionShape,
  places: AttentionPlaces,
  memory: WebAssembly.Memory,
): AttentionKernel {
  const { heads, keyValueHeads, headDimension } = shape;
  const half = headDimension / 2;
  const groups = heads / keyValueHeads;
  const rowBytes = {
    query: heads * headDimension * FLOAT_BYTES,
    key: keyValueHeads * headDimension * FLOAT_BYTES,
  };
  const headVectorBytes = headDimension * FLOAT_BYTES;
  /** Keys of four positions. */
  const keyVectorBytes = headDimension * VECTOR_BYTES;
  const valuesInHead = VECTORS_PER_PAGE * keyVectorBytes;

  const locals = new FunctionLocals(['i32', 'i32']);
  const [runCount, layerOffset] = locals.parameters;
  const [run, runEnd, row, rowEnd, position, pageList, head, headOffset] = locals.locals('i32', 8);
  const [angle, source, target, page, lastPage, address, score, scoreEnd, group, index] = locals.locals(
    'i32',
    10,
  );
  const [largest, total] = locals.locals('f32', 2);
  const [power, shifted, vectorLargest, vectorTotal, factor] = locals.locals('v128', 5);
  const sums = locals.locals('v128', SUMS);

  const at = (base: Code, offset: Code): Code => i32.add(base, offset);
  const scaled = (value: Code, bytes: number): Code => i32.mul(value, i32.const(bytes));
  /** Address of this head's keys in a page; its values stand {@link valuesInHead} bytes further. */
  const headOfPage = (number: Code): Code =>
    at(i32.load(at(pageList.get, i32.shl(number, i32.const(2)))), headOffset.get);

  /** Turns the head at `source` by the row's angles; `put` stores the vector whose first element is j. */
  const rotate = (put: (j: number, value: Code) => Code): Code =>
    times(half / LANES, vector => {
      const [first, second] = [vector * LANES, half + vector * LANES];
      const u = f32x4.load(source.get, first * FLOAT_BYTES);
      const v = f32x4.load(source.get, second * FLOAT_BYTES);
      const cos = f32x4.load(angle.get, first * FLOAT_BYTES);
      const sin = f32x4.load(angle.get, second * FLOAT_BYTES);
      return [
        put(first, f32x4.sub(f32x4.mul(u, cos), f32x4.mul(v, sin))),
        put(second, f32x4.add(f32x4.mul(v, cos), f32x4.mul(u, sin))),
      ];
    });

  const positionInPage = i32.and(position.get, i32.const(PAGE_POSITIONS - 1));
  const writeKeyAndValue: Code[] = [
    address.set(headOfPage(i32.shrU(position.get, i32.const(POSITION_BITS)))),
    source.set(
      at(i32.const(places.keys), at(scaled(row.get, rowBytes.key), scaled(head.get, headVectorBytes))),
    ),
    target.set(
      at(
        address.get,
        at(
          scaled(i32.shrU(positionInPage, i32.const(2)), keyVectorBytes),
          scaled(i32.and(position.get, i32.const(LANES - 1)), FLOAT_BYTES),
        ),
      ),
    ),
    rotate((j, value) => [
      factor.set(value),
      ...times(LANES, lane => f32x4.storeLane(target.get, factor.get, lane, (j + lane) * VECTOR_BYTES)),
    ]),
    source.set(at(source.get, i32.const(places.values - places.keys))),
    target.set(at(address.get, scaled(positionInPage, headVectorBytes))),
    ...times(headDimension / LANES, j =>
      f32x4.store(target.get, f32x4.load(source.get, j * VECTOR_BYTES), valuesInHead + j * VECTOR_BYTES),
    ),
  ];

  const scoreBase = i32.const(places.scores);
  /** Scores of one page; every vector of positions has two sums, taken in turn, to keep multiply-adds in flight. */
  const scorePage = (finish: (vector: Code, index: number) => Code): Code => [
    address.set(headOfPage(page.get)),
    ...sums.map(sum => sum.set(f32x4.constant(0))),
    ...times(headDimension, d => [
      factor.set(f32x4.loadSplat(i32.const(places.query), d * FLOAT_BYTES)),
      ...times(VECTORS_PER_PAGE, vector => {
        const sum = sums[(d % 2) * VECTORS_PER_PAGE + vector];
        const key = f32x4.load(address.get, vector * keyVectorBytes + d * VECTOR_BYTES);
        return sum.set(f32x4.multiplyAdd(factor.get, key, sum.get));
      }),
    ]),
    ...times(VECTORS_PER_PAGE, vector => {
      const sum = sums[vector];
      return [
        sum.set(finish(f32x4.add(sum.get, sums[VECTORS_PER_PAGE + vector].get), vector)),
        vectorLargest.set(f32x4.max(vectorLargest.get, sum.get)),
        f32x4.store(score.get, sum.get, vector * VECTOR_BYTES),
      ];
    }),
    score.set(at(score.get, i32.const(PAGE_POSITIONS * FLOAT_BYTES))),
  ];
  const futureMask = i32.sub(
    i32.const(places.futureMask + (PAGE_POSITIONS - 1) * FLOAT_BYTES),
    scaled(i32.and(position.get, i32.const(PAGE_POSITIONS - 1)), FLOAT_BYTES),
  );
  const scores: Code[] = [
    vectorLargest.set(f32x4.constant(NO_SCORE)),
    score.set(scoreBase),
    forLoop(
      page,
      i32.const(0),
      lastPage.get,
      i32.const(1),
      scorePage(vector => vector),
    ),
    index.set(futureMask),
    scorePage((vector, i) => f32x4.add(vector, f32x4.load(index.get, i * VECTOR_BYTES))),
    scoreEnd.set(score.get),
  ];
  const overScores = (...body: readonly Code[]): Code =>
    forLoop(index, scoreBase, scoreEnd.get, i32.const(VECTOR_BYTES), ...body);
  const softmax: Code[] = [
    largest.set(acrossLanes(vectorLargest.get, f32.max)),
    vectorLargest.set(f32x4.splat(largest.get)),
    vectorTotal.set(f32x4.constant(0)),
    overScores(
      ...powerOfTwo(power, shifted, f32x4.sub(f32x4.load(index.get), vectorLargest.get)),
      f32x4.store(index.get, power.get),
      vectorTotal.set(f32x4.add(vectorTotal.get, power.get)),
    ),
    total.set(acrossLanes(vectorTotal.get, f32.add)),
  ];

  /** Mixes a slice of the values of `count` vectors that starts at vector `first`, positions in `phases` sums in turn. */
  const mix = (first: number, count: number): Code => {
    const phases = SUMS >= 2 * count ? 2 : 1;
    return [
      ...times(count * phases, j => sums[j].set(f32x4.constant(0))),
      score.set(scoreBase),
      forLoop(
        page,
        i32.const(0),
        i32.add(lastPage.get, i32.const(1)),
        i32.const(1),
        address.set(headOfPage(page.get)),
        ...times(PAGE_POSITIONS, p => [
          factor.set(f32x4.loadSplat(score.get, p * FLOAT_BYTES)),
          ...times(count, j => {
            const sum = sums[(p % phases) * count + j];
            const offset = valuesInHead + p * headVectorBytes + (first + j) * VECTOR_BYTES;
            return sum.set(f32x4.multiplyAdd(factor.get, f32x4.load(address.get, offset), sum.get));
          }),
        ]),
        score.set(at(score.get, i32.const(PAGE_POSITIONS * FLOAT_BYTES))),
      ),
      factor.set(f32x4.splat(f32.div(f32.const(1), total.get))),
      ...times(count, j => {
        const sum = phases === 2 ? f32x4.add(sums[j].get, sums[count + j].get) : sums[j].get;
        return f32x4.store(target.get, f32x4.mul(sum, factor.get), (first + j) * VECTOR_BYTES);
      }),
    ];
  };
  const slices: Code[] = [];
  for (let first = 0; first < headDimension / LANES; first += SUMS) {
    slices.push(mix(first, Math.min(SUMS, headDimension / LANES - first)));
  }

  const attend: Code = forLoop(
    group,
    i32.const(0),
    i32.const(groups),
    i32.const(1),
    index.set(
      at(scaled(row.get, rowBytes.query), scaled(at(scaled(head.get, groups), group.get), headVectorBytes)),
    ),
    source.set(at(i32.const(places.queries), index.get)),
    target.set(at(i32.const(places.mixed), index.get)),
    rotate((j, value) =>
      f32x4.store(
        i32.const(places.query),
        f32x4.mul(value, f32x4.constant(Math.LOG2E / Math.sqrt(headDimension))),
        j * FLOAT_BYTES,
      ),
    ),
    ...scores,
    ...softmax,
    ...slices,
  );

  /** Runs code for every key-value head and row of the run, with `position`, `headOffset` and `angle` set. */
  const forEachRow = (...code: readonly Code[]): Code =>
    forLoop(
      head,
      i32.const(0),
      i32.const(keyValueHeads),
      i32.const(1),
      headOffset.set(at(layerOffset.get, scaled(head.get, headBytes(shape)))),
      position.set(i32.load(run.get, 8)),
      forLoop(
        row,
        i32.load(run.get),
        rowEnd.get,
        i32.const(1),
        angle.set(at(i32.const(places.angles), scaled(position.get, headVectorBytes))),
        ...code,
        position.set(i32.add(position.get, i32.const(1))),
      ),
    );
  const body: Code[] = [
    runEnd.set(at(i32.const(places.runs), scaled(runCount.get, RUN_WORDS * FLOAT_BYTES))),
    forLoop(
      run,
      i32.const(places.runs),
      runEnd.get,
      i32.const(RUN_WORDS * FLOAT_BYTES),
      pageList.set(i32.load(run.get, 12)),
      rowEnd.set(at(i32.load(run.get), i32.load(run.get, 4))),
      forEachRow(...writeKeyAndValue),
      forEachRow(lastPage.set(i32.shrU(position.get, i32.const(POSITION_BITS))), attend),
    ),
  ];
  return compileKernel(locals, body, memory);
}
