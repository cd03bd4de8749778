import type { Executable } from '../../tensor/runtime/runtime.ts';
import type { Score, ScoreRequest } from '../policy.ts';
import { type BatchShape, planMicroBatches, shapeKey } from './micro-batches.ts';
import { allocateInputs, BatchArrays, type BatchInputs, buildSequenceGraph } from './sequence-graph.ts';
import { TokenMasks } from './token-masks.ts';
import type { ProgramOptions } from './train-program.ts';

interface CompiledScore {
  readonly executable: Executable;
  readonly inputs: BatchInputs;
}

/**
 * Scores given sequences: log-probabilities, entropies and values of their masked tokens; for a critic, values only.
 */
export class ScoreProgram {
  readonly #options: Omit<ProgramOptions, 'trained'>;
  readonly #programs = new Map<string, CompiledScore>();

  constructor(options: Omit<ProgramOptions, 'trained'>) {
    this.#options = options;
  }

  async run(sequences: readonly ScoreRequest[], temperature: number, squares = false): Promise<Score[]> {
    const scores = new Array<Score>(sequences.length);
    for (const batch of planMicroBatches(sequences, this.#options)) {
      const members = batch.members.map(index => sequences[index]);
      const masks = TokenMasks.of(members, this.#options.grammars);
      const program = await this.#program(batch, masks?.count ?? 0, squares);
      const arrays = new BatchArrays(batch, members);
      arrays.fillTokens(program.inputs, masks);
      program.inputs.inverseTemperature?.fill(1 / temperature);
      const outputs = await program.executable.run(program.inputs);
      batch.members.forEach((index, row) => {
        const own = Object.keys(outputs).map(name => [name, arrays.take(row, outputs[name] as Float32Array)]);
        scores[index] = Object.fromEntries(own) as Score;
      });
    }
    return scores;
  }

  async #program(shape: BatchShape, masks: number, squares: boolean): Promise<CompiledScore> {
    const key = JSON.stringify([shapeKey(shape), masks, squares]);
    const known = this.#programs.get(key);
    if (known !== undefined) return known;
    const { config, valueHead, critic, runtime, parameters } = this.#options;
    const { g, ...outputs } = buildSequenceGraph(config, shape, {
      valueHead,
      critic,
      masks,
      squares,
      onGpu: runtime.memory !== undefined,
    });
    for (const name of ['logProbs', 'entropies', 'squares', 'values'] as const) {
      const tensor = outputs[name];
      if (tensor) g.output(name, tensor);
    }
    const graph = g.build();
    const program = {
      executable: await runtime.compile(graph, { parameters }),
      inputs: allocateInputs(graph),
    };
    this.#programs.set(key, program);
    return program;
  }
}
