import type { Executable } from '../../runtime/runtime.ts';
import type { CompiledGrammar } from '../engine/grammar.ts';
import type { Score, ScoreRequest } from '../policy.ts';
import { planMicroBatches } from './micro-batches.ts';
import { type BatchShape, buildSequenceGraph } from './sequence-graph.ts';
import { allocateInputs, byGrammar, fillRows, grammarOf, type ProgramOptions } from './train-program.ts';

interface CompiledScore {
  readonly executable: Executable;
  readonly inputs: { readonly [name: string]: Float32Array | Int32Array };
}

/** Scores given sequences: log-probabilities, entropies and values of their masked tokens. */
export class ScoreProgram {
  readonly #options: Omit<ProgramOptions, 'trained'>;
  readonly #programs = new Map<string, CompiledScore>();

  constructor(options: Omit<ProgramOptions, 'trained'>) {
    this.#options = options;
  }

  async run(sequences: readonly ScoreRequest[], temperature: number): Promise<Score[]> {
    const scores = new Array<Score>(sequences.length);
    for (const [name, members] of byGrammar(sequences)) {
      const grammar = grammarOf(this.#options, name);
      const group = members.map(index => sequences[index]);
      for (const batch of planMicroBatches(group, this.#options.tokenBudget)) {
        const program = await this.#program(batch, name, grammar);
        const indices = batch.members.map(member => members[member]);
        fillRows(
          program.inputs,
          batch,
          indices.map(index => sequences[index]),
          grammar,
        );
        program.inputs.inverseTemperature[0] = 1 / temperature;
        const { logProbs, entropies, values } = await program.executable.run(program.inputs);
        indices.forEach((index, row) => {
          const pick = (source: ArrayLike<number>) => unpackMasked(source, row, batch, sequences[index].mask);
          scores[index] = {
            logProbs: pick(logProbs),
            entropies: pick(entropies),
            ...(values === undefined ? {} : { values: pick(values) }),
          };
        });
      }
    }
    return scores;
  }

  async #program(
    shape: BatchShape,
    grammarName: string,
    grammar: CompiledGrammar | null,
  ): Promise<CompiledScore> {
    const key = JSON.stringify([shape.rows, shape.time, shape.predictions, grammarName]);
    const known = this.#programs.get(key);
    if (known !== undefined) return known;
    const { config, valueHead, runtime, parameters } = this.#options;
    const { g, logProbs, entropies, values } = buildSequenceGraph(config, shape, { valueHead, grammar });
    g.output('logProbs', logProbs);
    g.output('entropies', entropies);
    if (values !== null) g.output('values', values);
    const graph = g.build();
    const program = {
      executable: await runtime.compile(graph, { parameters }),
      inputs: allocateInputs(graph),
    };
    this.#programs.set(key, program);
    return program;
  }
}

/** Predictions of a row back at the tokens they are about; 0 where the mask is. */
function unpackMasked(
  source: ArrayLike<number>,
  row: number,
  { predictions, time }: BatchShape,
  mask: Uint8Array,
): Float32Array {
  const out = new Float32Array(mask.length);
  let from = row * predictions;
  for (let t = 1; t < mask.length; t++) {
    if (mask[t]) out[t] = source[predictions === time ? row * time + t - 1 : from++];
  }
  return out;
}
