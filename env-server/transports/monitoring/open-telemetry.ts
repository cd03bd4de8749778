import {
  type Context,
  DiagLogLevel,
  defaultTextMapGetter,
  diag,
  INVALID_TRACEID,
  ROOT_CONTEXT,
  type Span,
  SpanKind,
  SpanStatusCode,
  type Tracer,
  trace,
} from '@opentelemetry/api';
import { W3CTraceContextPropagator } from '@opentelemetry/core';
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-proto';
import { detectResources, envDetector, resourceFromAttributes } from '@opentelemetry/resources';
import {
  AlwaysOffSampler,
  AlwaysOnSampler,
  BatchSpanProcessor,
  ParentBasedSampler,
  type Sampler,
  TraceIdRatioBasedSampler,
  TracerProvider,
} from '@opentelemetry/sdk-trace';
import type { Logger } from 'pino';
import type { MaybePromise } from '../../environments/core/maybe-promise.ts';
import type { Operation, OperationInput, TraceContext, Tracing } from '../../operations/operation.ts';
import { Problem } from '../../problems.ts';
import type { RequestSpan, TracingSettings } from './trace-requests.ts';

const SERVICE_NAME = 'ragen-env-server';
const propagator = new W3CTraceContextPropagator();

/** Makes spans and sends them by OTLP to `OTEL_EXPORTER_OTLP_ENDPOINT`. */
export class OpenTelemetry implements Tracing {
  readonly #provider: TracerProvider;
  readonly #tracer: Tracer;
  readonly #log: Logger;

  constructor(settings: TracingSettings, log: Logger) {
    this.#log = log;
    const warn = (message: string, ...more: unknown[]) => log.warn({ more }, `OpenTelemetry: ${message}`);
    const quiet = () => undefined;
    diag.setLogger({ error: warn, warn, info: quiet, debug: quiet, verbose: quiet }, DiagLogLevel.WARN);
    const named = resourceFromAttributes({ 'service.name': SERVICE_NAME });
    this.#provider = new TracerProvider({
      resource: named.merge(detectResources({ detectors: [envDetector] })),
      sampler: samplerOf(settings.sampler),
      spanProcessors: [
        new BatchSpanProcessor({
          exporter: new OTLPTraceExporter(),
          scheduledDelayMillis: settings.delayMs,
          exportTimeoutMillis: settings.timeoutMs,
          maxQueueSize: settings.mostQueued,
          maxExportBatchSize: settings.mostInBatch,
        }),
      ],
    });
    this.#tracer = this.#provider.getTracer(SERVICE_NAME);
  }

  /**
   * Begins the span of a request, as a child of the one its `traceparent` names.
   * @param route with parameter names, not values
   */
  request(method: string, route: string, headers: object): RequestSpan {
    const parent = propagator.extract(ROOT_CONTEXT, headers, defaultTextMapGetter);
    const attributes = { 'http.request.method': method, 'http.route': route };
    const span = this.#tracer.startSpan(`${method} ${route}`, { kind: SpanKind.SERVER, attributes }, parent);
    return {
      context: new OpenContext(trace.setSpan(parent, span)),
      end(status) {
        span.setAttribute('http.response.status_code', status);
        if (status >= 500) span.setStatus({ code: SpanStatusCode.ERROR });
        span.end();
      },
    };
  }

  below(traceparent: string): TraceContext {
    return new OpenContext(propagator.extract(ROOT_CONTEXT, { traceparent }, defaultTextMapGetter));
  }

  operation<T>(
    parent: TraceContext | undefined,
    operation: Operation,
    input: OperationInput,
    work: () => MaybePromise<T>,
  ): MaybePromise<T> {
    const context = parent instanceof OpenContext ? parent.context : ROOT_CONTEXT;
    const span = this.#tracer.startSpan(operation.name, { attributes: attributesOf(input) }, context);
    const failed = (error: unknown): never => {
      endFailed(span, error);
      throw error;
    };
    try {
      const result = work();
      if (result instanceof Promise) {
        return result.then(value => {
          span.end();
          return value;
        }, failed);
      }
      span.end();
      return result;
    } catch (error) {
      return failed(error);
    }
  }

  /** Sends the remaining spans, if possible. */
  async close(): Promise<void> {
    try {
      await this.#provider.shutdown();
    } catch (error) {
      this.#log.warn({ err: error }, 'the last spans could not be sent');
    }
  }
}

class OpenContext implements TraceContext {
  readonly context: Context;
  readonly traceId: string;

  constructor(context: Context) {
    this.context = context;
    this.traceId = trace.getSpanContext(context)?.traceId ?? INVALID_TRACEID;
  }
}

function attributesOf({ session_id, env_id }: OperationInput): { [name: string]: string } {
  return {
    ...(typeof session_id === 'string' && { 'ragen.session_id': session_id }),
    ...(typeof env_id === 'string' && { 'ragen.env_id': env_id }),
  };
}

/** Client mistakes are not server errors. */
function endFailed(span: Span, error: unknown): void {
  const problem = error instanceof Problem ? error : undefined;
  if (problem) span.setAttribute('ragen.problem', problem.code);
  if (!problem || problem.status >= 500) {
    span.recordException(error instanceof Error ? error : String(error));
    span.setStatus({ code: SpanStatusCode.ERROR, message: problem?.message });
  }
  span.end();
}

function samplerOf({ name, ratio }: TracingSettings['sampler']): Sampler {
  switch (name) {
    case 'always_on':
      return new AlwaysOnSampler();
    case 'always_off':
      return new AlwaysOffSampler();
    case 'traceidratio':
      return new TraceIdRatioBasedSampler(ratio);
    case 'parentbased_always_on':
      return new ParentBasedSampler({ root: new AlwaysOnSampler() });
    case 'parentbased_always_off':
      return new ParentBasedSampler({ root: new AlwaysOffSampler() });
    case 'parentbased_traceidratio':
      return new ParentBasedSampler({ root: new TraceIdRatioBasedSampler(ratio) });
  }
}
