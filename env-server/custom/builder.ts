import type { JsonObject } from '../../shared/json.ts';
import { atOnce, inSlices, type Sliced } from '../../shared/slices.ts';
import type { AnyEnvironment } from '../environments/core/environment.ts';
import type { Registry } from '../environments/registry.ts';
import { composedEnvironment } from './composed.ts';
import type { Definition } from './definitions/definition.ts';
import { invalidDefinition } from './definitions/fault.ts';
import type { RemoteDefinition } from './remote/definition.ts';
import { Endpoint } from './remote/endpoint.ts';
import type { OwnedNetwork, RemoteNetwork } from './remote/network.ts';
import { learnOpenEnv, type OpenEnvFacts, openEnvEnvironment } from './remote/openenv.ts';
import { learnOrs, type OrsFacts, orsEnvironment } from './remote/ors.ts';
import { learnRagen, type RagenFacts, ragenEnvironment } from './remote/ragen.ts';
import { webhookEnvironment } from './remote/webhook.ts';
import { MAX_SOURCE_LENGTH, sourceOf } from './script/definition.ts';
import type { ScriptPool, ScriptSource } from './script/pool.ts';
import { type ScriptFacts, scriptEnvironment } from './script/script.ts';
import { tabularEnvironment } from './tabular/tabular.ts';

/** Context in which custom environments are built. */
export interface BuildContext {
  readonly registry: Registry;
  readonly scripts: ScriptPool;
  readonly network: RemoteNetwork;
}

/** A definition, with the owner that its scripts and requests take turns as. */
export interface OwnedDefinition {
  readonly envId: string;
  readonly definition: Definition;
  readonly owner: string;
}

/**
 * Learns what an environment needs besides its definition; asked once, at registration, and stored.
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
      return learnRemote(envId, definition, { network, owner });
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

async function learnRemote(
  envId: string,
  definition: RemoteDefinition,
  network: OwnedNetwork,
): Promise<JsonObject> {
  switch (definition.protocol) {
    case 'webhook':
      await new Endpoint(envId, definition, network).checkAddress();
      return {};
    case 'ragen':
      return learnRagen(envId, definition, network);
    case 'openenv':
      return learnOpenEnv(envId, definition, network);
    case 'ors':
      return learnOrs(envId, definition, network);
  }
}

/** An environment made from its definition, and what is odd about that but may be meant so. */
export interface BuiltEnvironment {
  readonly environment: AnyEnvironment;
  readonly warnings: readonly string[];
}

/** @throws Problem `invalid_request` with JSON pointers to what is wrong with the definition */
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
    case 'remote':
      return made(buildRemote(envId, definition, facts, { network, owner }));
  }
}

function buildRemote(
  envId: string,
  definition: RemoteDefinition,
  facts: JsonObject,
  network: OwnedNetwork,
): AnyEnvironment {
  switch (definition.protocol) {
    case 'webhook':
      return webhookEnvironment(envId, definition, network);
    case 'ragen':
      return ragenEnvironment(envId, definition, facts as RagenFacts, network);
    case 'openenv':
      return openEnvEnvironment(envId, definition, facts as OpenEnvFacts, network);
    case 'ors':
      return orsEnvironment(envId, definition, facts as OrsFacts, network);
  }
}
