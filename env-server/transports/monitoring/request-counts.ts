import type { FastifyInstance, preHandlerHookHandler } from 'fastify';

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
  /** By route, then by method, then by class of status. */
  readonly #counts = new Map<string, Map<string, (RequestCount | undefined)[]>>();

  /** @param route as it was declared, so that there are not more than routes */
  add(method: string, route: string, status: number): void {
    let ofRoute = this.#counts.get(route);
    if (!ofRoute) {
      ofRoute = new Map();
      this.#counts.set(route, ofRoute);
    }
    let counters = ofRoute.get(method);
    if (!counters) {
      counters = [];
      ofRoute.set(method, counters);
    }
    const ofClass = Math.floor(status / STATUSES_PER_CLASS);
    counters[ofClass] ??= { method, route, status: `${ofClass}xx`, count: 0 };
    counters[ofClass].count++;
  }

  *[Symbol.iterator](): Iterator<RequestCount> {
    for (const ofRoute of this.#counts.values()) {
      for (const counters of ofRoute.values()) {
        for (const counter of counters) if (counter) yield counter;
      }
    }
  }
}

/** Counts requests that become a WebSocket: they get no response while it is open. */
export function countUpgrades(app: FastifyInstance, counts: RequestCounts): void {
  app.addHook('onRoute', route => {
    if (!route.websocket) return;
    const count: preHandlerHookHandler = (request, _reply, done) => {
      if (request.ws) counts.add(request.method, request.routeOptions.url ?? NO_ROUTE, SWITCHING_PROTOCOLS);
      done();
    };
    route.preHandler = [count, ...[route.preHandler ?? []].flat()];
  });
}
