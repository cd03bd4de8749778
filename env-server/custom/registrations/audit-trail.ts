import { hash } from 'node:crypto';
import type { Logger } from 'pino';
import type { JsonObject } from '../../../shared/json.ts';
import type { MaybePromise } from '../../environments/core/maybe-promise.ts';
import { UnknownEnvironment } from '../../environments/registry.ts';
import type { Store } from '../../persistence/store.ts';
import type { AuditAction, AuditEntry, AuditPage } from '../../persistence/stored-environment.ts';
import { Problem } from '../../problems.ts';
import type { Principal } from '../../sessions/principal.ts';
import { withoutSecrets } from '../remote/secrets.ts';

/** Outcome of what was not refused. */
const ACCEPTED = 'accepted';
/** Characters that are kept of what was sent as a kind and as an environment's id. */
const MAX_KIND_LENGTH = 32;
const MAX_ID_LENGTH = 128;

/** Attempt of a client to change an environment. */
export interface AuditedAttempt {
  readonly principal: Principal;
  readonly action: AuditAction;
  readonly envId: string;
  /** As it was sent, of any type. */
  readonly definition: unknown;
}

export interface AuditParts {
  readonly store: Pick<Store, 'note' | 'audit'>;
  readonly log: Logger;
  /** Milliseconds since the epoch. */
  readonly now: () => number;
}

/** The record of who registered, replaced and removed what, or tried to: in the store and in the log. */
export class AuditTrail {
  readonly #parts: AuditParts;

  constructor(parts: AuditParts) {
    this.#parts = parts;
  }

  /** Entries of all servers that share the store, newest first. */
  page(limit: number, before?: string): MaybePromise<AuditPage> {
    return this.#parts.store.audit(limit, before);
  }

  /** The entry of an attempt that succeeds, to be stored together with what it does. */
  accepted(attempt: AuditedAttempt): AuditEntry {
    return this.#entry(attempt, ACCEPTED);
  }

  /** Notes an attempt that was refused. */
  refused(attempt: AuditedAttempt, error: unknown): void {
    const entry = this.#entry(attempt, outcomeOf(error));
    this.#parts.store.note(entry);
    this.#log(entry);
  }

  /** Does the work and notes its outcome; what succeeds has stored its entry itself. */
  async follow<T>(attempt: AuditedAttempt, work: () => Promise<T>): Promise<T> {
    try {
      const result = await work();
      this.#log(this.accepted(attempt));
      return result;
    } catch (error) {
      this.refused(attempt, error);
      throw error;
    }
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

  #log({ action, principal, envId, kind, sha256, outcome }: AuditEntry): void {
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
