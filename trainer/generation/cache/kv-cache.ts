import { type DecoderConfig, ModelConfigError } from '../../models/config.ts';
import { ropeTables } from '../../models/sequence-layout.ts';
import { PAGE_BYTES } from '../../tensor/runtime/wasm/code.ts';
import { MemoryPlan } from '../../tensor/runtime/wasm/memory-plan.ts';
import { type AttentionKernel, compileAttention } from './attention-kernel.ts';
import { type AttentionAddresses, blockBytes, FUTURE_MASK, layerBytes, RUN_WORDS } from './block-layout.ts';
import { BLOCK_SIZE, BlockTable } from './block-table.ts';

const FLOAT_BYTES = 4;
/** Addresses of WebAssembly memory have 32 bits; a page stays free for the arrays in front of the cache. */
const MAX_MEMORY_BYTES = 2 ** 32 - PAGE_BYTES;

export interface KvCacheLimits {
  readonly maxSequenceLength: number;
  /** Sequences that can have a cache at once. */
  readonly maxOpenSequences: number;
  /** Rows of a tick. */
  readonly maxRows: number;
  /** What else is to lie in the cache's memory, placed in front of it. */
  readonly plan?: MemoryPlan;
}

/** Rows of a tick, as the tensor program writes and reads them. */
export interface RowArrays {
  readonly queries: Float32Array;
  readonly keys: Float32Array;
  readonly values: Float32Array;
  readonly mixed: Float32Array;
}

/**
 * Keys and values of many sequences in blocks of 16 positions, in one WebAssembly memory together with the rows that the
 * attention kernel reads and writes. The memory is reserved whole at the start and filled by the system as it is
 * touched, so that views of it stay valid.
 */
export class KvCache {
  readonly rows: RowArrays;
  /** Where the rows lie in the memory. */
  readonly places: AttentionAddresses;
  readonly memory: WebAssembly.Memory;
  readonly blockTable: BlockTable;
  readonly #kernel: AttentionKernel;
  readonly #runs: Int32Array;
  readonly #tablesAddress: number;
  readonly #layerBytes: number;

  /** @throws ModelConfigError when a head's size is no multiple of 8, or one sequence alone does not fit 4 GiB */
  constructor(config: DecoderConfig, limits: KvCacheLimits) {
    if (config.headDimension % 8 !== 0) {
      throw new ModelConfigError(`generation needs heads of a multiple of 8, got ${config.headDimension}`);
    }
    const { maxRows, maxOpenSequences, maxSequenceLength, plan = new MemoryPlan() } = limits;
    const { heads, keyValueHeads, headDimension } = config;
    const blocksPerSequence = Math.ceil(maxSequenceLength / BLOCK_SIZE);
    const positions = blocksPerSequence * BLOCK_SIZE;
    const places: AttentionAddresses = {
      angles: plan.place(positions * headDimension),
      query: plan.place(headDimension),
      scores: plan.place(positions),
      futureMask: plan.place(FUTURE_MASK.length),
      queries: plan.place(maxRows * heads * headDimension),
      keys: plan.place(maxRows * keyValueHeads * headDimension),
      values: plan.place(maxRows * keyValueHeads * headDimension),
      mixed: plan.place(maxRows * heads * headDimension),
      runs: plan.place(maxRows * RUN_WORDS),
    };
    this.places = places;
    this.#tablesAddress = plan.place(maxOpenSequences * blocksPerSequence);
    const { end } = plan;
    const bytesOfBlock = blockBytes(config, config.layers);
    const wanted = maxOpenSequences * blocksPerSequence;
    const blockCount = Math.min(wanted, Math.floor((MAX_MEMORY_BYTES - end) / bytesOfBlock));
    if (blockCount < blocksPerSequence) {
      throw new ModelConfigError(
        `a sequence of ${maxSequenceLength} tokens needs a cache of ${(blocksPerSequence * bytesOfBlock) / 2 ** 20} MiB, which does not fit 4 GiB: lower the maximum sequence length`,
      );
    }
    const memoryPages = Math.ceil((end + blockCount * bytesOfBlock) / PAGE_BYTES);
    const memory = new WebAssembly.Memory({ initial: memoryPages, maximum: memoryPages });
    this.memory = memory;
    const floats = (address: number, count: number) => new Float32Array(memory.buffer, address, count);
    this.rows = {
      queries: floats(places.queries, maxRows * heads * headDimension),
      keys: floats(places.keys, maxRows * keyValueHeads * headDimension),
      values: floats(places.values, maxRows * keyValueHeads * headDimension),
      mixed: floats(places.mixed, maxRows * heads * headDimension),
    };
    this.#runs = new Int32Array(memory.buffer, places.runs, maxRows * RUN_WORDS);
    this.#layerBytes = layerBytes(config);
    floats(places.futureMask, FUTURE_MASK.length).set(FUTURE_MASK);
    writeAngles(config, floats(places.angles, positions * headDimension), positions);
    this.#kernel = compileAttention(config, places, memory);
    this.blockTable = new BlockTable({
      blockCount,
      blocksPerSequence,
      tables: new Int32Array(memory.buffer, this.#tablesAddress, wanted),
      first: end,
      step: bytesOfBlock,
    });
  }

  /** Describes run number `run` of the coming tick. */
  setRun(run: number, firstRow: number, rows: number, position: number, slot: number): void {
    const word = run * RUN_WORDS;
    this.#runs[word] = firstRow;
    this.#runs[word + 1] = rows;
    this.#runs[word + 2] = position;
    this.#runs[word + 3] = this.#tablesAddress + slot * this.blockTable.blocksPerSequence * FLOAT_BYTES;
  }

  /** Writes keys and values of the tick's rows into the cache and fills `rows.mixed`. */
  attend(runCount: number, layer: number): void {
    this.#kernel(runCount, layer * this.#layerBytes);
  }
}

function writeAngles(config: DecoderConfig, table: Float32Array, positions: number): void {
  const half = config.headDimension / 2;
  const { cos, sin } = ropeTables(
    config,
    Int32Array.from({ length: positions }, (_, p) => p),
  );
  for (let p = 0; p < positions; p++) {
    table.set(cos.subarray(p * half, (p + 1) * half), p * 2 * half);
    table.set(sin.subarray(p * half, (p + 1) * half), p * 2 * half + half);
  }
}
