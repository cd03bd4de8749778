import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { homedir } from 'node:os';
import { join, resolve } from 'node:path';
import { listenOnPort } from '../../shared/http/free-port.ts';
import { createDashboard, type ReplayResult, readAuthors, TOKEN_VARIABLE } from '../dashboard/server.ts';
import { stopRequests } from './processes/stop-signal.ts';

/** Default port, above that of the environment server. */
export const DEFAULT_PORT = 8090;

export interface DashboardOptions {
  readonly server?: string;
  readonly port?: number;
  readonly host: string;
  readonly allowedHosts: string;
  /** Folder to write the pages into instead of serving them. */
  readonly export?: string;
  readonly leaderboard?: string;
  /** JSON file with the authors of signed results. */
  readonly authors?: string;
}

/**
 * The command `dashboard`: serves pages about the runs in a folder until it is stopped, or writes them as files.
 * @returns the exit status
 * @throws Error when there is no such folder, or the port is taken
 */
export async function dashboard(runs: string, options: DashboardOptions): Promise<number> {
  const { server, leaderboard, authors, host, allowedHosts } = options;
  if (server !== undefined && !/^https?:\/\//.test(server)) {
    throw new Error(`--server is an address such as http://127.0.0.1:8080, got ${server}`);
  }
  if (leaderboard !== undefined && !existsSync(leaderboard)) {
    throw new Error(`--leaderboard: ${leaderboard} does not exist`);
  }
  if (!existsSync(runs)) {
    throw new Error(`${runs} does not exist; dashboard takes a folder of run folders, e.g. runs`);
  }
  await readAuthors(authors);
  const signed = {
    authors,
    cache: join(process.env.XDG_CACHE_HOME || join(homedir(), '.cache'), 'ragen', 'replays'),
    ...(server === undefined ? {} : { replay: replayOn(server) }),
  };
  if (options.export !== undefined) {
    const { exportSite } = await import('../dashboard/export.ts');
    const { files, bytes } = await exportSite(resolve(runs), resolve(options.export), {
      leaderboard,
      server,
      signed,
    });
    console.log(
      `${files} files (${Math.round(bytes / 1024)} KiB) in ${options.export}; any web server can serve them, e.g.`,
    );
    console.log(`  python3 -m http.server --directory ${options.export}`);
    return 0;
  }
  const controlToken = randomBytes(24).toString('base64url');
  const app = await createDashboard({
    ...{ runs: resolve(runs), server, leaderboard, signed, host, allowedHosts, controlToken },
  });
  const stopped = Promise.withResolvers<void>();
  using _requests = stopRequests(stopped.resolve);
  const address = await listenOnPort(options.port ?? DEFAULT_PORT, options.port !== undefined, port =>
    app.listen({ host, port }),
  );
  console.log(`ragen dashboard of ${runs} on ${address}/runs/ (Ctrl-C ends it)`);
  console.log(`to control trainers from there: ${address}/runs/?token=${controlToken}`);
  await stopped.promise;
  await app.close();
  return 0;
}

/** Plays episodes of signed results on an environment server, with the token of `RAGEN_TOKEN`. */
export function replayOn(url: string): ReplayResult {
  const token = process.env[TOKEN_VARIABLE];
  return async (result, episodes, signal) => {
    const { replayResult } = await import('./verify/replay-result.ts');
    return replayResult(result, episodes, { url, ...(token ? { token } : {}) }, signal);
  };
}
