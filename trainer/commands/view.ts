import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { listenOnPort } from '../../shared/http/free-port.ts';
import { importRuns } from '../dashboard/imported-runs.ts';
import { createDashboard } from '../dashboard/server.ts';
import { DEFAULT_PORT } from './dashboard.ts';
import { INTERRUPTED_STATUS, stopRequests } from './processes/stop-signal.ts';

export interface ViewOptions {
  readonly port?: number;
}

/**
 * The command `view`: shows trajectories of other programs in the browser until it is stopped. They are copied into a temporary
 * folder in ragen's form; the files stay as they are.
 * @returns the exit status
 * @throws Error that names file and line for anything that is no trajectory
 */
export async function view(paths: readonly string[], { port }: ViewOptions): Promise<number> {
  const folder = mkdtempSync(join(tmpdir(), 'ragen-view-'));
  const stopped = Promise.withResolvers<void>();
  using requests = stopRequests(stopped.resolve);
  try {
    const runs = await importRuns(paths, folder, requests.signal);
    const host = '127.0.0.1';
    const app = await createDashboard({ runs: folder, host, allowedHosts: '' });
    const address = await listenOnPort(port ?? DEFAULT_PORT, port !== undefined, port =>
      app.listen({ host, port }),
    );
    for (const { id, episodes, formats, notes } of runs) {
      for (const note of notes) console.log(note);
      console.log(
        `${episodes} ${episodes === 1 ? 'episode' : 'episodes'} of ${formats.join(', ')}: ${address}/runs/#/run/${encodeURIComponent(id)}/episodes`,
      );
    }
    console.log('Ctrl-C ends it');
    await stopped.promise;
    await app.close();
    return 0;
  } catch (error) {
    if (requests.signal.aborted) return INTERRUPTED_STATUS;
    throw error;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
