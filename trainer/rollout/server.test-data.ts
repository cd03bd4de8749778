import type { Test } from 'tap';
import { createApp } from '../../env-server/app.ts';
import type { AnyEnvironment } from '../../env-server/environments/core/environment.ts';
import { BUILT_IN, createRegistry } from '../../env-server/environments/registry.ts';
import type { EnvServerSettings } from '../client/server.ts';
import { openServers, type ServerPool } from '../client/servers.ts';

/** An environment server in this process on a free port, and a client for it; both end with the test. */
export async function serve(
  t: Test,
  settings: Partial<EnvServerSettings> = {},
  more: readonly AnyEnvironment[] = [],
): Promise<ServerPool> {
  const { server } = await createApp(
    { logLevel: 'silent' },
    { registry: createRegistry([...BUILT_IN, ...more]) },
  );
  const url = await server.listen({ host: '127.0.0.1', port: 0 });
  const pool = openServers([{ url, ...settings }]);
  t.teardown(async () => {
    await pool.close();
    await server.close();
  });
  return pool;
}

/** Caps as the field's defaults have them. */
export const CAPS = {
  maxTurns: 5,
  maxActionsPerTurn: 2,
  maxActionsPerTrajectory: 10,
  formatPenalty: -0.1,
} as const;
