import { hash } from 'node:crypto';
import type { Logger } from 'pino';
import type { JsonObject } from '../../../shared/json.ts';
import { UnknownEnvironment } from '../../environments/registry.ts';
import type { Store } from '../../persistence/store.ts';
import type { AuditAction, AuditEntry } from '../../persistence/stored-environment.ts';
import { Problem } from '../../problems.ts';
import type { Principal } from '../../sessions/principal.ts';
import { withoutSecrets } from '../remote/secrets.ts';

/** Outcome of what was not refused. */
const ACCEPTED = 'accepted';
/** Characters of what was sent as a kind that are kept. */
const MAX_KIND_LENGTH = 32;

/** Attempt of a client to change an environment. */
export interface AuditedAttempt {
  readonly principal: Principal;
  readonly action: AuditAction;
  readonly envId: string;
  /** As it was sent, of any type. */
  readonly definition: unknown;
}

export interface AuditParts {
  readonly store: Pick<Store, 'note'>;
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

  /** Does the work and notes what came of it; what succeeds has stored its entry itself. */
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
      envId,
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
