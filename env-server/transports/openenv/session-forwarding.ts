import type { FastifyReply, FastifyRequest } from 'fastify';
import type { ForwardedReply, SiblingWorkers } from '../../operations/dispatch/sibling-workers.ts';
import { workerOfReply, workerOfSession } from '../../sessions/placement.ts';
import type { HttpCaller } from './named-sessions.ts';

/** Headers that belong to a connection, not to a reply. */
const OF_CONNECTION = new Set(['connection', 'keep-alive', 'transfer-encoding', 'content-length', 'date']);

/** What ids of sessions look like; a session is kept by the process that its id names. */
const SESSION_ID = /^s[\w-]{16}$/;

type Hook = (request: FastifyRequest, reply: FastifyReply) => Promise<FastifyReply | undefined>;

/** Of several processes each remembers some of the names that clients have given: lets the one answer that knows this one. */
export function forwardToSessionWorker(
  siblings: SiblingWorkers,
  callerOf: (request: FastifyRequest) => HttpCaller,
): Hook {
  const { index, count } = siblings.placement;
  return async (request, reply) => {
    const { principal, envId, name } = callerOf(request);
    if (name === '') return undefined;
    const worker = SESSION_ID.test(name)
      ? workerOfSession(name, count)
      : workerOfReply(principal.name, `${envId} ${name}`, count);
    if (worker === index) return undefined;
    const { method, url, headers, body } = request;
    const answer = (await siblings.ask(worker, 'http', {
      method,
      url,
      headers: withoutLength(headers),
      ...(body !== undefined && { body: JSON.stringify(body) }),
    })) as ForwardedReply;
    for (const [header, value] of Object.entries(answer.headers)) {
      if (!OF_CONNECTION.has(header)) reply.header(header, value);
    }
    return reply.code(answer.status).send(answer.body);
  };
}

/** The body is written anew. */
function withoutLength({ 'content-length': _length, ...headers }: FastifyRequest['headers']) {
  return headers;
}
