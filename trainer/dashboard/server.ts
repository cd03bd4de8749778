import Fastify, { type FastifyInstance } from 'fastify';
import { AllowedHosts } from '../../shared/http/allowed-hosts.ts';
import { isLoopback } from '../../shared/http/loopback.ts';
import { securePages, secureReplies } from '../../shared/http/page-security.ts';
import { ENV_SERVER } from '../../shared/program.ts';
import { RunReader } from '../../site/server/reader/run-reader.ts';
import { addDashboard } from '../../site/server/routes.ts';
import { addServerProxy } from './server-proxy.ts';

export interface DashboardSettings {
  /** Folder of run folders. */
  readonly runs: string;
  /** Address of an environment server: the dashboard links its pages and continues episodes there. */
  readonly server?: string;
  /** Published results for the leaderboard. */
  readonly leaderboard?: string;
  readonly host: string;
  /** Names that requests may be for besides those of this machine, separated by commas. */
  readonly allowedHosts: string;
}

/** A request for another host. */
class HostRefused extends Error {
  readonly statusCode: number;

  constructor(code: string, detail: string) {
    super(detail);
    this.statusCode = code === 'host_not_allowed' ? 421 : 400;
  }
}

/**
 * The server of the pages about runs; it listens nowhere yet. It has no tokens, so that it stays on this machine.
 * @throws Error for an address that others can reach
 */
export async function createDashboard(settings: DashboardSettings): Promise<FastifyInstance> {
  const { runs, server, leaderboard, host } = settings;
  if (!isLoopback(host)) {
    throw new Error(
      `the dashboard has no tokens and listens on this machine only, not on ${host}; ` +
        `for others mount it in an environment server with tokens: ${ENV_SERVER} --runs ./runs --tokens FILE --host ADDRESS`,
    );
  }
  const hosts = new AllowedHosts(settings, (code, detail) => new HostRefused(code, detail));
  const app = Fastify({ logger: false, forceCloseConnections: true }) as unknown as FastifyInstance;
  secureReplies(app);
  app.addHook('onRequest', (request, _reply, done) => {
    hosts.check(request.raw);
    done();
  });
  await app.register(async pages => {
    await securePages(pages);
    pages.get('/', (_request, reply) => reply.redirect('runs/'));
    addDashboard(pages, {
      reader: new RunReader(runs, leaderboard),
      site:
        server === undefined ? { server: null, api: null } : { server: slashed(server), api: '../server/' },
    });
    if (server !== undefined) addServerProxy(pages, slashed(server));
  });
  return app;
}

const slashed = (url: string): string => (url.endsWith('/') ? url : `${url}/`);
