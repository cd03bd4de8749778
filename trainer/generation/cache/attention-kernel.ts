import {
  type Code,
  compileKernel,
  FunctionLocals,
  f32,
  f32x4,
  forLoop,
  i32,
  type Local,
  when,
} from '../../tensor/runtime/wasm/code.ts';
import { acrossLanes, powerOfTwo, times } from '../../tensor/runtime/wasm/vector-math.ts';
import {
  type AttentionAddresses,
  type AttentionShape,
  headBytes,
  NO_SCORE,
  RUN_WORDS,
} from './block-layout.ts';
import { BLOCK_SIZE } from './block-table.ts';

const POSITION_BITS = 4;
const LANES = 4;
const VECTORS_PER_BLOCK = BLOCK_SIZE / LANES;
const FLOAT_BYTES = 4;
const VECTOR_BYTES = LANES * FLOAT_BYTES;
/** Vector sums kept in registers at once; x86-64 has sixteen vector registers. */
const SUMS = 2 * VECTORS_PER_BLOCK;
/** Power of 2 beyond which tanh is 1 in float32. */
const MOST_EXPONENT = 60;

/**
 * `run(runCount, layerOffset, angles, window)`: attention of every row of the tick in one layer, turned by the angles at an
 * address, over `window` positions, which only a windowed kernel heeds.
 */
export type AttentionKernel = (runCount: number, layerOffset: number, angles: number, window: number) => void;

/**
 * Attention over a paged cache for a batch of sequences of any lengths, compiled for one shape.
 *
 * The tick's rows are cut into runs, each a record of four 32-bit words: first row, number of rows, position of the
 * first row in its sequence, address of the sequence's list of block addresses. For each run and head the kernel turns
 * the row's key and query by their rotary angles, writes key and value into the block of the row's position, and mixes
 * the values of all positions up to it: rows of one run see each other causally. Keys and values of a run are written
 * before its first query, so that no load waits for a store of a part of what it reads.
 *
 * Inside a block every (layer, key-value head) has its keys as [4, headDimension, 4] (four positions side by side, so
 * that a score vector needs no sum across lanes) and its values as [16, headDimension].
 */
export function compileAttention(
  shape: AttentionShape,
  places: AttentionAddresses,
  memory: WebAssembly.Memory,
): AttentionKernel {
  const writer = new AttentionWriter(shape, places);
  return compileKernel(writer.locals, writer.body(), memory);
}

/** Writes the kernel's code, a method for each step. */
class AttentionWriter {
  readonly locals = new FunctionLocals(['i32', 'i32', 'i32', 'i32']);
  readonly #shape: AttentionShape;
  readonly #places: AttentionAddresses;
  /** Bytes of a row's queries, of its keys, and of one head of either. */
  readonly #queryRowBytes: number;
  readonly #keyRowBytes: number;
  readonly #headVectorBytes: number;
  /** Keys of four positions of a head. */
  readonly #keyVectorBytes: number;
  /** Where a head's values begin, after its keys. */
  readonly #valuesInHead: number;
  readonly #scoreBase: Code;
  readonly #local: ReturnType<typeof declareLocals>;
  readonly #sums: readonly Local[];

  constructor(shape: AttentionShape, places: AttentionAddresses) {
    const { heads, keyValueHeads, headDimension } = shape;
    this.#shape = shape;
    this.#places = places;
    this.#queryRowBytes = heads * headDimension * FLOAT_BYTES;
    this.#keyRowBytes = keyValueHeads * headDimension * FLOAT_BYTES;
    this.#headVectorBytes = headDimension * FLOAT_BYTES;
    this.#keyVectorBytes = headDimension * VECTOR_BYTES;
    this.#valuesInHead = VECTORS_PER_BLOCK * this.#keyVectorBytes;
    this.#scoreBase = i32.const(places.scores);
    this.#local = declareLocals(this.locals);
    this.#sums = this.locals.locals('v128', SUMS);
  }

  /** For each run: all its keys and values first, then the attention of each of its rows. */
  body(): Code[] {
    const [runCount] = this.locals.parameters;
    const { run, runEnd, blockList, rowEnd, lastBlock, position } = this.#local;
    return [
      runEnd.set(at(i32.const(this.#places.runs), scaled(runCount.get, RUN_WORDS * FLOAT_BYTES))),
      forLoop(
        run,
        i32.const(this.#places.runs),
        runEnd.get,
        i32.const(RUN_WORDS * FLOAT_BYTES),
        blockList.set(i32.load(run.get, 12)),
        rowEnd.set(at(i32.load(run.get), i32.load(run.get, 4))),
        this.#forEachRow(...this.#writeKeyAndValue()),
        this.#forEachRow(
          lastBlock.set(i32.shrU(position.get, i32.const(POSITION_BITS))),
          ...this.#findWindow(),
          this.#attend(),
        ),
      ),
    ];
  }

  /** Runs code for every key-value head and row of the run, with `position`, `headOffset` and `angle` set. */
  #forEachRow(...code: readonly Code[]): Code {
    const [, layerOffset, angles] = this.locals.parameters;
    const { run, row, rowEnd, head, headOffset, position, angle } = this.#local;
    return forLoop(
      head,
      i32.const(0),
      i32.const(this.#shape.keyValueHeads),
      i32.const(1),
      headOffset.set(at(layerOffset.get, scaled(head.get, headBytes(this.#shape)))),
      position.set(i32.load(run.get, 8)),
      forLoop(
        row,
        i32.load(run.get),
        rowEnd.get,
        i32.const(1),
        angle.set(at(angles.get, scaled(position.get, this.#headVectorBytes))),
        ...code,
        position.set(i32.add(position.get, i32.const(1))),
      ),
    );
  }

  /** The first block that the row sees, and the mask of what it does not see there. */
  #findWindow(): Code[] {
    const { position, firstBlock, firstMask, past } = this.#local;
    const [, , , window] = this.locals.parameters;
    if (!this.#shape.windowed) return [];
    const first = i32.sub(i32.add(position.get, i32.const(1)), window.get);
    const hidden = i32.and(past.get, i32.const(BLOCK_SIZE - 1));
    return [
      past.set(i32.const(0)),
      when(i32.geU(position.get, window.get), past.set(first)),
      firstBlock.set(i32.shrU(past.get, i32.const(POSITION_BITS))),
      firstMask.set(
        i32.sub(i32.const(this.#places.pastMask + BLOCK_SIZE * FLOAT_BYTES), scaled(hidden, FLOAT_BYTES)),
      ),
    ];
  }

  get #from(): Code {
    return this.#shape.windowed ? this.#local.firstBlock.get : i32.const(0);
  }

  /** Address of this head's keys in a block; its values stand {@link #valuesInHead} bytes further. */
  #headOfBlock(number: Code): Code {
    const { blockList, headOffset } = this.#local;
    return at(i32.load(at(blockList.get, i32.shl(number, i32.const(2)))), headOffset.get);
  }

  /** Turns the head at `source` by the row's angles; `put` stores the vector whose first element is j. */
  #rotate(put: (j: number, value: Code) => Code): Code {
    const { source, angle } = this.#local;
    const half = this.#shape.headDimension / 2;
    return times(half / LANES, vector => {
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
  }

  /** Puts the row's key, turned, and its value into the block of its position. */
  #writeKeyAndValue(): Code[] {
    const { address, source, target, row, head, position, factor } = this.#local;
    const { keys, values } = this.#places;
    const positionInBlock = i32.and(position.get, i32.const(BLOCK_SIZE - 1));
    const keyInPage = at(
      scaled(i32.shrU(positionInBlock, i32.const(2)), this.#keyVectorBytes),
      scaled(i32.and(position.get, i32.const(LANES - 1)), FLOAT_BYTES),
    );
    const keyOfRow = at(scaled(row.get, this.#keyRowBytes), scaled(head.get, this.#headVectorBytes));
    return [
      address.set(this.#headOfBlock(i32.shrU(position.get, i32.const(POSITION_BITS)))),
      source.set(at(i32.const(keys), keyOfRow)),
      target.set(at(address.get, keyInPage)),
      this.#rotate((j, value) => [
        factor.set(value),
        ...times(LANES, lane => f32x4.storeLane(target.get, factor.get, lane, (j + lane) * VECTOR_BYTES)),
      ]),
      source.set(at(source.get, i32.const(values - keys))),
      target.set(at(address.get, scaled(positionInBlock, this.#headVectorBytes))),
      ...times(this.#shape.headDimension / LANES, j => {
        const value = f32x4.load(source.get, j * VECTOR_BYTES);
        return f32x4.store(target.get, value, this.#valuesInHead + j * VECTOR_BYTES);
      }),
    ];
  }

  /** Factor on queries: scores are powers of 2, or before a cap the exponent of e²ˢ. */
  get #queryScale(): number {
    const { headDimension, scale = 1 / Math.sqrt(headDimension), softcap } = this.#shape;
    return softcap == null ? Math.LOG2E * scale : (2 * Math.LOG2E * scale) / softcap;
  }

  /** Each query head of the group of this key-value head over all positions up to the row's. */
  #attend(): Code {
    const { group, index, source, target, row, head } = this.#local;
    const { heads, keyValueHeads } = this.#shape;
    const { queries, mixed, query } = this.#places;
    const groups = heads / keyValueHeads;
    const scale = f32x4.constant(this.#queryScale);
    const ownHead = at(scaled(head.get, groups), group.get);
    return forLoop(
      group,
      i32.const(0),
      i32.const(groups),
      i32.const(1),
      index.set(at(scaled(row.get, this.#queryRowBytes), scaled(ownHead, this.#headVectorBytes))),
      source.set(at(i32.const(queries), index.get)),
      target.set(at(i32.const(mixed), index.get)),
      this.#rotate((j, value) => f32x4.store(i32.const(query), f32x4.mul(value, scale), j * FLOAT_BYTES)),
      ...this.#scores(),
      ...this.#softmax(),
      ...this.#mixAll(),
    );
  }

  #scores(): Code[] {
    const { vectorLargest, score, block, lastBlock, index, position, scoreEnd } = this.#local;
    const futureMask = i32.sub(
      i32.const(this.#places.futureMask + (BLOCK_SIZE - 1) * FLOAT_BYTES),
      scaled(i32.and(position.get, i32.const(BLOCK_SIZE - 1)), FLOAT_BYTES),
    );
    const { firstMask, past } = this.#local;
    const masked = (mask: Local) => (vector: Code, i: number) =>
      f32x4.add(vector, f32x4.load(mask.get, i * VECTOR_BYTES));
    const { windowed } = this.#shape;
    const inWindow = windowed ? masked(past) : (vector: Code) => vector;
    return [
      vectorLargest.set(f32x4.constant(NO_SCORE)),
      score.set(this.#scoreBase),
      windowed ? past.set(firstMask.get) : [],
      forLoop(
        block,
        this.#from,
        lastBlock.get,
        i32.const(1),
        this.#scorePage(inWindow),
        // Of the blocks after the first of a window, every position is seen.
        windowed ? past.set(i32.const(this.#places.pastMask + BLOCK_SIZE * FLOAT_BYTES)) : [],
      ),
      index.set(futureMask),
      this.#scorePage((vector, i) => masked(index)(inWindow(vector, i), i)),
      scoreEnd.set(score.get),
    ];
  }

  /** Scores of one block; every vector of positions has two sums, taken in turn, to keep multiply-adds in flight. */
  #scorePage(finish: (vector: Code, index: number) => Code): Code {
    const { address, block, factor, vectorLargest, score } = this.#local;
    const sums = this.#sums;
    return [
      address.set(this.#headOfBlock(block.get)),
      ...sums.map(sum => sum.set(f32x4.constant(0))),
      ...times(this.#shape.headDimension, d => [
        factor.set(f32x4.loadSplat(i32.const(this.#places.query), d * FLOAT_BYTES)),
        ...times(VECTORS_PER_BLOCK, vector => {
          const sum = sums[(d % 2) * VECTORS_PER_BLOCK + vector];
          const key = f32x4.load(address.get, vector * this.#keyVectorBytes + d * VECTOR_BYTES);
          return sum.set(f32x4.multiplyAdd(factor.get, key, sum.get));
        }),
      ]),
      ...times(VECTORS_PER_BLOCK, vector => {
        const sum = sums[vector];
        const added = f32x4.add(sum.get, sums[VECTORS_PER_BLOCK + vector].get);
        return [
          ...this.#cap(sum, added),
          sum.set(finish(sum.get, vector)),
          vectorLargest.set(f32x4.max(vectorLargest.get, sum.get)),
          f32x4.store(score.get, sum.get, vector * VECTOR_BYTES),
        ];
      }),
      score.set(at(score.get, i32.const(BLOCK_SIZE * FLOAT_BYTES))),
    ];
  }

  /** Puts a vector of scores into `sum`, capped where the model caps them: tanh(s) = (e²ˢ − 1) / (e²ˢ + 1). */
  #cap(sum: Local, scores: Code): Code[] {
    const { softcap } = this.#shape;
    if (softcap == null) return [sum.set(scores)];
    const { power, shifted } = this.#local;
    const most = f32x4.constant(MOST_EXPONENT);
    const one = f32x4.constant(1);
    return [
      sum.set(f32x4.min(scores, most)),
      ...powerOfTwo(power, shifted, sum.get),
      sum.set(
        f32x4.mul(
          f32x4.div(f32x4.sub(power.get, one), f32x4.add(power.get, one)),
          f32x4.constant(softcap * Math.LOG2E),
        ),
      ),
    ];
  }

  /** Scores → weights, not yet divided by their sum. */
  #softmax(): Code[] {
    const { largest, total, vectorLargest, vectorTotal, power, shifted, index, scoreEnd } = this.#local;
    return [
      largest.set(acrossLanes(vectorLargest.get, f32.max)),
      vectorLargest.set(f32x4.splat(largest.get)),
      vectorTotal.set(f32x4.constant(0)),
      forLoop(
        index,
        this.#scoreBase,
        scoreEnd.get,
        i32.const(VECTOR_BYTES),
        ...powerOfTwo(power, shifted, f32x4.sub(f32x4.load(index.get), vectorLargest.get)),
        f32x4.store(index.get, power.get),
        vectorTotal.set(f32x4.add(vectorTotal.get, power.get)),
      ),
      total.set(acrossLanes(vectorTotal.get, f32.add)),
    ];
  }

  #mixAll(): Code[] {
    const vectors = this.#shape.headDimension / LANES;
    const slices: Code[] = [];
    for (let first = 0; first < vectors; first += SUMS) {
      slices.push(this.#mix(first, Math.min(SUMS, vectors - first)));
    }
    return slices;
  }

  /** Mixes a slice of the values of `count` vectors that starts at vector `first`, positions in `phases` sums in turn. */
  #mix(first: number, count: number): Code {
    const { score, block, lastBlock, address, factor, total, target } = this.#local;
    const sums = this.#sums;
    const phases = SUMS >= 2 * count ? 2 : 1;
    return [
      ...times(count * phases, j => sums[j].set(f32x4.constant(0))),
      score.set(this.#scoreBase),
      forLoop(
        block,
        this.#from,
        i32.add(lastBlock.get, i32.const(1)),
        i32.const(1),
        address.set(this.#headOfBlock(block.get)),
        ...times(BLOCK_SIZE, p => [
          factor.set(f32x4.loadSplat(score.get, p * FLOAT_BYTES)),
          ...times(count, j => {
            const sum = sums[(p % phases) * count + j];
            const offset = this.#valuesInHead + p * this.#headVectorBytes + (first + j) * VECTOR_BYTES;
            return sum.set(f32x4.multiplyAdd(factor.get, f32x4.load(address.get, offset), sum.get));
          }),
        ]),
        score.set(at(score.get, i32.const(BLOCK_SIZE * FLOAT_BYTES))),
      ),
      factor.set(f32x4.splat(f32.div(f32.const(1), total.get))),
      ...times(count, j => {
        const sum = phases === 2 ? f32x4.add(sums[j].get, sums[count + j].get) : sums[j].get;
        return f32x4.store(target.get, f32x4.mul(sum, factor.get), (first + j) * VECTOR_BYTES);
      }),
    ];
  }
}

function declareLocals(locals: FunctionLocals) {
  const [run, runEnd, row, rowEnd, position, blockList, head, headOffset] = locals.locals('i32', 8);
  const [angle, source, target, block, lastBlock, address, score, scoreEnd, group, index] = locals.locals(
    'i32',
    10,
  );
  const [firstBlock, firstMask, past] = locals.locals('i32', 3);
  const [largest, total] = locals.locals('f32', 2);
  const [power, shifted, vectorLargest, vectorTotal, factor] = locals.locals('v128', 5);
  return {
    ...{ run, runEnd, row, rowEnd, position, blockList, head, headOffset },
    ...{ angle, source, target, block, lastBlock, address, score, scoreEnd, group, index },
    ...{ firstBlock, firstMask, past },
    ...{ largest, total, power, shifted, vectorLargest, vectorTotal, factor },
  };
}

function at(base: Code, offset: Code): Code {
  return i32.add(base, offset);
}

function scaled(value: Code, bytes: number): Code {
  return i32.mul(value, i32.const(bytes));
}
