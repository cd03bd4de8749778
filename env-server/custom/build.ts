import type { JsonObject } from '../../shared/json.ts';
import type { AnyEnvironment } from '../environments/environment.ts';
import type { Registry } from '../environments/registry.ts';
import { composedEnvironment } from './composed.ts';
import type { Definition } from './definition.ts';
import { invalidDefinition } from './fault.ts';
import type { ScriptPool } from './script/pool.ts';
import { type ScriptFacts, scriptEnvironment } from './script/script.ts';
import { tabularEnvironment } from './tabular/tabular.ts';

/** What custom environments are made with. */
export interface Workshop {
  readonly registry: Registry;
  readonly scripts: ScriptPool;
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
      return learnScript(envId, definition.source, workshop.scripts);
    default:
      return {};
  }
}

async function learnScript(envId: string, source: string, scripts: ScriptPool): Promise<JsonObject> {
  try {
    return await scripts.load(scripts.script(envId, source));
  } catch (error) {
    throw invalidDefinition('/source', (error as Error).message);
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
    default:
      throw new Error(definition.kind);
  }
}
