import type { JsonObject } from '../../shared/json.ts';
import { RecentMap } from '../../shared/recent-map.ts';
import type { AnyEnvironment } from '../environments/core/environment.ts';
import type { Registry } from '../environments/registry.ts';
import type { WrapperChoice } from '../wrappers/wrap.ts';
import { EnvironmentCounters, Variant } from './episodes/variant.ts';

/** Variants kept for the next session that asks for the same; sessions hold on to their own. */
const MAX_VARIANTS = 1000;
/** Greatest length of the description of a variant that is kept; others are only used. */
const MAX_KEPT_LENGTH = 16 * 1024;

/** The environments on offer, and their variants, made once each. */
export class VariantCatalog {
  readonly #registry: Registry;
  readonly #variants = new RecentMap<string, Variant>(MAX_VARIANTS);
  readonly #counters = new Map<string, EnvironmentCounters>();

  constructor(registry: Registry) {
    this.#registry = registry;
  }

  /** @param after only those behind this id in the order of the list */
  list(after?: string): readonly AnyEnvironment[] {
    return this.#registry.list(after);
  }

  /** True if this very environment is registered under its id, not one that has replaced it. */
  offers(environment: AnyEnvironment): boolean {
    return this.#registry.find(environment.spec.id) === environment;
  }

  allCounters(): Iterable<EnvironmentCounters> {
    return this.#counters.values();
  }

  /** Open sessions of an environment under any configuration. */
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
    let counters = this.#counters.get(envId);
    if (!counters) {
      counters = new EnvironmentCounters(envId);
      this.#counters.set(envId, counters);
    }
    return counters;
  }
}
