import { doraFactorName, outputFactors } from '../../models/adapters/dora.ts';
import type { DecoderConfig } from '../../models/config.ts';
import { decoderLogits, decoderSegments, decoderValues } from '../../models/decoder.ts';
import { adaptedWeights, layerPrefix } from '../../models/parameters.ts';
import { GraphBuilder } from '../../tensor/graph/graph.ts';
import {
  joinParameters,
  type ParameterSource,
  ParameterStore,
} from '../../tensor/runtime/parameter-store.ts';
import type { Executable, Runtime } from '../../tensor/runtime/runtime.ts';
import { KvCache } from '../cache/kv-cache.ts';
import type { BlockTable } from '../cache/sequence-cache.ts';
import { type DecodeProgram, type DecodeProgramOptions, gatherRows } from './decode-program.ts';

/**
 * DoRA's factors m / ‖V‖ of all adapted linear layers, as parameters: they are computed once for each version of the
 * weights, because they take a product with every weight. Each layer of the model is a program, so a quantized base is
 * unpacked one layer at a time.
 */
class DoraFactors {
  /** Weights, adapters and factors. */
  readonly parameters: ParameterSource;
  readonly #config: DecoderConfig;
  readonly #runtime: Runtime;
  readonly #factors: ParameterStore;
  #programs: readonly Executable[] | null = null;
  #current = false;

  private constructor(config: DecoderConfig, runtime: Runtime, parameters: ParameterSource) {
    this.#config = config;
    this.#runtime = runtime;
    const adapted = adaptedWeights(config, config.lora!);
    this.#factors = new ParameterStore(
      adapted.map(({ linear, shape }) => ({ name: doraFactorName(linear), shape: [shape[0]] })),
    );
    this.parameters = joinParameters(...parameters.stores, this.#factors);
  }

  /** Null for a model without DoRA. */
  static of(config: DecoderConfig, runtime: Runtime, parameters: ParameterSource): DoraFactors | null {
    return config.lora?.dora ? new DoraFactors(config, runtime, parameters) : null;
  }

  /** Reports new weights. */
  weightsChanged(): void {
    this.#current = false;
  }

  /** Computes the factors of the present weights. */
  async update(): Promise<void> {
    if (this.#current) return;
    this.#programs ??= await this.#compile();
    for (const program of this.#programs) await program.run({});
    this.#factors.touch();
    this.#current = true;
  }

  async #compile(): Promise<Executable[]> {
    const adapted = adaptedWeights(this.#config, this.#config.lora!);
    const programs: Executable[] = [];
    for (let layer = 0; layer < this.#config.layers; layer++) {
      const linears = adapted.filter(({ linear }) => linear.startsWith(`${layerPrefix(layer)}.`));
      const g = new GraphBuilder();
      outputFactors(g, this.#config, linears);
      const outputs = Object.fromEntries(
        linears.map(({ linear }) => {
          const name = doraFactorName(linear);
          return [name, this.#factors.array(name)];
        }),
      );
      programs.push(await this.#runtime.compile(g.build(), { parameters: this.parameters, outputs }));
    }
    return programs;
  }
}

/** Fewest rows of a float product: a single row runs through another kernel, which rounds differently. */
const LEAST_ROWS = 2;
/** Larger numbers of rows are rounded up to a multiple of this. */
const ROW_STEP = 4;

/**
 * The decoder as a tensor program split at its attentions, which the cache computes. All arrays are allocated once; a
 * segment is compiled once, for any number of rows.
 */
export class SegmentProgram implements DecodeProgram {
  readonly sampler = null;
  readonly ids: Int32Array;
  readonly logits: Float32Array;
  readonly logitsStride: number;
  readonly values: Float32Array;
  readonly valuesStride = 1;
  readonly #options: DecodeProgramOptions;
  readonly #maxRows: number;
  readonly #cache: KvCache;
  /** Hidden states between segments; a segment reads one and writes the other. */
  readonly #hidden: readonly [Float32Array, Float32Array];
  readonly #headHidden: Float32Array;
  readonly #headMixed: Float32Array;
  /** The layers' segments, then the head's; compiled at their first use. */
  readonly #segments: BoundSegment[] = [];
  /** Null without DoRA. */
  readonly #doraFactors: DoraFactors | null;

  constructor(options: DecodeProgramOptions, most: number) {
    const { config, runtime, parameters } = options;
    const maxRows = roundedRows(most);
    this.#options = options;
    this.#maxRows = maxRows;
    this.#cache = new KvCache(config, { ...options, maxRows });
    this.#doraFactors = DoraFactors.of(config, runtime, parameters);
    this.ids = new Int32Array(maxRows);
    this.#hidden = [
      new Float32Array(maxRows * config.hiddenSize),
      new Float32Array(maxRows * config.hiddenSize),
    ];
    this.#headHidden = new Float32Array(maxRows * config.hiddenSize);
    this.#headMixed = new Float32Array(maxRows * config.heads * config.headDimension);
    this.logits = new Float32Array(maxRows * config.vocabularySize);
    this.logitsStride = config.vocabularySize;
    this.values = new Float32Array(maxRows);
  }

  /** Every run reads the weights in place. */
  weightsChanged(): void {
    this.#doraFactors?.weightsChanged();
  }

  get blockTable(): BlockTable {
    return this.#cache.blockTable;
  }

  setRun(run: number, firstRow: number, rows: number, position: number, slot: number): void {
    this.#cache.setRun(run, firstRow, rows, position, slot);
  }

  async run(rows: number, runs: number, headRows: Int32Array, headCount: number): Promise<void> {
    const { config } = this.#options;
    const cache = this.#cache;
    await this.#doraFactors?.update();
    for (let layer = 0; layer < config.layers; layer++) {
      this.#segments[layer] ??= await this.#compileLayer(layer);
      const { executable, inputs, single } = this.#segments[layer];
      await executable.run(inputs, single && rows === 1 ? 1 : roundedRows(rows));
      cache.attend(runs, layer);
    }
    if (headCount === 0) return;
    this.#segments[config.layers] ??= await this.#compileHead();
    const head = this.#segments[config.layers];
    const hidden = this.#hidden[(config.layers - 1) % 2];
    gatherRows(hidden, config.hiddenSize, headRows, headCount, this.#headHidden);
    gatherRows(cache.rows.mixed, config.heads * config.headDimension, headRows, headCount, this.#headMixed);
    await head.executable.run(head.inputs, head.single && headCount === 1 ? 1 : roundedRows(headCount));
  }

  /** The end of the previous layer, or the embedding, and the projections of `layer`. */
  async #compileLayer(layer: number): Promise<BoundSegment> {
    const { config } = this.#options;
    const rows = this.#maxRows;
    const g = new GraphBuilder({ rowsAlike: true });
    const segments = decoderSegments(config, { storedFactors: true });
    const width = config.heads * config.headDimension;
    const inputs: { [name: string]: Float32Array | Int32Array } = {};
    let hidden = null;
    if (layer === 0) {
      hidden = segments.embed(g, g.input('ids', 'int32', [rows]));
      inputs.ids = this.ids;
    } else {
      const before = g.input('hidden', 'float32', [rows, config.hiddenSize]);
      const mixed = g.input('mixed', 'float32', [rows, width]);
      hidden = segments.finishLayer(g, layer - 1, before, mixed);
      inputs.hidden = this.#hidden[(layer - 1) % 2];
      inputs.mixed = this.#cache.rows.mixed;
    }
    const { query, key, value } = segments.project(g, layer, hidden);
    g.output('hidden', hidden);
    g.output('queries', query);
    g.output('keys', key);
    g.output('values', value);
    const { queries, keys, values } = this.#cache.rows;
    return this.#bind(g, inputs, { hidden: this.#hidden[layer % 2], queries, keys, values });
  }

  async #compileHead(): Promise<BoundSegment> {
    const { config, valueHead } = this.#options;
    const rows = this.#maxRows;
    const g = new GraphBuilder({ rowsAlike: true });
    const segments = decoderSegments(config, { storedFactors: true });
    const width = config.heads * config.headDimension;
    const before = g.input('hidden', 'float32', [rows, config.hiddenSize]);
    const mixed = g.input('mixed', 'float32', [rows, width]);
    const hidden = segments.finish(g, segments.finishLayer(g, config.layers - 1, before, mixed));
    const outputs: { [name: string]: Float32Array } = { logits: this.logits };
    g.output('logits', decoderLogits(g, config, hidden));
    if (valueHead) {
      g.output('values', decoderValues(g, config, hidden));
      outputs.values = this.values;
    }
    return this.#bind(g, { hidden: this.#headHidden, mixed: this.#headMixed }, outputs);
  }

  async #bind(
    g: GraphBuilder,
    inputs: BoundSegment['inputs'],
    outputs: { readonly [name: string]: Float32Array },
  ): Promise<BoundSegment> {
    const { runtime } = this.#options;
    const { parameters } = this.#doraFactors ?? this.#options;
    const graph = g.build();
    const executable = await runtime.compile(graph, { parameters, outputs, anyRows: true });
    return { executable, inputs, single: graph.nodes.every(({ operation }) => operation !== 'matmul') };
  }
}

interface BoundSegment {
  /** True if a single row gives the same bits as among others: all products have packed weights. */
  readonly single: boolean;
  readonly executable: Executable;
  readonly inputs: { readonly [name: string]: Float32Array | Int32Array };
}

/** The number of rows that segments run with for this many. */
function roundedRows(rows: number): number {
  return rows <= LEAST_ROWS ? LEAST_ROWS : Math.ceil(rows / ROW_STEP) * ROW_STEP;
}
