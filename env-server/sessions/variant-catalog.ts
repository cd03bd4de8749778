import type { JsonObject } from '../../shared/json.ts';
import { RecentMap } from '../../shared/recent-map.ts';
import { remembered } from '../../shared/remembered.ts';
import type { AnyEnvironment } from '../environments/core/environment.ts';
import type { Registry } from '../environments/registry.ts';
import type { WrapperChoice } from '../wrappers/wrap.ts';
import { EnvironmentCounters, Variant } from './episodes/variant.ts';

/** Variants kept for later sessions with the same settings; open sessions keep their own alive. */
const MAX_VARIANTS = 1000;
/** Longest description of a variant that is kept; larger ones are used once. */
const MAX_KEPT_LENGTH = 16 * 1024;

/** The registered environments and their variants, each made once. */
export class VariantCatalog {
  readonly #registry: Registry;
  readonly #variants = new RecentMap<string, Variant>(MAX_VARIANTS);
  readonly #counters = new Map<string, EnvironmentCounters>();

  constructor(registry: Registry) {
    this.#registry = registry;
  }

  /** @param after only those after this id in the order of the list */
  list(after?: string): readonly AnyEnvironment[] {
    return this.#registry.list(after);
  }

  /** True if this very environment is registered under its id, and has not been replaced. */
  offers(environment: AnyEnvironment): boolean {
    return this.#registry.find(environment.spec.id) === environment;
  }

  allCounters(): Iterable<EnvironmentCounters> {
    return this.#counters.values();
  }

  /** Number of open sessions of an environment, over all configurations. */
  sessionsOf(envId: string): number {
    return this.#counters.get(envId)?.sessions ?? 0;
  }

  /** @throws UnknownEnvironment, InvalidConfig, Problem for an unknown wrapper */
  variant(envId: string, config: JsonObject = {}, wrappers: readonly WrapperChoice[] = []): Variant {
    const base = this.#registry.get(envId);
    const key = JSON.stringify([envId, config, wrappers]);
    const known = this.#variants.get(key);
    if (known && known.base === base) return known;
    const variant = new Variant(base, config, wrappers, this.#countersOf(envId));
    if (key.length > MAX_KEPT_LENGTH) return variant;
    this.#variants.set(key, variant);
    return variant;
  }

  #countersOf(envId: string): EnvironmentCounters {
    return remembered(this.#counters, envId, () => new EnvironmentCounters(envId));
  }
}
