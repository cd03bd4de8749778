import type { FastifyError, FastifyReply, FastifyRequest } from 'fastify';

/** Answers with a problem document. */
export function refuse(reply: FastifyReply, status: number, detail: string): FastifyReply {
  return reply
    .code(status)
    .type('application/problem+json')
    .send(JSON.stringify({ title: status === 404 ? 'Not found' : 'Refused', status, detail }));
}

/**
 * Answers a request that cannot be read, such as one with too large a body.
 * @throws the error where the fault is the server's
 */
export function refuseRequest(
  error: FastifyError,
  request: FastifyRequest,
  reply: FastifyReply,
): FastifyReply {
  const { statusCode = 500, message } = error;
  if (statusCode >= 500) throw error;
  const { bodyLimit } = request.routeOptions;
  return refuse(
    reply,
    statusCode,
    statusCode === 413 ? `the body is larger than the ${bodyLimit} bytes that this route takes` : message,
  );
}
