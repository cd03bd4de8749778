import type { MaybePromise } from '../../environments/core/maybe-promise.ts';
import type { OperationDeclaration, OperationInput } from '../declaration.ts';

/** Position of a request in its trace. */
export interface TraceContext {
  /** 32 hexadecimal digits. */
  readonly traceId: string;
}

/** Reports durations of operations to a tracing backend. */
export interface Tracing {
  /** The place of a span in somebody else's process, by its `traceparent` (W3C Trace Context). */
  below(traceparent: string): TraceContext;
  /** Runs an operation in a new span. */
  operation<T>(
    parent: TraceContext | undefined,
    operation: OperationDeclaration,
    input: OperationInput,
    work: () => MaybePromise<T>,
  ): MaybePromise<T>;
}
