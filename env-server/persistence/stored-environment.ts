import type { JsonObject } from '../../shared/json.ts';

/** A custom environment as it is kept. */
export interface StoredEnvironment {
  readonly envId: string;
  readonly kind: string;
  readonly definition: JsonObject;
  /** What was learned at registration and is needed to make the environment again, e.g. a remote server's document. */
  readonly facts: JsonObject;
  readonly owner: string;
  /** Counts replacements, from 1. */
  readonly revision: number;
  /** Milliseconds since the epoch. */
  readonly registeredAt: number;
  readonly replacedAt: number | null;
}

export type AuditAction = 'register' | 'replace' | 'remove';

/** Who did, or was refused to do, what to which custom environment. */
export interface AuditEntry {
  /** Milliseconds since the epoch. */
  readonly at: number;
  readonly principal: string;
  readonly action: AuditAction;
  readonly envId: string;
  readonly kind: string;
  /** Of the definition's JSON, without the values of headers. */
  readonly sha256: string;
  /** `accepted`, or the code of the problem it was refused with. */
  readonly outcome: string;
}
