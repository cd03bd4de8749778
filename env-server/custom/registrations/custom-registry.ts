import type { Logger } from 'pino';
import type { AnyEnvironment } from '../../environments/core/environment.ts';
import type { StoredEnvironment } from '../../persistence/stored-environment.ts';
import { type BuildContext, buildEnvironment, type OwnedDefinition } from '../builder.ts';
import type { Definition } from '../definitions/definition.ts';
import { Endpoint } from '../remote/endpoint.ts';
import { dependentsOf, requireBaseOwner, type StoredEnvironments } from './compositions.ts';

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
