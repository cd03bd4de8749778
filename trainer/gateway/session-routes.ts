import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { ServerProblem } from '../client/errors.ts';
import { ApiError } from '../serve/openai/errors.ts';
import type { Rollout } from './rollout.ts';

const MCP_HEADERS = ['content-type', 'mcp-session-id', 'mcp-protocol-version', 'mcp-method', 'mcp-name'];

/**
 * The session of a rollout: REST at `<prefix>/session`, the environment's tools at `<prefix>/mcp`. Everything is carried out
 * by the environment server, in this session only; the server's own token stays here.
 */
export function sessionRoutes(
  app: FastifyInstance,
  prefix: string,
  rolloutOf: (request: FastifyRequest) => Rollout,
): void {
  app.get(`${prefix}/session`, async request => detailOf(rolloutOf(request)));
  app.get(`${prefix}/session/valid-actions`, async request => {
    const { server, sessionId } = rolloutOf(request).session;
    return told(() => server.call('valid_actions', { session_id: sessionId }));
  });
  app.post(`${prefix}/session/step`, async request => {
    const rollout = rolloutOf(request);
    const { server, sessionId } = rollout.session;
    const { action } = (request.body ?? {}) as { readonly action?: never };
    const result = await told(() => server.call('step', { session_id: sessionId, action: action as never }));
    rollout.stepped(result.step);
    return result;
  });
  app.post(`${prefix}/session/reset`, async request => {
    const rollout = rolloutOf(request);
    const detail = await detailOf(rollout);
    if (detail.step === 0) return detail;
    throw new ApiError(409, 'a rollout is one episode: it has begun and cannot be reset', {
      code: 'episode_begun',
    });
  });
  const forward = async (request: FastifyRequest, reply: FastifyReply) => {
    const rollout = rolloutOf(request);
    const { server, sessionId } = rollout.session;
    const environment = encodeURIComponent(rollout.task.env_id);
    const headers = MCP_HEADERS.flatMap(name => {
      const value = request.headers[name];
      return typeof value === 'string' ? [[name, value]] : [];
    });
    const answer = await server.forward({
      method: 'POST',
      path: `/mcp/${environment}?session_id=${encodeURIComponent(sessionId)}`,
      headers: Object.fromEntries(headers),
      body: JSON.stringify(request.body),
    });
    for (const step of stepsIn(answer.body)) rollout.stepped(step);
    if (answer.contentType !== undefined) reply.header('content-type', answer.contentType);
    return reply.code(answer.status).send(answer.body);
  };
  app.post(`${prefix}/mcp`, forward);
}

function detailOf({ session: { server, sessionId } }: Rollout) {
  return told(() => server.call('get', { session_id: sessionId }));
}

/** What the environment server refuses is the program's to read. */
async function told<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof ServerProblem)) throw error;
    throw new ApiError(error.status, error.problem.detail, { code: error.code });
  }
}

/** Numbers of the steps that replies of MCP tell of. */
function stepsIn(text: string): number[] {
  const reply = parse(text);
  return (Array.isArray(reply) ? reply : [reply]).flatMap(message => {
    const { structuredContent } =
      (message as { result?: { structuredContent?: { step?: unknown; reward?: unknown } } } | null)?.result ??
      {};
    const { step, reward } = structuredContent ?? {};
    return typeof step === 'number' && reward !== undefined ? [step] : [];
  });
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
