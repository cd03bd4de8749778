import type { FastifyInstance, FastifyRequest, preHandlerHookHandler } from 'fastify';
import { remembered } from '../../../shared/remembered.ts';
import type { TraceContext } from '../../operations/operation.ts';

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

/** A request in progress. */
export interface RequestSpan {
  readonly context: TraceContext;
  end(status: number): void;
}

interface RequestTracing {
  request(method: string, route: string, headers: object): RequestSpan;
}

/** Gives every request a span; WebSocket frames are children of the upgrade's span. */
export function traceRequests(app: FastifyInstance, tracing: RequestTracing): void {
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
    const ofRoute = remembered(this.#counts, route, () => new Map());
    const counters = remembered(ofRoute, method, () => []);
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

/**
 * Settings for making and sending spans, from the standard variables
 * (https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables).
 */
export interface TracingSettings {
  readonly sampler: { readonly name: SamplerName; readonly ratio: number };
  /** Milliseconds between batches. */
  readonly delayMs: number | undefined;
  readonly timeoutMs: number | undefined;
  readonly mostQueued: number | undefined;
  readonly mostInBatch: number | undefined;
}

const SAMPLERS = [
  'parentbased_always_on',
  'parentbased_always_off',
  'parentbased_traceidratio',
  'always_on',
  'always_off',
  'traceidratio',
] as const;
type SamplerName = (typeof SAMPLERS)[number];

const EXPORTERS = ['otlp', 'none'] as const;
/** Every collector that supports OTLP over HTTP accepts this. */
const PROTOCOLS = ['http/protobuf'] as const;

type Variables = { readonly [name: string]: string | undefined };

/**
 * Reads the variables.
 * @returns undefined unless an endpoint or `OTEL_TRACES_EXPORTER=otlp` turns tracing on
 * @throws Error naming the variable and its allowed values
 */
export function readTracingSettings(variables: Variables): TracingSettings | undefined {
  const endpoint = variables.OTEL_EXPORTER_OTLP_TRACES_ENDPOINT || variables.OTEL_EXPORTER_OTLP_ENDPOINT;
  if (variables.OTEL_SDK_DISABLED?.toLowerCase() === 'true') return undefined;
  if (!endpoint && !variables.OTEL_TRACES_EXPORTER) return undefined;
  if (choice(variables, 'OTEL_TRACES_EXPORTER', EXPORTERS) === 'none') return undefined;
  choice(variables, 'OTEL_EXPORTER_OTLP_PROTOCOL', PROTOCOLS);
  choice(variables, 'OTEL_EXPORTER_OTLP_TRACES_PROTOCOL', PROTOCOLS);
  if (endpoint && !URL.canParse(endpoint)) {
    throw new Error(
      `OTEL_EXPORTER_OTLP_ENDPOINT must be a URL such as http://localhost:4318, got "${endpoint}"`,
    );
  }
  return {
    sampler: {
      name: choice(variables, 'OTEL_TRACES_SAMPLER', SAMPLERS),
      ratio: number(variables, 'OTEL_TRACES_SAMPLER_ARG', 1) ?? 1,
    },
    delayMs: number(variables, 'OTEL_BSP_SCHEDULE_DELAY'),
    timeoutMs: number(variables, 'OTEL_BSP_EXPORT_TIMEOUT'),
    mostQueued: number(variables, 'OTEL_BSP_MAX_QUEUE_SIZE'),
    mostInBatch: number(variables, 'OTEL_BSP_MAX_EXPORT_BATCH_SIZE'),
  };
}

/** The first choice where the variable is not set. */
function choice<T extends string>(variables: Variables, name: string, choices: readonly T[]): T {
  const value = variables[name] || choices[0];
  const found = choices.find(one => one === value);
  if (found === undefined) throw new Error(`${name} must be one of ${choices.join(', ')}, got "${value}"`);
  return found;
}

function number(variables: Variables, name: string, most = Number.POSITIVE_INFINITY): number | undefined {
  const text = variables[name];
  if (!text) return undefined;
  const value = Number(text);
  if (!(value >= 0 && value <= most)) {
    throw new Error(
      `${name} must be a number from 0${most < Number.POSITIVE_INFINITY ? ` to ${most}` : ''}, got "${text}"`,
    );
  }
  return value;
}
