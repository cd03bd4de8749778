import type { FastifyReply, FastifyRequest } from 'fastify';

/** Aborted when the client of a request goes away before its reply is written. */
export function clientGone(request: FastifyRequest, { raw }: FastifyReply): AbortController {
  const gone = new AbortController();
  const abort = () => {
    if (!raw.writableFinished) gone.abort(new Error('the client went away'));
  };
  raw.once('close', abort);
  if (raw.destroyed || request.raw.socket.destroyed) abort();
  return gone;
}
