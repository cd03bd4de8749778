import type { JsonObject } from '../../shared/json.ts';
import { atOnce, inSlices, type Sliced } from '../../shared/slices.ts';
import type { AnyEnvironment } from '../environments/core/environment.ts';
import type { Registry } from '../environments/registry.ts';
import { composedEnvironment } from './composed.ts';
import type { Definition } from './definitions/definition.ts';
import { invalidDefinition } from './definitions/fault.ts';
import type { RemoteDefinition } from './remote/definition.ts';
import { Endpoint } from './remote/endpoint.ts';
import type { RemoteNetwork } from './remote/network.ts';
import { learnOpenEnv, type OpenEnvFacts, openEnvEnvironment } from './remote/openenv.ts';
import { learnOrs, type OrsFacts, orsEnvironment } from './remote/ors.ts';
import { learnRagen, type RagenFacts, ragenEnvironment } from './remote/ragen.ts';
import { webhookEnvironment } from './remote/webhook.ts';
import { MAX_SOURCE_LENGTH, sourceOf } from './script/definition.ts';
import type { ScriptPool } from './script/pool.ts';
import { type ScriptFacts, scriptEnvironment } from './script/script.ts';
import type { TabularDefinition } from './tabular/definition.ts';
import { tabularEnvironment } from './tabular/tabular.ts';

/** What custom environments are made with. */
export interface BuildContext {
  readonly registry: Registry;
  readonly scripts: ScriptPool;
  readonly network: RemoteNetwork;
}

/**
 * Learns what an environment needs besides its definition; asked once, at registration, and stored.
 * @throws Problem
 */
export async function learnFacts(
  envId: string,
  definition: Definition,
  context: BuildContext,
): Promise<JsonObject> {
  switch (definition.kind) {
    case 'script':
      return learnScript(envId, sourceOf(definition), context.scripts);
    case 'remote':
      return learnRemote(envId, definition, context.network);
    default:
      return {};
  }
}

async function learnScript(envId: string, source: string, scripts: ScriptPool): Promise<JsonObject> {
  if (source.length > MAX_SOURCE_LENGTH) {
    throw invalidDefinition(
      '/source',
      `has ${source.length} characters; at most ${MAX_SOURCE_LENGTH} are taken`,
    );
  }
  try {
    return await scripts.load(scripts.script(envId, source));
  } catch (error) {
    throw invalidDefinition('/source', (error as Error).message);
  }
}

async function learnRemote(
  envId: string,
  definition: RemoteDefinition,
  network: RemoteNetwork,
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
  envId: string,
  definition: Definition,
  facts: JsonObject,
  context: BuildContext,
): Sliced<BuiltEnvironment> {
  if (definition.kind === 'tabular') return yield* tabularEnvironment(envId, definition);
  return { environment: buildOther(envId, definition, facts, context), warnings: [] };
}

function buildOther(
  envId: string,
  definition: Exclude<Definition, TabularDefinition>,
  facts: JsonObject,
  context: BuildContext,
): AnyEnvironment {
  switch (definition.kind) {
    case 'script':
      return scriptEnvironment(envId, definition, facts as ScriptFacts, context.scripts);
    case 'composed':
      return composedEnvironment(envId, definition, context.registry);
    case 'remote':
      return buildRemote(envId, definition, facts, context.network);
  }
}

function buildRemote(
  envId: string,
  definition: RemoteDefinition,
  facts: JsonObject,
  network: RemoteNetwork,
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
