import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { homedir, tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import type { FastifyInstance } from 'fastify';
import { atEnd } from '../../shared/closing.ts';
import { listenOnPort } from '../../shared/http/addresses.ts';
import { counted, hasCredentials } from '../../shared/text.ts';
import { importRuns } from '../dashboard/imported-runs.ts';
import { createDashboard, type ReplayResult, readAuthors, TOKEN_VARIABLE } from '../dashboard/server.ts';
import type { OptionsOf } from './options.ts';
import { CheckpointProcesses } from './processes/checkpoint-processes.ts';
import { INTERRUPTED_STATUS, stopRequests } from './processes/child-program.ts';

/** Default port, above that of the environment server. */
const DEFAULT_PORT = 8090;

/**
 * The command `dashboard`: serves pages about the runs in a folder until it is stopped, or writes them as files.
 * @returns the exit status
 * @throws Error when there is no such folder, or the port is taken
 */
export async function dashboard(
  folder: string | undefined,
  options: OptionsOf<'dashboard'>,
): Promise<number> {
  const runs = folder ?? 'runs';
  const { server, leaderboard, authors, host, allowedHosts } = options;
  if (server !== undefined && !/^https?:\/\//.test(server)) {
    throw new Error(`--server is an address such as http://127.0.0.1:8080, got ${server}`);
  }
  if (hasCredentials(server ?? '')) {
    throw new Error(
      `--server has a user name or password, which is not sent: give a token by the variable ${TOKEN_VARIABLE}`,
    );
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
    ...(server === undefined
      ? {}
      : { replay: replayOn(server, options.export === undefined ? undefined : console.error) }),
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
    checkpoints: new CheckpointProcesses(server),
  });
  using requests = stopRequests(() => {});
  await serveUntil(requests.signal, app, options, address => {
    console.log(`ragen dashboard of ${runs} on ${address}/runs/ (Ctrl-C stops it)`);
    console.log(`to control trainers and ask checkpoints from there: ${address}/runs/?token=${controlToken}`);
  });
  return 0;
}

/** Serves pages until a stop request. @throws Error where the port is taken */
async function serveUntil(
  stop: AbortSignal,
  app: FastifyInstance,
  { host, port }: Pick<OptionsOf<'dashboard'>, 'host' | 'port'>,
  onListening: (address: string) => void,
): Promise<void> {
  onListening(
    await listenOnPort(port ?? DEFAULT_PORT, port !== undefined, port => app.listen({ host, port })),
  );
  if (!stop.aborted) await once(stop, 'abort');
  await app.close();
}

/**
 * Plays episodes of signed results on an environment server, with the token of `RAGEN_TOKEN`.
 * @param note shows a line to the user: a replay can take two minutes
 */
export function replayOn(url: string, note: (text: string) => void = () => {}): ReplayResult {
  const token = process.env[TOKEN_VARIABLE];
  return async (result, episodes, signal) => {
    const { policy, mode, environment } = result;
    note(`playing ${episodes.length} episodes of ${policy}, ${mode}, on ${environment.env_id} again`);
    const { replayResult } = await import('./verify/replay.ts');
    return replayResult(result, episodes, { url, ...(token ? { token } : {}) }, signal);
  };
}

/**
 * The command `view`: shows trajectories of other programs in the browser until it is stopped. They are copied into a
 * temporary folder in ragen's format; the files do not change.
 * @returns the exit status
 * @throws Error that names file and line for anything but a trajectory
 */
export async function view(paths: readonly string[], { port }: OptionsOf<'view'>): Promise<number> {
  const folder = mkdtempSync(join(tmpdir(), 'ragen-view-'));
  using _folder = atEnd(() => rmSync(folder, { recursive: true, force: true }));
  using requests = stopRequests(() => {});
  try {
    const runs = await importRuns(paths, folder, requests.signal);
    const host = '127.0.0.1';
    const app = await createDashboard({ runs: folder, host, allowedHosts: '' });
    await serveUntil(requests.signal, app, { host, port }, address => {
      for (const { id, episodes, formats, notes } of runs) {
        for (const note of notes) console.log(note);
        console.log(
          `${counted(episodes, 'episode')} of ${formats.join(', ')}: ${address}/runs/#/run/${encodeURIComponent(id)}/episodes`,
        );
      }
      console.log('Ctrl-C stops it');
    });
    return 0;
  } catch (error) {
    if (requests.signal.aborted) return INTERRUPTED_STATUS;
    throw error;
  }
}
