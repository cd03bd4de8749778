import type { MaybePromise } from '../../environments/core/maybe-promise.ts';
import type { OperationDeclaration, OperationInput } from '../declaration.ts';

/** Where a request stands in its trace. */
export interface TraceContext {
  /** 32 hexadecimal digits. */
  readonly traceId: string;
}

/** Tells somebody else how long operations took. */
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
