import type { AuditEntry, AuditPage, StoredEnvironment } from './environment-rows.ts';
import type { Store } from './store.ts';

/** A registered environment that nobody could play. */
export const MAZE: StoredEnvironment = {
  envId: 'me/Maze-v0',
  kind: 'tabular',
  definition: { kind: 'tabular', title: 'Maze' },
  facts: {},
  owner: 'ann',
  revision: 1,
  registeredAt: 1000,
  replacedAt: null,
};

/** Entry of its registration in the audit log. */
export const REGISTERED: AuditEntry = {
  at: 1000,
  principal: 'ann',
  action: 'register',
  envId: MAZE.envId,
  kind: 'tabular',
  sha256: 'ab',
  outcome: 'accepted',
};

/** The audit log of an embedded database, oldest first. */
export function auditOf(store: Pick<Store, 'audit'>): AuditEntry[] {
  return [...(store.audit(1000) as AuditPage).entries].reverse();
}
