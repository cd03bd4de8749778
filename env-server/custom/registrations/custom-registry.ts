import type { Logger } from 'pino';
import type { JsonObject } from '../../../shared/json.ts';
import type { AnyEnvironment } from '../../environments/core/environment.ts';
import type { StoredEnvironment } from '../../persistence/stored-environment.ts';
import { Problem } from '../../problems.ts';
import { type BuildContext, buildEnvironment, type OwnedDefinition } from '../builder.ts';
import type { Definition } from '../definitions/definition.ts';
import { Endpoint } from '../remote/endpoint.ts';

/** Default share of all custom environments that one token may own, as for the bytes of sessions. */
const CLIENT_SHARE = 3 / 4;
/** Seconds after which a retry may find a free place. */
const RETRY_AFTER_SECONDS = 60;

export interface RegistrationLimits {
  readonly maxCustomEnvironments: number;
  /** Limit of one token; 0 sets it to a share of all. */
  readonly maxCustomEnvironmentsPerClient: number;
  /** Empty where everybody is the same client, who then may have all. */
  readonly tokens: string;
}

/**
 * Refuses one environment more.
 * @param owners of the environments there are, one for each
 * @param owner of the new environment
 * @throws Problem `too_many_environments`
 */
export function requirePlace(limits: RegistrationLimits, owners: readonly string[], owner: string): void {
  const { maxCustomEnvironments } = limits;
  if (owners.length >= maxCustomEnvironments) {
    throw tooMany(`the server holds ${maxCustomEnvironments} custom environments, the most it may have`);
  }
  const ofClient = mostOfClient(limits);
  if (owners.filter(name => name === owner).length >= ofClient) {
    throw tooMany(`you have ${ofClient} custom environments, the most that one token may have`);
  }
}

function mostOfClient({
  maxCustomEnvironments,
  maxCustomEnvironmentsPerClient,
  tokens,
}: RegistrationLimits): number {
  if (maxCustomEnvironmentsPerClient > 0) return maxCustomEnvironmentsPerClient;
  if (tokens === '') return maxCustomEnvironments;
  return Math.max(1, Math.floor(maxCustomEnvironments * CLIENT_SHARE));
}

function tooMany(detail: string): Problem {
  return new Problem('too_many_environments', detail, { retryAfterSeconds: RETRY_AFTER_SECONDS });
}

/** Custom environments by id: some are composed from others. */
type StoredEnvironments = ReadonlyMap<string, StoredEnvironment>;

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
function requireBaseOwner({ definition, facts }: StoredEnvironment, all: StoredEnvironments): void {
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

/** The custom environments that a process knows of, offered in its registry as far as they can be made. */
export class CustomRegistry {
  readonly #context: BuildContext;
  readonly #log: Logger;
  readonly #stored = new Map<string, StoredEnvironment>();

  constructor(context: BuildContext, log: Logger) {
    this.#context = context;
    this.#log = log;
  }

  /** By id, those that could not be made as well. */
  get all(): StoredEnvironments {
    return this.#stored;
  }

  /** Offers the environments that a store holds now: adds new and changed ones, drops removed ones, and rebuilds those composed from either. */
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
   * Builds and offers environments. One that cannot be built is logged and left out, not removed from the store; requests
   * for it get an error that says so.
   */
  #offer(all: readonly StoredEnvironment[]): void {
    const { registry } = this.#context;
    // None may be made from what another one was before.
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

  /** Logs headers that cannot be decrypted. The environment is still offered, and its episodes report the fault. */
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
   * Offers an environment that is already built, and rebuilds those composed from it.
   * @param environment undefined where it cannot be made
   */
  put(stored: StoredEnvironment, environment: AnyEnvironment | undefined): void {
    const { envId } = stored;
    this.#stored.set(envId, stored);
    if (environment) this.#context.registry.register(environment);
    else this.#context.registry.disable(envId);
    this.#offer(dependentsOf(this.#stored, envId));
  }

  /** From now on neither it nor what is composed from it is offered. */
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
