import type { TSchema } from 'typebox';
import type { JsonObject } from '../../shared/json.ts';
import { type AnyEnvironment, InvalidConfig } from '../environments/core/environment.ts';
import { resolveConfig, stepLimit } from '../environments/core/settings.ts';
import { type Registry, UnknownEnvironment } from '../environments/registry.ts';
import { Problem } from '../problems.ts';
import { wrap } from '../wrappers/wrap.ts';
import { aboutSpec } from './definitions/about.ts';
import type { ComposedDefinition } from './definitions/definition.ts';
import { invalidDefinition } from './definitions/fault.ts';

/** Wrappers and environments around an environment that is not composed; each is a call within a call and a level of the state. */
const MAX_LAYERS = 32;
const layers = new WeakMap<AnyEnvironment, number>();

/**
 * An existing environment under a new id, with other configuration defaults and wrappers. Sessions may still
 * configure it and wrap it further.
 * @throws Problem `invalid_request` for an unknown environment, or configuration and wrappers that do not fit it
 */
export function composedEnvironment(
  envId: string,
  definition: ComposedDefinition,
  registry: Registry,
): AnyEnvironment {
  const { config = {}, wrappers = [] } = definition;
  const base = baseOf(definition.env_id, registry);
  const depth = (layers.get(base) ?? 0) + wrappers.length + 1;
  if (depth > MAX_LAYERS) {
    throw invalidDefinition(
      '/env_id',
      `${base.spec.id} is composed itself: with all their wrappers these are ${depth} layers, at most ${MAX_LAYERS} are taken`,
    );
  }
  const wrapped = wrapping(() => wrap(base, wrappers));
  const defaults = configuring(() => resolveConfig(wrapped, config));
  const { knownOptimum, rewardThreshold, ...spec } = wrapped.spec;
  const unchanged = wrappers.length === 0 && Object.keys(config).length === 0;
  const names = wrappers.map(({ name }) => `\`${name}\``).join(', ');
  const summary = `\`${base.spec.id}\`${names && ` with ${names}`}.\n\n${base.spec.description}`;
  const environment: AnyEnvironment = {
    ...wrapped,
    spec: {
      ...spec,
      ...(unchanged && { knownOptimum, rewardThreshold }),
      ...aboutSpec(envId, 'composed', { ...definition, title: definition.title ?? base.spec.title }, summary),
      configSchema: withDefaults(spec.configSchema, defaults),
      maxEpisodeSteps: stepLimit(spec, defaults),
    },
  };
  layers.set(environment, depth);
  return environment;
}

function baseOf(id: string, registry: Registry): AnyEnvironment {
  try {
    return registry.get(id);
  } catch (error) {
    if (error instanceof UnknownEnvironment) throw invalidDefinition('/env_id', error.message);
    throw error;
  }
}

function configuring<T>(work: () => T): T {
  try {
    return work();
  } catch (error) {
    if (error instanceof InvalidConfig) throw invalidDefinition(`/config${error.pointer}`, error.message);
    throw error;
  }
}

/** `wrap` points at `/wrappers/…` of a request. */
function wrapping<T>(work: () => T): T {
  try {
    return work();
  } catch (error) {
    const violation = error instanceof Problem ? error.violations?.[0] : undefined;
    if (violation) throw invalidDefinition(violation.pointer, violation.detail);
    throw error;
  }
}

/** The schema of an object with other defaults for its properties. */
function withDefaults(schema: TSchema, defaults: JsonObject): TSchema {
  const { properties } = schema as TSchema & { properties?: { readonly [name: string]: TSchema } };
  if (!properties) return schema;
  const changed = Object.entries(properties).map(([name, property]) =>
    Object.hasOwn(defaults, name) ? [name, withDefault(property, defaults[name])] : [name, property],
  );
  return likewise(schema, { properties: Object.fromEntries(changed) });
}

function withDefault(property: TSchema, value: unknown): TSchema {
  return likewise(property, { default: value });
}

/** A copy of a schema, its hidden members included, with some keys changed. */
function likewise(schema: TSchema, changes: object): TSchema {
  const copy = Object.create(Object.getPrototypeOf(schema), Object.getOwnPropertyDescriptors(schema));
  for (const [key, value] of Object.entries(changes)) {
    Object.defineProperty(copy, key, { value, enumerable: true, writable: true, configurable: true });
  }
  return copy;
}
