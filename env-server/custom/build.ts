import type { JsonObject } from '../../shared/json.ts';
import type { AnyEnvironment } from '../environments/environment.ts';
import type { Registry } from '../environments/registry.ts';
import { composedEnvironment } from './composed.ts';
import type { Definition } from './definition.ts';
import { tabularEnvironment } from './tabular/tabular.ts';

/** What custom environments are made with. */
export interface Workshop {
  readonly registry: Registry;
}

/**
 * Learns what an environment needs besides its definition; asked once, at registration, and stored.
 * @throws Problem
 */
export async function learnFacts(_definition: Definition, _workshop: Workshop): Promise<JsonObject> {
  return {};
}

/** @throws Problem `invalid_request` with JSON pointers to what is wrong with the definition */
export function buildEnvironment(
  envId: string,
  definition: Definition,
  _facts: JsonObject,
  workshop: Workshop,
): AnyEnvironment {
  switch (definition.kind) {
    case 'tabular':
      return tabularEnvironment(envId, definition);
    case 'composed':
      return composedEnvironment(envId, definition, workshop.registry);
    default:
      throw new Error(definition.kind);
  }
}
