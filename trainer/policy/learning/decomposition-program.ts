import {
  buildUpdateLoss,
  declareLossInputs,
  type LossComponent,
} from '../../algorithms/losses/update-loss.ts';
import { gradients } from '../../tensor/graph/gradients.ts';
import type { ParameterStore } from '../../tensor/runtime/parameter-store.ts';
import { shapeKey } from './micro-batches.ts';
import { buildSequenceGraph, type CompiledProgram, CompiledPrograms } from './sequence-graph.ts';
import {
  fillBatch,
  type GradientBatch,
  type GradientTask,
  gradientBatches,
  type ProgramOptions,
} from './train-program.ts';

/**
 * Computes the gradients of the loss's components separately: one forward pass, and one backward pass for each
 * component.
 */
export class DecompositionProgram {
  readonly #options: ProgramOptions;
  /** Gradients of one micro-batch by component, which every compiled program writes to. */
  readonly #partials = new Map<LossComponent, ParameterStore>();
  readonly #programs = new CompiledPrograms();

  constructor(options: ProgramOptions) {
    this.#options = options;
  }

  /**
   * @param totals overwritten by the sum over the sequences, a vector for each component
   * @returns the components of the loss, summed
   */
  async run(
    task: GradientTask,
    totals: ReadonlyMap<LossComponent, Float32Array>,
  ): Promise<Record<string, number>> {
    const losses: Record<string, number> = {};
    for (const [component, total] of totals) {
      total.fill(0);
      losses[component] = 0;
    }
    for (const part of gradientBatches(this.#options, task.sequences)) {
      const program = await this.#program(part, task, [...totals.keys()]);
      fillBatch(program.inputs, part, task);
      const outputs = await program.executable.run(program.inputs);
      for (const [component, total] of totals) {
        const partial = this.#partial(component).flat;
        for (let i = 0; i < total.length; i++) total[i] += partial[i];
        losses[component] += outputs[lossName(component)][0];
      }
    }
    return losses;
  }

  #program(
    { batch, masks }: GradientBatch,
    { structure }: GradientTask,
    components: readonly LossComponent[],
  ): Promise<CompiledProgram> {
    const key = [shapeKey(batch), structure, components, masks?.count];
    return this.#programs.get(this.#options.runtime, key, () => {
      const { config, trained, runtime, parameters, lossScaled, recompute } = this.#options;
      const sequence = buildSequenceGraph(config, batch, {
        valueHead: false,
        critic: false,
        masks: masks?.count ?? 0,
        onGpu: runtime.memory !== undefined,
      });
      const { g, logProbs, entropies, sequenceSum } = sequence;
      const outputs = { logProbs: logProbs!, entropies: entropies! };
      const inputs = declareLossInputs(g, structure, sequence.shape);
      const loss = buildUpdateLoss(g, outputs, inputs, structure, { sequenceSum });
      const weights = trained.layout.map(({ name, shape }) => g.parameter(name, shape));
      const scale = lossScaled ? g.input('lossScale', 'float32', []) : null;
      const bound: Record<string, Float32Array> = {};
      for (const component of components) {
        const term = loss.components.get(component)!;
        const scaled = scale ? g.mul(term, scale) : term;
        const grads = gradients(g, scaled, weights, { recompute });
        trained.layout.forEach(({ name }, i) => {
          g.output(`${component}:${name}`, grads[i]);
          bound[`${component}:${name}`] = this.#partial(component).array(name);
        });
        g.output(lossName(component), term);
      }
      return { graph: g.build(), options: { parameters, outputs: bound } };
    });
  }

  #partial(component: LossComponent): ParameterStore {
    let partial = this.#partials.get(component);
    if (partial === undefined) {
      partial = this.#options.trained.emptyLike();
      this.#partials.set(component, partial);
    }
    return partial;
  }
}

function lossName(component: LossComponent): string {
  return `loss.${component}.sum`;
}
