import type { TSchema } from 'typebox';
import type { JsonObject } from '../../shared/json.ts';
import { atOnce, inSlices, type Sliced } from '../../shared/slices.ts';
import { type AnyEnvironment, InvalidConfig } from '../environments/core/environment.ts';
import { resolveConfig, stepLimit } from '../environments/core/settings.ts';
import { type Registry, UnknownEnvironment } from '../environments/registry.ts';
import { Problem } from '../problems.ts';
import { wrap } from '../wrappers/wrap.ts';
import {
  type ComposedDefinition,
  type Definition,
  MAX_SOURCE_LENGTH,
  type RemoteDefinition,
  sourceOf,
} from './definitions/definition.ts';
import { aboutSpec } from './definitions/definition-parts.ts';
import { invalidDefinition } from './definitions/fault.ts';
import { Endpoint } from './remote/endpoint.ts';
import type { OwnedNetwork, RemoteNetwork } from './remote/network.ts';
import { learnOpenEnv, openEnvEnvironment } from './remote/openenv.ts';
import { learnOrs, orsEnvironment } from './remote/ors.ts';
import { learnRagen, ragenEnvironment } from './remote/ragen.ts';
import { webhookEnvironment } from './remote/webhook.ts';
import type { ScriptPool, ScriptSource } from './script/pool.ts';
import { type ScriptFacts, scriptEnvironment } from './script/script.ts';
import { tabularEnvironment } from './tabular/tabular.ts';

/** Most layers of wrappers and composed environments: each is a nested call and a level of the state. */
const MAX_LAYERS = 32;
const layers = new WeakMap<AnyEnvironment, number>();

/**
 * An existing environment under a new id, with other configuration defaults and wrappers. Sessions may still configure
 * it and wrap it further.
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

/** `wrap` refers to `/wrappers/…` of a request. */
function wrapping<T>(work: () => T): T {
  try {
    return work();
  } catch (error) {
    const violation = error instanceof Problem ? error.violations?.[0] : undefined;
    if (violation) throw invalidDefinition(violation.pointer, violation.detail);
    throw error;
  }
}

/** An object schema with other defaults for its properties. */
function withDefaults(schema: TSchema, defaults: JsonObject): TSchema {
  const { properties } = schema as TSchema & { properties?: { readonly [name: string]: TSchema } };
  if (!properties) return schema;
  const changed = Object.entries(properties).map(([name, property]) =>
    Object.hasOwn(defaults, name)
      ? [name, likewise(property, { default: defaults[name] })]
      : [name, property],
  );
  return likewise(schema, { properties: Object.fromEntries(changed) });
}

/** A copy of a schema, hidden properties included, with some keys changed. */
function likewise(schema: TSchema, changes: object): TSchema {
  const copy = Object.create(Object.getPrototypeOf(schema), Object.getOwnPropertyDescriptors(schema));
  for (const [key, value] of Object.entries(changes)) {
    Object.defineProperty(copy, key, { value, enumerable: true, writable: true, configurable: true });
  }
  return copy;
}

/** Context in which custom environments are built. */
export interface BuildContext {
  readonly registry: Registry;
  readonly scripts: ScriptPool;
  readonly network: RemoteNetwork;
}

/** A definition, with the owner charged for its scripts and requests. */
export interface OwnedDefinition {
  readonly envId: string;
  readonly definition: Definition;
  readonly owner: string;
}

/**
 * Asks the service for facts that the definition lacks; done once, at registration, and stored.
 * @throws Problem
 */
export async function learnFacts(
  { envId, definition, owner }: OwnedDefinition,
  { scripts, network }: BuildContext,
): Promise<JsonObject> {
  switch (definition.kind) {
    case 'script':
      return learnScript({ name: envId, source: sourceOf(definition), owner }, scripts);
    case 'remote':
      return ADAPTERS[definition.protocol].learn(envId, definition as never, { network, owner });
    default:
      return {};
  }
}

async function learnScript(script: ScriptSource, scripts: ScriptPool): Promise<JsonObject> {
  const { source } = script;
  if (source.length > MAX_SOURCE_LENGTH) {
    throw invalidDefinition(
      '/source',
      `has ${source.length} characters; at most ${MAX_SOURCE_LENGTH} are taken`,
    );
  }
  try {
    return await scripts.load(scripts.script(script));
  } catch (error) {
    throw invalidDefinition('/source', (error as Error).message);
  }
}

/** Adapter of a protocol: it asks services for facts, and makes environments of them. */
interface RemoteAdapter {
  learn(envId: string, definition: never, network: OwnedNetwork): Promise<JsonObject>;
  build(envId: string, definition: never, facts: never, network: OwnedNetwork): AnyEnvironment;
}

const ADAPTERS: { readonly [protocol in RemoteDefinition['protocol']]: RemoteAdapter } = {
  webhook: {
    async learn(envId, definition, network) {
      await new Endpoint(envId, definition, network).checkAddress();
      return {};
    },
    build: (envId, definition, _facts, network) => webhookEnvironment(envId, definition, network),
  },
  ragen: { learn: learnRagen, build: ragenEnvironment },
  openenv: { learn: learnOpenEnv, build: openEnvEnvironment },
  ors: { learn: learnOrs, build: orsEnvironment },
};

/** An environment made from its definition, with warnings about what may be unintended. */
export interface BuiltEnvironment {
  readonly environment: AnyEnvironment;
  readonly warnings: readonly string[];
}

/** @throws Problem `invalid_request` with JSON pointers to the definition's faults */
export function buildEnvironment(...parts: Parameters<typeof building>): AnyEnvironment {
  return atOnce(building(...parts)).environment;
}

/**
 * Like {@link buildEnvironment}, in slices.
 * @throws Problem `invalid_request`
 */
export function buildInSlices(...parts: Parameters<typeof building>): Promise<BuiltEnvironment> {
  return inSlices(building(...parts));
}

function* building(
  { envId, definition, owner }: OwnedDefinition,
  facts: JsonObject,
  { registry, scripts, network }: BuildContext,
): Sliced<BuiltEnvironment> {
  const made = (environment: AnyEnvironment): BuiltEnvironment => ({ environment, warnings: [] });
  switch (definition.kind) {
    case 'tabular':
      return yield* tabularEnvironment(envId, definition);
    case 'script':
      return made(scriptEnvironment(envId, definition, facts as ScriptFacts, owner, scripts));
    case 'composed':
      return made(composedEnvironment(envId, definition, registry));
    case 'remote': {
      const { build } = ADAPTERS[definition.protocol];
      return made(build(envId, definition as never, facts as never, { network, owner }));
    }
  }
}
