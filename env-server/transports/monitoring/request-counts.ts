import type { FastifyInstance, preHandlerHookHandler } from 'fastify';

const SWITCHING_PROTOCOLS = 101;
const STATUSES_PER_CLASS = 100;
/** Route label of requests that fit no route or could not be read. */
export const NO_ROUTE = 'none';

/** Number of replies to one method and route with one status class. */
export interface RequestCount {
  readonly method: string;
  readonly route: string;
  /** `2xx`, for example. */
  readonly status: string;
  count: number;
}

/** Counts answered HTTP requests; a WebSocket upgrade has the class `1xx`. */
export class RequestCounts {
  /** By route, then by method, then by class of status. */
  readonly #counts = new Map<string, Map<string, (RequestCount | undefined)[]>>();

  /** @param route as declared, so that the number of labels is bounded */
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

/** Counts requests that become a WebSocket: they have no response while it is open. */
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
