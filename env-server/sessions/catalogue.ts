import type { JsonObject } from '../../shared/json.ts';
import type { AnyEnvironment } from '../environments/core/environment.ts';
import type { Registry } from '../environments/registry.ts';
import type { WrapperChoice } from '../wrappers/wrap.ts';
import { EnvironmentTally } from './tally.ts';
import { Variant } from './variant.ts';

/** Variants kept for the next session that asks for the same; sessions hold on to their own. */
const MOST_VARIANTS = 1000;
/** Variants whose description is longer are not kept, only used. */
const LONGEST_KEPT = 16 * 1024;

/** The environments on offer, and their variants, made once each. */
export class Catalogue {
  readonly #registry: Registry;
  readonly #variants = new Map<string, Variant>();
  readonly #tallies = new Map<string, EnvironmentTally>();

  constructor(registry: Registry) {
    this.#registry = registry;
  }

  /** @param after only those behind this id in the order of the list */
  list(after?: string): readonly AnyEnvironment[] {
    return this.#registry.list(after);
  }

  /** Whether this very environment is what its id stands for, not one that has replaced it. */
  offers(environment: AnyEnvironment): boolean {
    return this.#registry.find(environment.spec.id) === environment;
  }

  tallies(): Iterable<EnvironmentTally> {
    return this.#tallies.values();
  }

  /** Open sessions of an environment under any configuration. */
  sessionsOf(envId: string): number {
    return this.#tallies.get(envId)?.sessions ?? 0;
  }

  /** @throws UnknownEnvironment, InvalidConfig, Problem for an unknown wrapper */
  variant(envId: string, config: JsonObject = {}, wrappers: readonly WrapperChoice[] = []): Variant {
    const base = this.#registry.get(envId);
    const key = JSON.stringify([envId, config, wrappers]);
    const known = this.#variants.get(key);
    if (known && known.base === base) return known;
    const variant = new Variant(base, config, wrappers, this.#tally(envId));
    if (key.length > LONGEST_KEPT) return variant;
    if (this.#variants.size >= MOST_VARIANTS) {
      const [oldest] = this.#variants.keys();
      this.#variants.delete(oldest);
    }
    this.#variants.set(key, variant);
    return variant;
  }

  #tally(envId: string): EnvironmentTally {
    let tally = this.#tallies.get(envId);
    if (!tally) {
      tally = new EnvironmentTally(envId);
      this.#tallies.set(envId, tally);
    }
    return tally;
  }
}
