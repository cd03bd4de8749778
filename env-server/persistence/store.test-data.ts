import type { AuditEntry, StoredEnvironment } from './stored-environment.ts';

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
