import type { JsonObject } from '../../shared/json.ts';

/** A stored custom environment. */
export interface StoredEnvironment {
  readonly envId: string;
  readonly kind: string;
  readonly definition: JsonObject;
  /** Facts found at registration that are needed to build the environment again, e.g. a remote server's document. */
  readonly facts: JsonObject;
  readonly owner: string;
  /** Counts replacements, from 1. */
  readonly revision: number;
  /** Milliseconds since the epoch. */
  readonly registeredAt: number;
  readonly replacedAt: number | null;
}

export type AuditAction = 'register' | 'replace' | 'remove';

/** A change of a custom environment, or a refused attempt: its principal, action and environment. */
export interface AuditEntry {
  /** Milliseconds since the epoch. */
  readonly at: number;
  readonly principal: string;
  readonly action: AuditAction;
  readonly envId: string;
  readonly kind: string;
  /** Hash of the definition's JSON, without the values of headers. */
  readonly sha256: string;
  /** `accepted`, or the code of the problem it was refused with. */
  readonly outcome: string;
}

/** Most entries of the audit log; the oldest are dropped. */
export const AUDIT_KEPT = 100_000;

/** Part of the audit log, newest first. */
export interface AuditPage {
  readonly entries: readonly AuditEntry[];
  /** Entry before which the next page begins; undefined on the last page. */
  readonly next: string | undefined;
}

/** A page of numbered entries, from a query for one more than it may have. */
export function auditPage(
  found: readonly (readonly [id: string, entry: AuditEntry])[],
  limit: number,
): AuditPage {
  const page = found.slice(0, limit);
  return {
    entries: page.map(([, entry]) => entry),
    next: found.length > limit ? page.at(-1)![0] : undefined,
  };
}
