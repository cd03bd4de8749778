import type { JsonObject } from '../../../shared/json.ts';
import type { AnyEnvironment } from '../../environments/core/environment.ts';
import type { StoredEnvironment } from '../../persistence/stored-environment.ts';
import { Problem } from '../../problems.ts';
import { type BuildContext, buildEnvironment } from '../builder.ts';
import type { Definition } from '../definitions/definition.ts';

/** Custom environments by id: some are composed from others. */
export type StoredEnvironments = ReadonlyMap<string, StoredEnvironment>;

/** Name of an id's present definition and of all that it is composed from; it changes with every one of them. */
export function editionOf(all: StoredEnvironments, envId: string): string {
  const stored = all.get(envId);
  if (!stored) return '';
  const own = `${stored.registeredAt}.${stored.revision}`;
  return isComposed(stored.definition) ? `${own}/${editionOf(all, stored.definition.env_id)}` : own;
}

/** Environments composed from another one, directly or not; each after the one that it is composed from. */
export function dependentsOf(all: StoredEnvironments, envId: string): StoredEnvironment[] {
  const composed = [...all.values()].filter(({ kind }) => kind === 'composed');
  const directOf = (base: string) => composed.filter(({ definition }) => definition.env_id === base);
  const found = directOf(envId);
  for (const one of found) found.push(...directOf(one.envId).filter(other => !found.includes(other)));
  return found;
}

/** Whom the environment belongs to that a definition is composed from, as facts that are stored with it. */
export function baseFacts(definition: Definition, all: StoredEnvironments): JsonObject {
  const base = isComposed(definition) ? all.get(definition.env_id) : undefined;
  return base ? { base_owner: base.owner } : {};
}

/**
 * An id that was freed may be registered by anybody: nobody else may take the place of the environment that another one
 * is composed from.
 * @throws Error
 */
export function requireBaseOwner({ definition, facts }: StoredEnvironment, all: StoredEnvironments): void {
  const base = isComposed(definition) ? all.get(definition.env_id) : undefined;
  if (!base || facts.base_owner === undefined || facts.base_owner === base.owner) return;
  throw new Error(`${base.envId} belongs to ${base.owner} now, no longer to ${facts.base_owner}`);
}

/**
 * Looks whether what its owner has composed from an environment still fits it as changed. What others have composed does
 * not count: it would let them hold on to it.
 * @throws Problem `environment_in_use`
 */
export function refuseMisfits(
  changed: AnyEnvironment,
  owner: string,
  all: StoredEnvironments,
  context: BuildContext,
): void {
  const { registry } = context;
  const made = new Map<string, AnyEnvironment | undefined>([[changed.spec.id, changed]]);
  const get = (id: string): AnyEnvironment => {
    const environment = made.has(id) ? made.get(id) : registry.get(id);
    if (!environment) throw new Error(`${id} would no longer fit`);
    return environment;
  };
  const around = { ...context, registry: { ...registry, get } };
  for (const { envId, definition: given, facts, owner: theirs } of dependentsOf(all, changed.spec.id)) {
    const definition = given as unknown as Definition;
    try {
      made.set(envId, buildEnvironment({ envId, definition, owner: theirs }, facts, around));
    } catch (error) {
      made.set(envId, undefined);
      if (theirs !== owner) continue;
      throw new Problem(
        'environment_in_use',
        `${envId} is composed from ${changed.spec.id} and would no longer fit: ${(error as Error).message}`,
      );
    }
  }
}

/** @throws Problem `invalid_request` where an environment would be composed from itself */
export function refuseCircle(envId: string, definition: Definition, all: StoredEnvironments): void {
  const seen = [envId];
  for (let next: unknown = definition; isComposed(next); next = all.get(next.env_id)?.definition) {
    seen.push(next.env_id);
    if (next.env_id !== envId) continue;
    const detail = `an environment cannot be composed from itself: ${seen.join(' → ')}`;
    throw new Problem('invalid_request', detail, {
      violations: [{ pointer: '/definition/env_id', detail }],
    });
  }
}

function isComposed(definition: unknown): definition is { env_id: string } {
  return (definition as { kind?: unknown } | undefined)?.kind === 'composed';
}
