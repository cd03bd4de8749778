import { adaptedWeights, doraFactorName, outputFactors } from '../../models/adapters/dora.ts';
import type { DecoderConfig } from '../../models/config.ts';
import { layerPrefix } from '../../models/parameters.ts';
import { GraphBuilder } from '../../tensor/graph/graph.ts';
import {
  joinParameters,
  type ParameterSource,
  ParameterStore,
} from '../../tensor/runtime/parameter-store.ts';
import type { Executable, Runtime } from '../../tensor/runtime/runtime.ts';

/**
 * DoRA's factors m / ‖V‖ of all linear layers that it adapts, as parameters: they are computed once for each version of the
 * weights, because they take a product with every weight. Each layer of the model is a program, so that a quantized base is
 * unpacked one layer at a time.
 */
export class DoraFactors {
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

  /** The weights are others from now on. */
  weightsChanged(): void {
    this.#current = false;
  }

  /** Brings the factors up with the weights. */
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
