import { hash } from 'node:crypto';
import type { Logger } from 'pino';
import type { JsonObject } from '../../../shared/json.ts';
import type { CheckReport } from '../../environments/core/checker/play.ts';
import { ENVIRONMENT_ID } from '../../environments/core/environment.ts';
import type { MaybePromise } from '../../environments/core/maybe-promise.ts';
import { UnknownEnvironment } from '../../environments/registry.ts';
import type {
  AuditAction,
  AuditEntry,
  AuditPage,
  StoredEnvironment,
} from '../../persistence/environment-rows.ts';
import { storageFaultOf } from '../../persistence/persistence-health.ts';
import type { Store } from '../../persistence/store.ts';
import { invalidRequest, Problem } from '../../problems.ts';
import type { Principal } from '../../sessions/principal.ts';
import type { BuildContext } from '../builder.ts';
import type { Definition } from '../definitions/definition.ts';
import { hasLiteralHeaders, withoutSecrets } from '../remote/secrets.ts';
import {
  baseFacts,
  CustomRegistry,
  dependentsOf,
  editionOf,
  type RegistrationLimits,
  refuseCircle,
  refuseMisfits,
  requirePlace,
} from './custom-registry.ts';
import { Trials } from './trials.ts';

/** Outcome of a permitted attempt. */
const ACCEPTED = 'accepted';
/** Characters kept of a requested kind and environment id. */
const MAX_KIND_LENGTH = 32;
const MAX_ID_LENGTH = 128;

/** A client's attempt to change an environment. */
interface AuditedAttempt {
  readonly principal: Principal;
  readonly action: AuditAction;
  readonly envId: string;
  /** As received, of any type. */
  readonly definition: unknown;
}

/** The audit record of registrations, replacements, removals and refused attempts, in the store and in the log. */
class AuditTrail {
  readonly #parts: RegistrationParts;

  constructor(parts: RegistrationParts) {
    this.#parts = parts;
  }

  /** Entries of all servers that share the store, newest first. */
  page(limit: number, before?: string): MaybePromise<AuditPage> {
    return this.#parts.store.audit(limit, before);
  }

  /** The entry of a successful attempt, to be stored in one transaction with its change. */
  accepted(attempt: AuditedAttempt): AuditEntry {
    return this.#entry(attempt, ACCEPTED);
  }

  /** Records a refused attempt. */
  refused(attempt: AuditedAttempt, error: unknown): void {
    const entry = this.#entry(attempt, outcomeOf(error));
    this.#parts.store.note(entry);
    this.log(entry);
  }

  #entry({ principal, action, envId, definition }: AuditedAttempt, outcome: string): AuditEntry {
    const { kind } = (definition ?? {}) as JsonObject;
    return {
      at: this.#parts.now(),
      principal: principal.name,
      action,
      envId: envId.slice(0, MAX_ID_LENGTH),
      kind: typeof kind === 'string' ? kind.slice(0, MAX_KIND_LENGTH) : '',
      sha256: definition ? hash('sha256', JSON.stringify(withoutSecrets(definition)), 'hex') : '',
      outcome,
    };
  }

  log({ action, principal, envId, kind, sha256, outcome }: AuditEntry): void {
    this.#parts.log.info(
      { audit: action, principal, env_id: envId, kind, sha256, outcome },
      `${action} ${envId}: ${outcome}`,
    );
  }
}

function outcomeOf(error: unknown): string {
  if (error instanceof Problem) return error.code;
  return error instanceof UnknownEnvironment ? 'unknown_environment' : 'internal';
}

export interface RegistrationParts {
  readonly context: BuildContext;
  readonly store: Store;
  readonly log: Logger;
  readonly limits: RegistrationLimits;
  /** Number of open sessions of an environment. */
  readonly sessionsOf: (envId: string) => MaybePromise<number>;
  /** Notifies the server's other processes of a change, where there are any. */
  readonly announce?: () => Promise<void>;
  /** Milliseconds since the epoch. */
  readonly now: () => number;
}

/** @throws Problem `invalid_request` with JSON pointers into the request */
type DefinitionCheck = (given: unknown) => asserts given is Definition;

/** An accepted registration. */
export interface Registered {
  readonly stored: StoredEnvironment;
  readonly report: CheckReport;
}

/** Registers, replaces and removes a server's custom environments, and checks who may do so. */
export class Registrations {
  readonly #parts: RegistrationParts;
  readonly audit: AuditTrail;
  readonly #trials: Trials;
  readonly #customRegistry: CustomRegistry;
  /** Ids being registered, replaced or removed now, with their owners. */
  readonly #underWay = new Map<string, string>();
  #warned = false;

  constructor(parts: RegistrationParts) {
    this.#parts = parts;
    this.audit = new AuditTrail(parts);
    this.#trials = new Trials(parts.context);
    this.#customRegistry = new CustomRegistry(parts.context, parts.log);
  }

  /** Loads the stored environments. */
  start(): void {
    this.#sealOldHeaders();
    this.#customRegistry.follow(this.#parts.store.environments());
  }

  /** Encrypts headers that an earlier version stored as plain text. */
  #sealOldHeaders(): void {
    const { store, context, log } = this.#parts;
    const old = store.environments().filter(({ definition }) => hasLiteralHeaders(definition));
    if (old.length === 0) return;
    const sealed = old.map(row => ({
      ...row,
      definition: context.network.secrets.seal(row.envId, row.definition),
    }));
    store.rewriteDefinitions(sealed);
    log.info(`the headers of ${old.map(({ envId }) => envId).join(', ')} are encrypted from now on`);
  }

  /** Applies what other servers of the store have registered, replaced and removed. */
  refresh(): void {
    const { store, log } = this.#parts;
    try {
      this.#customRegistry.follow(store.environments());
    } catch (error) {
      if (!storageFaultOf(error)) throw error;
      log.warn({ err: error }, 'what other servers have registered cannot be read now');
    }
  }

  /** Name of an id's current definition; it changes with the definition. */
  edition(envId: string): string {
    return editionOf(this.#customRegistry.all, envId);
  }

  get durable(): boolean {
    return this.#parts.store.durable;
  }

  /**
   * Adds an environment.
   * @throws Problem `invalid_request`, `environment_exists`, `check_failed`, `too_many_environments`,
   * `too_many_requests`
   */
  register(
    principal: Principal,
    envId: string,
    definition: unknown,
    check: DefinitionCheck,
  ): Promise<Registered> {
    return this.#audited({ principal, action: 'register', envId, definition }, async () => {
      check(definition);
      return this.#register(principal, envId, definition);
    });
  }

  async #register(principal: Principal, envId: string, definition: Definition): Promise<Registered> {
    if (!ENVIRONMENT_ID.test(envId)) {
      const detail = `an environment id reads [namespace/]Name-vN, for example me/Maze-v0; got ${JSON.stringify(envId)}`;
      throw invalidRequest('/env_id', detail);
    }
    const { limits, context } = this.#parts;
    if (context.registry.isBuiltIn(envId)) throw builtIn(envId);
    if (this.#customRegistry.all.has(envId) || this.#underWay.has(envId) || context.registry.find(envId)) {
      throw exists(envId);
    }
    requirePlace(limits, this.#owners(), principal.name);
    return this.#accept(principal, 'register', envId, definition, undefined);
  }

  /**
   * Replaces the definition of an id. Open sessions keep the old one.
   * @throws Problem `unknown_environment`, `forbidden`, `builtin_environment`, `invalid_request`, `check_failed`,
   * `environment_in_use` where its owner's compositions would no longer fit
   */
  replace(
    principal: Principal,
    envId: string,
    definition: unknown,
    check: DefinitionCheck,
  ): Promise<Registered> {
    return this.#audited({ principal, action: 'replace', envId, definition }, async () => {
      check(definition);
      const known = this.owned(principal, envId);
      this.#requireIdle(envId);
      return this.#accept(principal, 'replace', envId, definition, known);
    });
  }

  /**
   * Removes an environment. Other owners' compositions of it can no longer be played.
   * @throws Problem `unknown_environment`, `forbidden`, `builtin_environment`, `environment_in_use`
   */
  remove(principal: Principal, envId: string): Promise<void> {
    const definition = this.#customRegistry.all.get(envId)?.definition;
    return this.#audited({ principal, action: 'remove', envId, definition }, async () => {
      this.owned(principal, envId);
      const sessions = await this.#parts.sessionsOf(envId);
      // It may have been removed meanwhile.
      const known = this.owned(principal, envId);
      if (sessions > 0) {
        throw new Problem('environment_in_use', `${sessions} open sessions play ${envId}; close them first`);
      }
      const names = dependentsOf(this.#customRegistry.all, envId).flatMap(({ envId, owner }) =>
        owner === known.owner ? [envId] : [],
      );
      if (names.length > 0) {
        throw new Problem(
          'environment_in_use',
          `${names.join(', ')} is composed from ${envId}; remove that first`,
        );
      }
      this.#requireIdle(envId);
      await this.#withdraw(principal, known);
    });
  }

  /** Closes it to new sessions, unless it cannot be removed from the store. */
  async #withdraw(principal: Principal, known: StoredEnvironment): Promise<void> {
    const { store, context } = this.#parts;
    const { envId, definition, owner } = known;
    const environment = context.registry.find(envId);
    this.#underWay.set(envId, owner);
    this.#customRegistry.take(envId);
    try {
      const entry = this.audit.accepted({ principal, action: 'remove', envId, definition });
      await store.removeEnvironment(envId, entry);
      // A registration elsewhere may have restored it.
      this.#customRegistry.take(envId);
    } catch (error) {
      this.#customRegistry.put(known, environment);
      throw error;
    } finally {
      this.#underWay.delete(envId);
    }
  }

  /**
   * Plays any environment and reports whether it keeps its contract.
   * @throws UnknownEnvironment, Problem `too_many_requests`
   */
  async check(principal: Principal, envId: string): Promise<CheckReport> {
    const environment = this.#parts.context.registry.get(envId);
    return this.#trials.check(principal.name, environment, this.#customRegistry.all.get(envId)?.kind);
  }

  async #accept(
    principal: Principal,
    action: 'register' | 'replace',
    envId: string,
    given: Definition,
    known: StoredEnvironment | undefined,
  ): Promise<Registered> {
    const { context, store, now } = this.#parts;
    const plain = given as unknown as JsonObject;
    const definition = context.network.secrets.seal(envId, plain) as unknown as Definition;
    const { all } = this.#customRegistry;
    refuseCircle(envId, definition, all);
    const owner = known?.owner ?? principal.name;
    this.#underWay.set(envId, owner);
    try {
      const { environment, facts, report } = await this.#trials.tryOut(principal.name, {
        envId,
        definition,
        owner,
      });
      refuseMisfits(environment, owner, all, context);
      const stored: StoredEnvironment = {
        envId,
        kind: definition.kind,
        definition: definition as unknown as JsonObject,
        facts: { ...facts, ...baseFacts(definition, all) },
        owner,
        revision: (known?.revision ?? 0) + 1,
        registeredAt: known?.registeredAt ?? now(),
        replacedAt: known ? now() : null,
      };
      const entry = this.audit.accepted({ principal, action, envId, definition });
      if (!(await store.putEnvironment(stored, entry))) throw exists(envId);
      this.#customRegistry.put(stored, environment);
      return { stored, report };
    } finally {
      this.#underWay.delete(envId);
    }
  }

  /** @throws Problem `environment_in_use` */
  #requireIdle(envId: string): void {
    if (!this.#underWay.has(envId)) return;
    throw new Problem('environment_in_use', `${envId} is being replaced or removed by another request`);
  }

  /** Owners of all environments, including those being registered. */
  #owners(): readonly string[] {
    const owners = new Map(this.#underWay);
    for (const { envId, owner } of this.#customRegistry.all.values()) owners.set(envId, owner);
    return [...owners.values()];
  }

  /**
   * An environment as registered, for its owner, who may change it.
   * @throws Problem `unknown_environment`, `forbidden`, `builtin_environment`
   */
  owned(principal: Principal, envId: string): StoredEnvironment {
    const { registry } = this.#parts.context;
    if (registry.isBuiltIn(envId)) throw builtIn(envId);
    const stored = this.#customRegistry.all.get(envId);
    if (!stored) {
      registry.get(envId);
      throw new Problem('unknown_environment', `${envId} was not registered by anybody`);
    }
    if (stored.owner !== principal.name && !principal.scopes.has('admin')) {
      throw new Problem(
        'forbidden',
        `${envId} belongs to ${stored.owner}; only its owner or an administrator may`,
      );
    }
    return stored;
  }

  /** Runs the work, which stores the entry of its success, notifies the other processes, and records its outcome. */
  async #audited<T>(attempt: AuditedAttempt, work: () => Promise<T>): Promise<T> {
    try {
      const result = await work();
      await this.#parts.announce?.();
      this.audit.log(this.audit.accepted(attempt));
      this.#warnOfLoss();
      return result;
    } catch (error) {
      this.audit.refused(attempt, error);
      throw error;
    }
  }

  #warnOfLoss(): void {
    const { log, store } = this.#parts;
    if (store.durable || this.#warned) return;
    this.#warned = true;
    log.warn('registrations last until this server stops: start it with --data <folder> to keep them');
  }
}

function exists(envId: string): Problem {
  return new Problem(
    'environment_exists',
    `${envId} is registered already; PUT /v1/envs/${encodeURIComponent(envId)} replaces it`,
  );
}

function builtIn(envId: string): Problem {
  return new Problem('builtin_environment', `${envId} is built in and can be neither replaced nor removed`);
}
