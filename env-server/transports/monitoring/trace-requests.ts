import type { FastifyInstance, FastifyRequest } from 'fastify';
import type { TraceContext } from '../../operations/operation.ts';
import type { OpenTelemetry, RequestSpan } from './tracing/open-telemetry.ts';

declare module 'fastify' {
  interface FastifyRequest {
    /** Trace of the request, where requests are traced. */
    trace: TraceContext | undefined;
  }
}

const SWITCHING_PROTOCOLS = 101;
/** W3C Trace Context, level 1: all zeros are invalid, and later versions may append fields. */
const TRACEPARENT =
  /^(?:00(?=.{53}$)|(?!00|ff)[0-9a-f]{2}(?=.{53}(?:-|$)))-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}/;

/** Gives every request a span; WebSocket frames are children of the upgrade's span. */
export function traceRequests(app: FastifyInstance, tracing: OpenTelemetry): void {
  const spans = new WeakMap<FastifyRequest, RequestSpan>();
  app.addHook('onRequest', (request, _reply, done) => {
    const span = tracing.request(request.method, request.routeOptions.url ?? 'no route', request.headers);
    request.trace = span.context;
    spans.set(request, span);
    done();
  });
  const end = (request: FastifyRequest, status: number) => {
    spans.get(request)?.end(status);
    spans.delete(request);
  };
  // A socket that is open has no response.
  app.addHook('preHandler', (request, _reply, done) => {
    if (request.ws) end(request, SWITCHING_PROTOCOLS);
    done();
  });
  app.addHook('onResponse', (request, reply, done) => {
    end(request, reply.statusCode);
    done();
  });
}

/** The trace of a request, by its span or its `traceparent`, if any. */
export function traceIdOf({ trace, headers }: FastifyRequest): string | undefined {
  return trace ? trace.traceId : traceIdIn(headers);
}

/** The trace that a `traceparent` names, if it is valid. */
export function traceIdIn({ traceparent }: { readonly [name: string]: unknown }): string | undefined {
  return typeof traceparent === 'string' ? TRACEPARENT.exec(traceparent)?.[1] : undefined;
}
