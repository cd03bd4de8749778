import type { FastifyInstance } from 'fastify';

const SWITCHING_PROTOCOLS = 101;
const STATUSES_PER_CLASS = 100;
/** The route of requests that no route takes, or that could not be read so far. */
export const NO_ROUTE = 'none';

/** Requests of one method and route that were answered with a status of one class. */
export interface RequestCount {
  readonly method: string;
  readonly route: string;
  /** `2xx`, for example. */
  readonly status: string;
  count: number;
}

/** Counts answered HTTP requests; an upgrade to a WebSocket is one with the class `1xx`. */
export class RequestCounts {
  readonly #counts = new Map<string, RequestCount>();

  /** @param route as it was declared, so that there are not more than routes */
  add(method: string, route: string, status: number): void {
    this.counter(method, route, status).count++;
  }

  /** Counter of requests of one kind, for a caller that counts the same kind all the time. */
  counter(method: string, route: string, status: number): RequestCount {
    const ofClass = `${Math.floor(status / STATUSES_PER_CLASS)}xx`;
    const key = `${method} ${route} ${ofClass}`;
    let counter = this.#counts.get(key);
    if (!counter) {
      counter = { method, route, status: ofClass, count: 0 };
      this.#counts.set(key, counter);
    }
    return counter;
  }

  /** All that have counted anything. */
  *[Symbol.iterator](): Iterator<RequestCount> {
    for (const counter of this.#counts.values()) if (counter.count > 0) yield counter;
  }
}

/** Counts every request that Fastify answers. */
export function countRequests(app: FastifyInstance, counts: RequestCounts): void {
  // A socket that is open has no response.
  app.addHook('preHandler', (request, _reply, done) => {
    if (request.ws) counts.add(request.method, request.routeOptions.url ?? NO_ROUTE, SWITCHING_PROTOCOLS);
    done();
  });
  app.addHook('onResponse', (request, reply, done) => {
    counts.add(request.method, request.routeOptions.url ?? NO_ROUTE, reply.statusCode);
    done();
  });
}
