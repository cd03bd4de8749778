import type { AnyEnvironment } from '../../environments/core/environment.ts';
import type { StoredEnvironment } from '../../persistence/stored-environment.ts';
import { Problem } from '../../problems.ts';
import { type BuildContext, buildEnvironment } from '../builder.ts';
import type { Definition } from '../definitions/definition.ts';

/** Custom environments by id: some are composed from others. */
export type StoredEnvironments = ReadonlyMap<string, StoredEnvironment>;

/** Names the definition that an id stands for now, with all that it is composed from; another one after every change. */
export function editionOf(all: StoredEnvironments, envId: string): string {
  const stored = all.get(envId);
  if (!stored) return '';
  const own = `${stored.registeredAt}.${stored.revision}`;
  return isComposed(stored.definition) ? `${own}/${editionOf(all, stored.definition.env_id)}` : own;
}

/** What is composed from an environment directly. */
export function dependentsOf(all: StoredEnvironments, envId: string): StoredEnvironment[] {
  return [...all.values()].filter(
    ({ kind, definition }) => kind === 'composed' && definition.env_id === envId,
  );
}

/**
 * Environments composed from this one, directly or not, made again around it.
 * @throws Problem `environment_in_use` where one no longer fits
 */
export function rebuildAround(
  changed: AnyEnvironment,
  all: StoredEnvironments,
  context: BuildContext,
): AnyEnvironment[] {
  const { registry } = context;
  const made = new Map([[changed.spec.id, changed]]);
  const around = {
    ...context,
    registry: { ...registry, get: (id: string) => made.get(id) ?? registry.get(id) },
  };
  const queue = dependentsOf(all, changed.spec.id);
  for (const { envId, definition, facts } of queue) {
    try {
      made.set(envId, buildEnvironment(envId, definition as unknown as Definition, facts, around));
    } catch (error) {
      throw new Problem(
        'environment_in_use',
        `${envId} is composed from ${changed.spec.id} and would no longer fit: ${(error as Error).message}`,
      );
    }
    queue.push(...dependentsOf(all, envId));
  }
  made.delete(changed.spec.id);
  return [...made.values()];
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
