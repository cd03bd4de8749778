import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { Rollout } from './rollout.ts';
import { SESSION_OPERATIONS } from './session-operations.ts';

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
  const { get, valid_actions, step, reset } = SESSION_OPERATIONS;
  app.get(`${prefix}/session`, request => get(rolloutOf(request)));
  app.get(`${prefix}/session/valid-actions`, request => valid_actions(rolloutOf(request)));
  app.post(`${prefix}/session/step`, request =>
    step(rolloutOf(request), (request.body ?? {}) as { readonly action?: unknown }),
  );
  app.post(`${prefix}/session/reset`, request => reset(rolloutOf(request)));
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

/** Numbers of the steps in replies of MCP. */
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
