import type { DecoderConfig } from '../../models/config.ts';
import { decoderLogits, decoderSegments, decoderValues } from '../../models/decoder.ts';
import { ropeTables, ropeWidth } from '../../models/rope.ts';
import { scoreScale, turnHeads } from '../../models/sequence-layout.ts';
import { GraphBuilder, type Tensor } from '../../tensor/graph/graph.ts';
import { SAMPLE_RESULTS, SAMPLE_SETTINGS } from '../../tensor/graph/operations/device.ts';
import type { DeviceArray, DeviceMemory, Executable } from '../../tensor/runtime/runtime.ts';
import { BLOCK_SIZE, BlockTable } from '../cache/sequence-cache.ts';
import type { CompiledGrammar, ResponseGrammar } from '../grammar.ts';
import type { SampledToken } from '../sampling.ts';
import type { DecodeProgram, DecodeProgramOptions, RowSampler, RowSampling } from './decode-program.ts';

/** Most entries in the table of forbidden tokens of all grammars, which every compiled pass holds. */
const MAX_TABLE = 2 ** 20;
/** Added to logits of tokens that a grammar forbids: their weights are 0. */
const FORBIDDEN_LOGIT = -1e9;
/** Numbers of rows that passes are compiled for; a tick is rounded up. */
const ROW_BUCKETS = [4, 8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096];
/** Settings of a row that takes the largest logit: −1 replaces the uniform number. */
const UNSAMPLED: readonly number[] = [0, 0, 1, -1, 0];

/** Inputs and outputs of a pass that samples tokens on its device. */
interface BoundSampler {
  readonly inputs: { readonly [name: string]: Float32Array | Int32Array };
  readonly outputs: { readonly [name: string]: Float32Array };
}

/**
 * Samples on a device like `Sampler` on the processor, from the same random numbers. The results are not equal to the
 * bit: the device's exponential rounds differently, and sums are float32 in another order, as is the random number.
 * Log-probabilities agree to about 1e-5. Where the number is within rounding of a border between two tokens, the device
 * may take the neighbor; that happens now and then among tens of thousands of tokens. The log-probability always
 * belongs to the sampled token.
 */
export class DeviceSampler implements RowSampler {
  readonly #vocabularySize: number;
  /** Row of each grammar's first state in the table; row 0 forbids nothing. */
  readonly #firstRows: ReadonlyMap<ResponseGrammar, number>;
  /** Null without grammars. */
  readonly #table: Float32Array | null;
  readonly #settings: Float32Array;
  readonly #states: Int32Array;
  readonly #sampled: Float32Array;
  readonly #sample: SampledToken = { token: 0, logProb: 0 };

  private constructor(
    vocabularySize: number,
    firstRows: ReadonlyMap<ResponseGrammar, number>,
    table: Float32Array | null,
    maxRows: number,
  ) {
    this.#vocabularySize = vocabularySize;
    this.#firstRows = firstRows;
    this.#table = table;
    this.#settings = new Float32Array(maxRows * SAMPLE_SETTINGS);
    this.#states = new Int32Array(maxRows);
    this.#sampled = new Float32Array(maxRows * SAMPLE_RESULTS);
  }

  /**
   * @returns null where the grammars' states times the vocabulary are too many for a device: the program then returns
   * logits
   */
  static create(
    vocabularySize: number,
    grammars: ReadonlyMap<string, CompiledGrammar>,
    maxRows: number,
  ): DeviceSampler | null {
    const firstRows = new Map<CompiledGrammar, number>();
    let rows = 1;
    for (const grammar of grammars.values()) {
      firstRows.set(grammar, rows);
      rows += grammar.stateCount;
    }
    if (rows === 1) return new DeviceSampler(vocabularySize, firstRows, null, maxRows);
    if (rows * vocabularySize > MAX_TABLE) return null;
    const table = new Float32Array(rows * vocabularySize);
    for (const [{ allowed }, first] of firstRows) {
      allowed.forEach((flag, i) => {
        if (flag === 0) table[first * vocabularySize + i] = FORBIDDEN_LOGIT;
      });
    }
    return new DeviceSampler(vocabularySize, firstRows, table, maxRows);
  }

  /** Adds sampling to a pass with these logits [rows, vocabulary]. */
  build(g: GraphBuilder, logits: Tensor): BoundSampler {
    const [rows] = logits.shape;
    const settings = g.input('sampleSettings', 'float32', [rows, SAMPLE_SETTINGS]);
    const inputs = { sampleSettings: this.#settings.subarray(0, rows * SAMPLE_SETTINGS) };
    const outputs = { sampled: this.#sampled.subarray(0, rows * SAMPLE_RESULTS) };
    if (this.#table === null) {
      g.output('sampled', g.sample(logits, settings));
      return { inputs, outputs };
    }
    const table = g.constant(this.#table, [this.#table.length / this.#vocabularySize, this.#vocabularySize]);
    const forbidden = g.gather(table, g.input('grammarRows', 'int32', [rows]));
    g.output('sampled', g.sample(g.add(logits, forbidden), settings));
    return { inputs: { ...inputs, grammarRows: this.#states.subarray(0, rows) }, outputs };
  }

  handles({ sampling, grammar, processor, topLogProbs }: RowSampling): boolean {
    if (processor !== null || (grammar !== null && !this.#firstRows.has(grammar))) return false;
    return topLogProbs === undefined || (topLogProbs === 0 && sampling.temperature > 0);
  }

  set(row: number, { sampling, rng, grammar, grammarState }: RowSampling): void {
    const { temperature, topK, topP, minP = 0 } = sampling;
    const numbers = temperature === 0 ? UNSAMPLED : [1 / temperature, topK, topP, rng.float(), minP];
    this.#settings.set(numbers, row * SAMPLE_SETTINGS);
    this.#states[row] = grammar === null ? 0 : this.#firstRows.get(grammar)! + grammarState;
  }

  skip(from: number, to: number): void {
    this.#states.fill(0, from, to);
    for (let row = from; row < to; row++) this.#settings.set(UNSAMPLED, row * SAMPLE_SETTINGS);
  }

  get(row: number): SampledToken {
    const [token, weight, total] = this.#sampled.subarray(row * SAMPLE_RESULTS, (row + 1) * SAMPLE_RESULTS);
    const logProb = Math.log(weight / total);
    if (token === -1 || !Number.isFinite(logProb))
      throw new RangeError('no token can be sampled: logits are NaN');
    this.#sample.token = token;
    this.#sample.logProb = logProb;
    return this.#sample;
  }
}

interface BoundPass {
  readonly executable: Executable;
  /** Logits of the head rows; empty where the pass returns none. */
  readonly logits: Float32Array;
  readonly inputs: { readonly [name: string]: Float32Array | Int32Array };
}

/**
 * The whole decoder as one program on a device, with keys and values there: a pass is one submission, and only tokens,
 * their log-probabilities and values are read back. A program is compiled for each new number of rows.
 */
export class DeviceProgram implements DecodeProgram {
  readonly ids: Int32Array;
  readonly sampler: DeviceSampler | null;
  logits: Float32Array = new Float32Array(0);
  readonly logitsStride: number;
  readonly values: Float32Array;
  readonly valuesStride = 1;
  readonly blockTable: BlockTable;
  readonly #options: DecodeProgramOptions;
  readonly #memory: DeviceMemory;
  readonly #maxRows: number;
  /** Place in the cache of each row, the slot of its sequence, its position, and its angles. */
  readonly #places: Int32Array;
  readonly #slots: Int32Array;
  readonly #positions: Int32Array;
  readonly #cos: Float32Array;
  readonly #sin: Float32Array;
  readonly #tables: { readonly cos: Float32Array; readonly sin: Float32Array };
  readonly #passes = new Map<string, BoundPass>();
  #cache: { readonly [name: string]: DeviceArray } | null = null;

  /** @param memory the runtime's */
  constructor(options: DecodeProgramOptions, memory: DeviceMemory, maxRows: number) {
    const { config, maxSequenceLength, maxOpenSequences } = options;
    const width = ropeWidth(config);
    this.#options = options;
    this.#memory = memory;
    this.#maxRows = maxRows;
    this.ids = new Int32Array(maxRows);
    this.sampler = DeviceSampler.create(config.vocabularySize, options.grammars ?? new Map(), maxRows);
    this.logitsStride = config.vocabularySize;
    this.values = new Float32Array(maxRows);
    this.#places = new Int32Array(maxRows);
    this.#slots = new Int32Array(maxRows);
    this.#positions = new Int32Array(maxRows);
    this.#cos = new Float32Array(maxRows * width);
    this.#sin = new Float32Array(maxRows * width);
    const blocksPerSequence = Math.ceil(maxSequenceLength / BLOCK_SIZE);
    const positions = blocksPerSequence * BLOCK_SIZE;
    this.#tables = ropeTables(
      config,
      Int32Array.from({ length: positions }, (_, p) => p),
    );
    const wanted = maxOpenSequences * blocksPerSequence;
    const blockLength = BLOCK_SIZE * config.keyValueHeads * config.headDimension;
    // One more block receives the writes of padding rows.
    const most = Math.floor(memory.largestArray / blockLength) - 1;
    if (most < blocksPerSequence) {
      throw new RangeError(
        `a sequence of ${maxSequenceLength} tokens does not fit the largest array of this device: lower the maximum sequence length`,
      );
    }
    this.blockTable = new BlockTable({
      blockCount: Math.min(wanted, most),
      blocksPerSequence,
      tables: new Float32Array(wanted),
      first: 0,
      step: 1,
    });
  }

  /** Weights are on the device, where updates change them. */
  weightsChanged(): void {}

  setRun(_run: number, firstRow: number, rows: number, position: number, slot: number): void {
    const width = ropeWidth(this.#options.config);
    const list = slot * this.blockTable.blocksPerSequence;
    for (let i = 0; i < rows; i++) {
      const [row, at] = [firstRow + i, position + i];
      const block = this.blockTable.tables[list + Math.floor(at / BLOCK_SIZE)];
      this.#places[row] = block * BLOCK_SIZE + (at % BLOCK_SIZE);
      this.#slots[row] = slot;
      this.#positions[row] = at;
      this.#cos.set(this.#tables.cos.subarray(at * width, (at + 1) * width), row * width);
      this.#sin.set(this.#tables.sin.subarray(at * width, (at + 1) * width), row * width);
    }
  }

  async run(
    rows: number,
    _runs: number,
    headRows: Int32Array,
    headCount: number,
    logits: boolean,
  ): Promise<void> {
    const withLogits = logits || this.sampler === null;
    const bucket = bucketOf(rows, this.#maxRows);
    const heads = bucketOf(Math.max(1, headCount), this.#maxRows);
    this.ids.fill(0, rows, bucket);
    this.#places.fill(this.blockTable.blockCount * BLOCK_SIZE, rows, bucket);
    this.#slots.fill(0, rows, bucket);
    this.#positions.fill(0, rows, bucket);
    const key = `${bucket} ${heads} ${withLogits}`;
    const pass = this.#passes.get(key) ?? (await this.#compile(bucket, heads, withLogits));
    this.#passes.set(key, pass);
    this.logits = pass.logits;
    pass.inputs.headRows.fill(0);
    pass.inputs.headRows.set(headRows.subarray(0, headCount));
    this.sampler?.skip(headCount, heads);
    await pass.executable.run(pass.inputs);
  }

  async #compile(rows: number, heads: number, withLogits: boolean): Promise<BoundPass> {
    const { config, valueHead, runtime, parameters } = this.#options;
    const width = ropeWidth(config);
    this.#cache ??= await this.#allocate();
    const g = new GraphBuilder({ rowsAlike: true });
    const paged: PagedRows = {
      rows,
      places: g.input('places', 'int32', [rows]),
      cos: g.input('cos', 'float32', [1, rows, width]),
      sin: g.input('sin', 'float32', [1, rows, width]),
      cache: name =>
        g.input(name, 'float32', [(this.blockTable.blockCount + 1) * BLOCK_SIZE, ...headsOf(config)]),
      tables: [
        g.input('tables', 'float32', [this.#options.maxOpenSequences, this.blockTable.blocksPerSequence]),
        g.input('slots', 'int32', [rows]),
        g.input('positions', 'int32', [rows]),
      ],
    };
    const hidden = decodeRows(
      g,
      config,
      g.input('ids', 'int32', [rows]),
      paged,
      g.input('headRows', 'int32', [heads]),
    );
    const rowsOfLogits = decoderLogits(g, config, hidden);
    const sampled = this.sampler?.build(g, rowsOfLogits) ?? null;
    if (withLogits) g.output('logits', rowsOfLogits);
    const logits = new Float32Array(withLogits ? heads * config.vocabularySize : 0);
    const outputs: { [name: string]: Float32Array } = {
      ...sampled?.outputs,
      ...(withLogits ? { logits } : {}),
    };
    if (valueHead) {
      g.output('values', decoderValues(g, config, hidden));
      outputs.values = this.values.subarray(0, heads);
    }
    const executable = await runtime.compile(g.build(), { parameters, outputs, resident: this.#cache });
    const inputs = {
      ids: this.ids.subarray(0, rows),
      places: this.#places.subarray(0, rows),
      slots: this.#slots.subarray(0, rows),
      positions: this.#positions.subarray(0, rows),
      cos: this.#cos.subarray(0, rows * width),
      sin: this.#sin.subarray(0, rows * width),
      tables: this.blockTable.tables,
      headRows: new Int32Array(heads),
      ...sampled?.inputs,
    };
    return { executable, logits, inputs };
  }

  async #allocate(): Promise<{ readonly [name: string]: DeviceArray }> {
    const { config } = this.#options;
    const [heads, size] = headsOf(config);
    const length = (this.blockTable.blockCount + 1) * BLOCK_SIZE * heads * size;
    const cache: { [name: string]: DeviceArray } = {};
    for (let layer = 0; layer < config.layers; layer++) {
      for (const name of [keysOf(layer), valuesOf(layer)]) {
        cache[name] = await this.#memory.allocate(
          `the cache of ${this.blockTable.blockCount} blocks`,
          length,
        );
      }
    }
    return cache;
  }
}

interface PagedRows {
  readonly rows: number;
  readonly places: Tensor;
  readonly cos: Tensor;
  readonly sin: Tensor;
  cache(name: string): Tensor;
  /** Lists of blocks, and the list and the last position of each row. */
  readonly tables: readonly Tensor[];
}

function keysOf(layer: number): string {
  return `keys ${layer}`;
}

function valuesOf(layer: number): string {
  return `values ${layer}`;
}

function headsOf({ keyValueHeads, headDimension }: DecoderConfig): [number, number] {
  return [keyValueHeads, headDimension];
}

/** Final hidden states of `headRows` [heads] among rows `ids` [rows]. Keys and values of all rows go into the cache. */
function decodeRows(
  g: GraphBuilder,
  config: DecoderConfig,
  ids: Tensor,
  { rows, places, cos, sin, cache, tables }: PagedRows,
  headRows: Tensor,
): Tensor {
  const { heads, keyValueHeads, headDimension, layers } = config;
  const segments = decoderSegments(config);
  const turned = (x: Tensor, layer: number, count: number) => {
    const perHead = g.reshape(x, [1, rows, count, headDimension]);
    return g.reshape(turnHeads(g, config, layer, perHead, { cos, sin }), [rows, count, headDimension]);
  };
  const softcap = config.attentionSoftcap ?? 0;
  const attributes = { blockSize: BLOCK_SIZE, scale: scoreScale(config), softcap };
  let hidden = segments.embed(g, ids);
  for (let layer = 0; layer < layers; layer++) {
    const { query, key, value } = segments.project(g, layer, hidden);
    const keys = g.putRows(cache(keysOf(layer)), turned(key, layer, keyValueHeads), places);
    const rowsOfValues = g.reshape(value, [rows, keyValueHeads, headDimension]);
    const values = g.putRows(cache(valuesOf(layer)), rowsOfValues, places);
    const window = config.attentionLayers?.[layer].window ?? 0;
    const turnedQuery = turned(query, layer, heads);
    const mixed = g.pagedAttention([turnedQuery, keys, values, ...tables], { ...attributes, window });
    let own = g.reshape(mixed, [rows, heads * headDimension]);
    if (layer === layers - 1) {
      own = g.gather(own, headRows);
      hidden = g.gather(hidden, headRows);
    }
    hidden = segments.finishLayer(g, layer, hidden, own);
  }
  return segments.finish(g, hidden);
}

/** The compiled number of rows for a pass with this many. */
function bucketOf(rows: number, most: number): number {
  for (const bucket of ROW_BUCKETS) if (bucket >= rows) return Math.min(bucket, most);
  return most;
}
