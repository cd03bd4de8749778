import type { FastifyInstance } from 'fastify';
import { traceIdOf } from './trace-requests.ts';

/** Logs every HTTP request with its reply, at the level `debug`. */
export function logRequests(app: FastifyInstance): void {
  app.addHook('onResponse', (request, reply, done) => {
    const { session_id } = (request.params ?? {}) as { session_id?: string };
    const { statusCode: status, elapsedTime } = reply;
    const { method, url } = request;
    const about = { method, url, status, ms: Math.round(elapsedTime * 1000) / 1000, session_id };
    app.log.debug({ ...about, trace_id: traceIdOf(request) }, `${method} ${url} ${status}`);
    done();
  });
}
