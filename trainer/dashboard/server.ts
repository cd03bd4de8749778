import { hash, timingSafeEqual } from 'node:crypto';
import type { FastifyError, FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import Fastify from 'fastify';
import { Agent, errors, request } from 'undici';
import { isLoopback } from '../../shared/http/addresses.ts';
import { joinChunks, textOf } from '../../shared/http/chunks.ts';
import { compressReplies } from '../../shared/http/compression.ts';
import { AllowedHosts, securePages, secureReplies } from '../../shared/http/security.ts';
import { ENV_SERVER } from '../../shared/program.ts';
import { RunReader } from '../../site/server/reader/run-reader.ts';
import type { SignedSettings } from '../../site/server/reader/signed-results.ts';
import { addDashboard, refuse, refuseRequest } from '../../site/server/routes.ts';
import { addCheckpointRoute, type Checkpoints } from './checkpoint-route.ts';

export { type ReplayResult, readAuthors } from '../../site/server/reader/signed-results.ts';

export interface DashboardSettings {
  /** Folder of run folders. */
  readonly runs: string;
  /** Address of an environment server, to which the dashboard links and where it continues episodes. */
  readonly server?: string;
  /** Published results for the leaderboard. */
  readonly leaderboard?: string;
  /** Checks of signed results. */
  readonly signed?: SignedSettings;
  /** Token for controlling trainers; absent where nobody may. */
  readonly controlToken?: string;
  /** Checkpoints that the holder of that token may ask. */
  readonly checkpoints?: Checkpoints;
  readonly host: string;
  /** Accepted `Host` names besides this machine's, separated by commas. */
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
 * The server of the run pages, not listening yet. Its pages need no token, so it is for this machine only.
 * @throws Error for an address that others can reach
 */
export async function createDashboard(settings: DashboardSettings): Promise<FastifyInstance> {
  const { runs, server, leaderboard, signed, host, controlToken, checkpoints } = settings;
  if (!isLoopback(host)) {
    throw new Error(
      `the dashboard has no tokens and listens on this machine only, not on ${host}; ` +
        `for others mount it in an environment server with tokens: ${ENV_SERVER} --runs ./runs --tokens FILE --host ADDRESS`,
    );
  }
  const hosts = new AllowedHosts(settings, (code, detail) => new HostRefused(code, detail));
  const app = Fastify({ logger: false, forceCloseConnections: true }) as unknown as FastifyInstance;
  app.setErrorHandler((error: FastifyError, request, reply) => {
    const { statusCode = 500, message } = error;
    return statusCode >= 500 ? refuse(reply, statusCode, message) : refuseRequest(error, request, reply);
  });
  joinChunks(app);
  secureReplies(app);
  compressReplies(app);
  app.addHook('onRequest', (request, _reply, done) => {
    hosts.check(request.raw);
    done();
  });
  await app.register(async pages => {
    await securePages(pages);
    pages.get('/', (_request, reply) => reply.redirect('runs/'));
    const reader = new RunReader(runs, leaderboard, signed);
    const denies =
      controlToken === undefined
        ? undefined
        : (request: FastifyRequest) => tokenProblem(request, controlToken);
    addDashboard(pages, {
      ...(denies ? { deniesControl: denies } : {}),
      reader,
      site: {
        ...(server === undefined
          ? { server: null, api: null }
          : { server: slashed(server), api: '../server/' }),
        ...(denies && checkpoints ? { checkpoints: true } : {}),
      },
    });
    if (denies && checkpoints) addCheckpointRoute(pages, { reader, checkpoints, denies });
    if (server !== undefined) addServerProxy(pages, slashed(server));
  });
  return app;
}

/** The reason why a request may not control trainers. Tokens are compared by their digests, in constant time. */
function tokenProblem({ headers }: FastifyRequest, token: string) {
  const given = /^bearer (.+)$/i.exec(headers.authorization ?? '')?.[1] ?? '';
  const digest = (text: string) => hash('sha256', text, 'buffer');
  if (timingSafeEqual(digest(given), digest(token))) return undefined;
  const detail =
    'controlling a trainer or a checkpoint needs the token that the dashboard printed when it started';
  return { status: 401, detail } as const;
}

const slashed = (url: string): string => (url.endsWith('/') ? url : `${url}/`);

/** Environment server routes that the run pages use: to open a session, and to bring it to a turn of an episode. */
const ROUTES = ['v1/sessions', 'v1/batch'];
const MAX_BODY_BYTES = 4 * 1024 * 1024;
const MAX_REPLY_BYTES = 16 * 1024 * 1024;
/** For a whole reply. */
const TIMEOUT_MS = 60_000;
export const TOKEN_VARIABLE = 'RAGEN_TOKEN';

/**
 * Forwards these requests from `/server/`, because a page may only ask the server it came from. It adds the token of
 * the variable `RAGEN_TOKEN`.
 * @param server its address, ending in a slash
 */
function addServerProxy(app: FastifyInstance, server: string): void {
  const token = process.env[TOKEN_VARIABLE];
  const dispatcher = new Agent({ maxResponseSize: MAX_REPLY_BYTES });
  app.addHook('onClose', () => dispatcher.destroy());
  for (const route of ROUTES) {
    app.post(`/server/${route}`, { bodyLimit: MAX_BODY_BYTES }, async (incoming, reply) => {
      // Only JSON makes a browser ask before it sends what a page of others wants to send.
      if (typeof incoming.body !== 'object' || incoming.body === null) {
        return sendProblem(reply, 415, 'Unsupported media type', 'the body must be a JSON object');
      }
      const signal = AbortSignal.timeout(TIMEOUT_MS);
      try {
        const { statusCode, headers, body } = await request(`${server}${route}`, {
          method: 'POST',
          dispatcher,
          signal,
          headers: {
            'content-type': 'application/json',
            ...(token ? { authorization: `Bearer ${token}` } : {}),
          },
          body: JSON.stringify(incoming.body),
        });
        const text = await textOf(body);
        return reply
          .code(statusCode)
          .type(String(headers['content-type'] ?? 'application/json'))
          .send(text);
      } catch (error) {
        const why = signal.aborted
          ? `sends no whole reply within ${TIMEOUT_MS / 1000} s`
          : error instanceof errors.ResponseExceededMaxSizeError
            ? `sends a reply of more than ${MAX_REPLY_BYTES} bytes`
            : `does not answer: ${(error as Error).message}`;
        return sendProblem(reply, 502, 'Bad gateway', `${server} ${why}`);
      }
    });
  }
}

const sendProblem = (reply: FastifyReply, status: number, title: string, detail: string) =>
  reply.code(status).type('application/problem+json').send(JSON.stringify({ title, status, detail }));
