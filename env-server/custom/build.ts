import type { JsonObject } from '../../shared/json.ts';
import type { AnyEnvironment } from '../environments/environment.ts';
import type { Registry } from '../environments/registry.ts';
import { composedEnvironment } from './composed.ts';
import type { Definition } from './definition.ts';
import { invalidDefinition } from './fault.ts';
import type { RemoteDefinition } from './remote/definition.ts';
import { Endpoint, type RemoteNetwork } from './remote/endpoint.ts';
import { learnOpenEnv, type OpenEnvFacts, openEnvEnvironment } from './remote/openenv.ts';
import { learnRagen, type RagenFacts, ragenEnvironment } from './remote/ragen.ts';
import { webhookEnvironment } from './remote/webhook.ts';
import { LONGEST_SOURCE, sourceOf } from './script/definition.ts';
import type { ScriptPool } from './script/pool.ts';
import { type ScriptFacts, scriptEnvironment } from './script/script.ts';
import { tabularEnvironment } from './tabular/tabular.ts';

/** What custom environments are made with. */
export interface Workshop {
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
  workshop: Workshop,
): Promise<JsonObject> {
  switch (definition.kind) {
    case 'script':
      return learnScript(envId, sourceOf(definition), workshop.scripts);
    case 'remote':
      return learnRemote(envId, definition, workshop.network);
    default:
      return {};
  }
}

async function learnScript(envId: string, source: string, scripts: ScriptPool): Promise<JsonObject> {
  if (source.length > LONGEST_SOURCE) {
    throw invalidDefinition(
      '/source',
      `has ${source.length} characters; at most ${LONGEST_SOURCE} are taken`,
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
  }
}

/** @throws Problem `invalid_request` with JSON pointers to what is wrong with the definition */
export function buildEnvironment(
  envId: string,
  definition: Definition,
  facts: JsonObject,
  workshop: Workshop,
): AnyEnvironment {
  switch (definition.kind) {
    case 'tabular':
      return tabularEnvironment(envId, definition);
    case 'script':
      return scriptEnvironment(envId, definition, facts as ScriptFacts, workshop.scripts);
    case 'composed':
      return composedEnvironment(envId, definition, workshop.registry);
    case 'remote':
      return buildRemote(envId, definition, facts, workshop.network);
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
  }
}
