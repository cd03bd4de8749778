import type { Executable } from '../../runtime/runtime.ts';
import type { CompiledGrammar } from '../engine/grammar.ts';
import type { Score, ScoreRequest } from '../policy.ts';
import { allocateInputs, BatchArrays, type BatchInputs } from './batch-inputs.ts';
import { planMicroBatches } from './micro-batches.ts';
import { type BatchShape, buildSequenceGraph, shapeKey } from './sequence-graph.ts';
import { byGrammar, grammarOf, type ProgramOptions } from './train-program.ts';

interface CompiledScore {
  readonly executable: Executable;
  readonly inputs: BatchInputs;
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
      for (const batch of planMicroBatches(group, this.#options)) {
        const program = await this.#program(batch, name, grammar);
        const indices = batch.members.map(member => members[member]);
        const arrays = new BatchArrays(
          batch,
          indices.map(index => sequences[index]),
        );
        arrays.fillTokens(program.inputs, grammar);
        program.inputs.inverseTemperature[0] = 1 / temperature;
        const { logProbs, entropies, values } = await program.executable.run(program.inputs);
        indices.forEach((index, row) => {
          scores[index] = {
            logProbs: arrays.take(row, logProbs),
            entropies: arrays.take(row, entropies),
            ...(values === undefined ? {} : { values: arrays.take(row, values) }),
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
    const key = JSON.stringify([shapeKey(shape), grammarName]);
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
