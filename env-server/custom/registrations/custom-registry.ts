import type { Logger } from 'pino';
import type { JsonObject } from '../../../shared/json.ts';
import type { AnyEnvironment } from '../../environments/core/environment.ts';
import type { StoredEnvironment } from '../../persistence/environment-rows.ts';
import { invalidRequest, Problem } from '../../problems.ts';
import { mostOfClient } from '../../sessions/limits/admission.ts';
import { type BuildContext, buildEnvironment, type OwnedDefinition } from '../builder.ts';
import type { Definition } from '../definitions/definition.ts';
import { Endpoint } from '../remote/endpoint.ts';

export interface RegistrationLimits {
  readonly maxCustomEnvironments: number;
  /** Limit of one token; 0 sets it to a share of all. */
  readonly maxCustomEnvironmentsPerClient: number;
  /** Empty where all clients are the same, who then may own all. */
  readonly tokens: string;
}

/**
 * Checks that one more environment is allowed.
 * @param owners the owner of each existing environment
 * @param owner of the new environment
 * @throws Problem `too_many_environments`
 */
export function requirePlace(limits: RegistrationLimits, owners: readonly string[], owner: string): void {
  const { maxCustomEnvironments, maxCustomEnvironmentsPerClient, tokens } = limits;
  if (owners.length >= maxCustomEnvironments) {
    throw tooMany(`the server holds ${maxCustomEnvironments} custom environments, the most it may have`);
  }
  const ofClient = mostOfClient(maxCustomEnvironments, maxCustomEnvironmentsPerClient, tokens);
  if (owners.filter(name => name === owner).length >= ofClient) {
    throw tooMany(`you have ${ofClient} custom environments, the most that one token may have`);
  }
}

function tooMany(detail: string): Problem {
  return new Problem('too_many_environments', detail);
}

/** Custom environments by id; some are composed from others. */
type StoredEnvironments = ReadonlyMap<string, StoredEnvironment>;

/** Name of an id's current definition with everything it is composed from; it changes with any of them. */
export function editionOf(all: StoredEnvironments, envId: string): string {
  const stored = all.get(envId);
  if (!stored) return '';
  const own = `${stored.registeredAt}.${stored.revision}`;
  return isComposed(stored.definition) ? `${own}/${editionOf(all, stored.definition.env_id)}` : own;
}

/** Environments composed from another one, directly or not; each after its base. */
export function dependentsOf(all: StoredEnvironments, envId: string): StoredEnvironment[] {
  const composed = [...all.values()].filter(({ kind }) => kind === 'composed');
  const directOf = (base: string) => composed.filter(({ definition }) => definition.env_id === base);
  const found = directOf(envId);
  for (const one of found) found.push(...directOf(one.envId).filter(other => !found.includes(other)));
  return found;
}

/** Owner of the environment that a definition is composed from, stored with its facts. */
export function baseFacts(definition: Definition, all: StoredEnvironments): JsonObject {
  const base = isComposed(definition) ? all.get(definition.env_id) : undefined;
  return base ? { base_owner: base.owner } : {};
}

/**
 * A freed id may be registered by anyone, but nobody else may replace the base of another environment.
 * @throws Error
 */
function requireBaseOwner({ definition, facts }: StoredEnvironment, all: StoredEnvironments): void {
  const base = isComposed(definition) ? all.get(definition.env_id) : undefined;
  if (!base || facts.base_owner === undefined || facts.base_owner === base.owner) return;
  throw new Error(`${base.envId} belongs to ${base.owner} now, no longer to ${facts.base_owner}`);
}

/**
 * Checks that the owner's compositions still fit a changed environment. Other owners' compositions do not count,
 * because they would let others block the change.
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
    throw invalidRequest(
      '/definition/env_id',
      `an environment cannot be composed from itself: ${seen.join(' → ')}`,
    );
  }
}

function isComposed(definition: unknown): definition is { env_id: string } {
  return (definition as { kind?: unknown } | undefined)?.kind === 'composed';
}

/** The custom environments known to a process, added to its registry where they can be built. */
export class CustomRegistry {
  readonly #context: BuildContext;
  readonly #log: Logger;
  readonly #stored = new Map<string, StoredEnvironment>();

  constructor(context: BuildContext, log: Logger) {
    this.#context = context;
    this.#log = log;
  }

  /** By id, including those that could not be built. */
  get all(): StoredEnvironments {
    return this.#stored;
  }

  /**
   * Synchronizes with a store: adds new and changed environments, drops removed ones, and rebuilds everything composed
   * from either.
   */
  follow(rows: readonly StoredEnvironment[]): void {
    const { registry } = this.#context;
    const present = new Set(rows.map(({ envId }) => envId));
    const affected: StoredEnvironment[] = [];
    for (const [envId, gone] of this.#stored) {
      if (present.has(envId)) continue;
      this.#stored.delete(envId);
      registry.remove(envId);
      affected.push(gone);
    }
    for (const row of rows) {
      if (isSame(this.#stored.get(row.envId), row)) continue;
      this.#stored.set(row.envId, row);
      affected.push(row);
    }
    for (const { envId } of affected)
      affected.push(...dependentsOf(this.#stored, envId).filter(one => !affected.includes(one)));
    this.#offer(affected.filter(({ envId }) => present.has(envId)));
  }

  /**
   * Builds and adds environments. One that cannot be built is logged and left out, not removed from the store; requests
   * for it get an error with the reason.
   */
  #offer(all: readonly StoredEnvironment[]): void {
    const { registry } = this.#context;
    // None may be built from another one's earlier version.
    for (const { envId } of all) if (!registry.isBuiltIn(envId)) registry.disable(envId);
    const failures = new Map<StoredEnvironment, unknown>();
    // One may be composed from another that comes later.
    let waiting = all;
    for (let before = -1; waiting.length !== before; ) {
      before = waiting.length;
      waiting = waiting.filter(stored => {
        try {
          registry.register(this.#build(stored));
          return false;
        } catch (error) {
          failures.set(stored, error);
          return true;
        }
      });
    }
    for (const stored of waiting) {
      const { envId } = stored;
      this.#log.error(
        { err: failures.get(stored), env_id: envId },
        `${envId} was registered but cannot be made any more`,
      );
    }
  }

  #build(stored: StoredEnvironment): AnyEnvironment {
    const { envId, owner } = stored;
    const definition = stored.definition as unknown as Definition;
    requireBaseOwner(stored, this.#stored);
    this.#warnOfHeaders({ envId, definition, owner });
    return buildEnvironment({ envId, definition, owner }, stored.facts, this.#context);
  }

  /** Logs headers that cannot be decrypted. The environment is still added, and its episodes report the fault. */
  #warnOfHeaders({ envId, definition, owner }: OwnedDefinition): void {
    if (definition.kind !== 'remote') return;
    try {
      // Its getter reads them.
      void new Endpoint(envId, definition, { network: this.#context.network, owner }).headers;
    } catch (error) {
      this.#log.error({ env_id: envId }, (error as Error).message);
    }
  }

  /**
   * Adds a built environment, and rebuilds those composed from it.
   * @param environment undefined where it cannot be built
   */
  put(stored: StoredEnvironment, environment: AnyEnvironment | undefined): void {
    const { envId } = stored;
    this.#stored.set(envId, stored);
    if (environment) this.#context.registry.register(environment);
    else this.#context.registry.disable(envId);
    this.#offer(dependentsOf(this.#stored, envId));
  }

  /** Removes it and everything composed from it. */
  take(envId: string): void {
    if (!this.#stored.delete(envId)) return;
    this.#context.registry.remove(envId);
    this.#offer(dependentsOf(this.#stored, envId));
  }
}

function isSame(known: StoredEnvironment | undefined, row: StoredEnvironment): boolean {
  return (
    known?.revision === row.revision &&
    known.registeredAt === row.registeredAt &&
    known.replacedAt === row.replacedAt
  );
}
