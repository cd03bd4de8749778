import type { DecoderConfig } from '../../models/config.ts';
import { decoderLogits } from '../../models/decoder.ts';
import { ropeTables, ropeWidth } from '../../models/rope.ts';
import { decodeContinuations, decodePrefix } from '../../models/shared-prefix.ts';
import { GraphBuilder } from '../../tensor/graph/graph.ts';
import type { Executable } from '../../tensor/runtime/runtime.ts';
import type { ContinuationRequest } from '../policy.ts';
import { ROW_BUCKETS, timeBucket } from './micro-batches.ts';
import { allocateInputs, type BatchInputs } from './sequence-graph.ts';
import type { ProgramOptions } from './train-program.ts';

interface Compiled {
  readonly executable: Executable;
  readonly inputs: BatchInputs;
}

/** State that continuations take from their prompt. */
interface Prefix {
  readonly length: number;
  /** Padded length. */
  readonly size: number;
  /** `key.<layer>` and `value.<layer>`. */
  readonly cache: BatchInputs;
  /** log p of every token right after the prompt. */
  readonly logProbs: Float32Array;
}

/**
 * Scores continuations of prompts. Each prompt goes through the model once, and its continuations attend to its keys and values,
 * so that a pass over R continuations of N prompts takes Σ|x| + N Σ|z| tokens instead of Σ Σ (|x| + |z|).
 */
export class ContinuationProgram {
  readonly #options: Pick<ProgramOptions, 'config' | 'runtime' | 'parameters' | 'tokenBudget'>;
  readonly #prefixes = new Map<number, Compiled>();
  readonly #continuations = new Map<string, Compiled>();

  constructor(options: Pick<ProgramOptions, 'config' | 'runtime' | 'parameters' | 'tokenBudget'>) {
    this.#options = options;
  }

  /** log p(continuation | prompt) in nats, summed over tokens; an array for each request. */
  async run(requests: readonly ContinuationRequest[], temperature: number): Promise<Float64Array[]> {
    const sums: Float64Array[] = [];
    for (const { prompt, continuations } of requests) {
      const prefix = await this.#prefix(prompt, temperature);
      const own = Float64Array.from(continuations, ([first]) => prefix.logProbs[first]);
      const longer = continuations.map((_, i) => i).filter(i => continuations[i].length > 1);
      longer.sort((a, b) => continuations[b].length - continuations[a].length || a - b);
      for (let done = 0; done < longer.length; ) {
        const time = timeBucket(continuations[longer[done]].length);
        const rows = this.#rows(time, longer.length - done);
        const members = longer.slice(done, done + rows);
        await this.#continue(prefix, { members, continuations, rows, time, temperature }, own);
        done += members.length;
      }
      sums.push(own);
    }
    return sums;
  }

  /** Rows of a pass of this length: the remaining ones, within the token budget. */
  #rows(time: number, left: number): number {
    const room = Math.max(1, Math.floor(this.#options.tokenBudget / time));
    const buckets = ROW_BUCKETS.filter(rows => rows <= room);
    return buckets.find(rows => rows >= left) ?? buckets.at(-1)!;
  }

  async #prefix(prompt: ArrayLike<number>, temperature: number): Promise<Prefix> {
    const size = timeBucket(prompt.length + 1);
    const { executable, inputs } = await this.#prefixProgram(size);
    inputs.ids.fill(0);
    inputs.ids.set(Array.from(prompt));
    inputs.last[0] = prompt.length - 1;
    inputs.inverseTemperature[0] = 1 / temperature;
    const { logProbs, ...cache } = await executable.run(inputs);
    const copied = Object.entries(cache).map(([name, array]) => [name, Float32Array.from(array)]);
    return {
      length: prompt.length,
      size,
      cache: Object.fromEntries(copied),
      logProbs: Float32Array.from(logProbs),
    };
  }

  async #continue(
    prefix: Prefix,
    pass: {
      readonly members: readonly number[];
      readonly continuations: readonly ArrayLike<number>[];
      readonly rows: number;
      readonly time: number;
      readonly temperature: number;
    },
    sums: Float64Array,
  ): Promise<void> {
    const { members, continuations, rows, time, temperature } = pass;
    const { executable, inputs } = await this.#continuationProgram(prefix.size, rows, time);
    const positions = Int32Array.from({ length: time }, (_, t) => prefix.length + t);
    const { cos, sin } = ropeTables(this.#options.config, positions);
    inputs.cos.set(cos);
    inputs.sin.set(sin);
    inputs.prefixMask.fill(0).fill(1, 0, prefix.length);
    inputs.inverseTemperature[0] = 1 / temperature;
    inputs.ids.fill(0);
    inputs.targets.fill(0);
    members.forEach((member, row) => {
      const tokens = continuations[member];
      for (let t = 0; t + 1 < tokens.length; t++) {
        inputs.ids[row * time + t] = tokens[t];
        inputs.targets[row * time + t] = tokens[t + 1];
      }
    });
    const { logProbs } = await executable.run({ ...inputs, ...prefix.cache });
    members.forEach((member, row) => {
      for (let t = 0; t + 1 < continuations[member].length; t++) sums[member] += logProbs[row * time + t];
    });
  }

  async #prefixProgram(size: number): Promise<Compiled> {
    const known = this.#prefixes.get(size);
    if (known !== undefined) return known;
    const { config } = this.#options;
    const g = new GraphBuilder();
    const ids = g.input('ids', 'int32', [size]);
    const { cache, hidden } = decodePrefix(g, config, ids, g.input('last', 'int32', [1]));
    const logits = decoderLogits(g, config, hidden, g.input('inverseTemperature', 'float32', []));
    g.output('logProbs', g.logSoftmax(logits));
    cache.keys.forEach((key, layer) => {
      g.output(`key.${layer}`, key);
    });
    cache.values.forEach((value, layer) => {
      g.output(`value.${layer}`, value);
    });
    const program = await this.#compile(g);
    this.#prefixes.set(size, program);
    return program;
  }

  async #continuationProgram(prefix: number, rows: number, time: number): Promise<Compiled> {
    const key = [prefix, rows, time].join();
    const known = this.#continuations.get(key);
    if (known !== undefined) return known;
    const { config } = this.#options;
    const g = new GraphBuilder();
    const hidden = decodeContinuations(g, config, {
      ids: g.input('ids', 'int32', [rows, time]),
      cos: g.input('cos', 'float32', [time, ropeWidth(config)]),
      sin: g.input('sin', 'float32', [time, ropeWidth(config)]),
      prefixMask: g.input('prefixMask', 'float32', [prefix]),
      cache: cacheInputs(g, config, prefix),
    });
    const logits = decoderLogits(g, config, hidden, g.input('inverseTemperature', 'float32', []));
    const targets = g.reshape(g.input('targets', 'int32', [rows, time]), [-1]);
    g.output('logProbs', g.takeLast(g.logSoftmax(logits), targets));
    const program = await this.#compile(g);
    this.#continuations.set(key, program);
    return program;
  }

  async #compile(g: GraphBuilder): Promise<Compiled> {
    const { runtime, parameters } = this.#options;
    const graph = g.build();
    return { executable: await runtime.compile(graph, { parameters }), inputs: allocateInputs(graph) };
  }
}

function cacheInputs(
  g: GraphBuilder,
  { layers, keyValueHeads, headDimension }: DecoderConfig,
  prefix: number,
) {
  const inputs = (name: string) =>
    Array.from({ length: layers }, (_, layer) =>
      g.input(`${name}.${layer}`, 'float32', [1, prefix, keyValueHeads, headDimension]),
    );
  return { keys: inputs('key'), values: inputs('value') };
}
