import type { Static, TObject, TProperties, TSchema } from 'typebox';
import { closed } from '../../shared/schema/type.ts';
import type { EXAMPLES } from '../custom/examples.ts';
import type { Registrations } from '../custom/registrations/registrations.ts';
import type { MaybePromise } from '../environments/core/maybe-promise.ts';
import type { AuditAction } from '../persistence/environment-rows.ts';
import type { ProblemCode } from '../problems.ts';
import type { VariantCatalog } from '../sessions/episodes/variant.ts';
import type { SessionManager } from '../sessions/manager.ts';
import type { Principal, Scope } from '../sessions/principal.ts';
import type { Session } from '../sessions/session.ts';
import type { SharedSessions } from '../sessions/storage/shared-sessions.ts';
import { SessionId } from './schemas/fields.ts';

/** Parameters, query and body of a request in one flat object, as in frames. */
export type OperationInput = { readonly [key: string]: unknown };

/** Form of a result that REST does not send as JSON. */
export interface Representation {
  readonly contentType: string;
  readonly body: string | Buffer;
}

/** An operation without its handler. */
export interface OperationDeclaration {
  /** `op` of frames and batch items, `operationId` in OpenAPI. */
  readonly name: string;
  readonly method: 'GET' | 'POST' | 'PUT' | 'DELETE';
  /** Path of the route, with `{name}` for parameters. */
  readonly path: string;
  /** HTTP status of success; 204 has no body. */
  readonly status: 200 | 201 | 204;
  readonly scope: Scope;
  readonly tag: 'sessions' | 'environments';
  readonly summary: string;
  readonly description?: string;
  readonly result: TSchema;
  /** Writes the JSON text of a result, where that is faster than `JSON.stringify`. */
  serialize?(result: unknown): string;
  /** True if it changes something, and so honors request keys. */
  readonly keyed: boolean;
  /** True if it runs an environment's code, which may fail in many ways. */
  readonly plays?: boolean;
  /** Error codes specific to it; `documentedProblems` adds the common ones. */
  readonly problems?: readonly ProblemCode[];
  /** True if its REST replies have an `ETag`: they are large and rarely change. */
  readonly revalidated?: boolean;
  /** Name in the audit log, which also records refused attempts. */
  readonly audited?: AuditAction;
  /** Body properties that the reference shows in more detail than the check requires. */
  readonly documented?: TProperties;
  /** Example bodies for the reference, by name. */
  readonly examples?: typeof EXAMPLES;
  /** Content types that `represent` may choose besides JSON. */
  readonly mediaTypes?: readonly string[];
  /** Schema of the JSON that `represent` writes, where that is not the result. */
  readonly representedJson?: TSchema;
}

export interface OperationSchemas {
  readonly params: TObject;
  readonly query: TObject;
  readonly body: TObject;
}

/** Trace context of a request. */
export interface TraceContext {
  /** 32 hexadecimal digits. */
  readonly traceId: string;
}

/** Reports operation durations to a tracing backend. */
export interface Tracing {
  /** Parent span in another process, from its `traceparent` (W3C Trace Context). */
  below(traceparent: string): TraceContext;
  /** Runs an operation in a new span. */
  operation<T>(
    parent: TraceContext | undefined,
    operation: OperationDeclaration,
    input: OperationInput,
    work: () => MaybePromise<T>,
  ): MaybePromise<T>;
}

/**
 * An operation's result as JSON text, parsed only when needed: another process ran the operation, or the text is long
 * and was written in slices.
 */
export class WrittenResult {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }

  /** Text for stores of replies. */
  toJSON(): unknown {
    return JSON.parse(this.text);
  }
}

/** The parsed result. */
export function plainResult(result: unknown): unknown {
  return result instanceof WrittenResult ? result.toJSON() : result;
}

export interface Services {
  readonly sessions: SessionManager;
  readonly catalog: VariantCatalog;
  readonly registrations: Registrations;
  /** Default timeout of an operation on a session, in milliseconds. */
  readonly stepTimeoutMs: number;
  /** Tracing of operations, if it is on. */
  readonly tracing?: Tracing;
  /** Sessions in a store that several servers share. */
  readonly shared?: SharedSessions;
}

/**
 * One client request; a batch holds many calls. Clocks are read as rarely as possible, because reading one costs as
 * much as a step.
 */
export interface ClientRequest {
  readonly principal: Principal;
  /** Unique for each request. */
  readonly number: number;
  /** Arrival time by the server's clock, in milliseconds. */
  readonly now: number;
  /** Start of the next operation, in milliseconds of `performance.now`. */
  mark: number;
  readonly trace: TraceContext | undefined;
}

/** One operation on its way through the stages to its handler, with validated input. */
export interface Call<I = OperationInput> {
  readonly services: Services;
  readonly operation: Operation;
  readonly input: I;
  readonly request: ClientRequest;
  /** The session of the operation, once located. */
  session: Session | undefined;
  /** The operation's request key, if it has one. */
  key: string | undefined;
}

/** An operation on the server as a whole. */
export interface ServerOperation extends OperationDeclaration, OperationSchemas {
  readonly target: 'server';
  handle(this: void, call: Call): MaybePromise<unknown>;
  represent?(result: unknown): MaybePromise<Representation | undefined>;
}

/** An operation on one session; it runs after the session's earlier operations. */
export interface SessionOperation extends OperationDeclaration, OperationSchemas {
  readonly target: 'session';
  handle(this: void, session: Session, call: Call): MaybePromise<unknown>;
  represent?(result: unknown): MaybePromise<Representation | undefined>;
}

export type Operation = ServerOperation | SessionOperation;

type Input<P extends TProperties, Q extends TProperties, B extends TProperties> = Static<TObject<P>> &
  Static<TObject<Q>> &
  Static<TObject<B>>;

interface Properties<P extends TProperties, Q extends TProperties, B extends TProperties> {
  readonly params?: P;
  readonly query?: Q;
  readonly body?: B;
}

const NO_PROPERTIES = {};

type Defaulted = 'status' | 'scope' | 'keyed';
type Declared = Omit<OperationDeclaration, 'result' | 'serialize' | 'tag' | Defaulted> &
  Partial<Pick<OperationDeclaration, Defaulted>>;

/** A declaration with its defaults, and schemas of whole objects. */
const declared = (
  declaration: Declared & Properties<TProperties, TProperties, TProperties>,
  params: TProperties | undefined = declaration.params,
) => ({
  status: 200 as const,
  scope: 'play' as const,
  keyed: false,
  tag: declaration.path.startsWith('/v1/sessions') ? ('sessions' as const) : ('environments' as const),
  ...declaration,
  params: closed(params ?? {}),
  query: closed(declaration.query ?? {}),
  body: closed(declaration.body ?? {}),
});

/** Declares an operation on the server; the schemas type the handler's input and result. */
export function serverOperation<
  R extends TSchema,
  P extends TProperties = typeof NO_PROPERTIES,
  Q extends TProperties = typeof NO_PROPERTIES,
  B extends TProperties = typeof NO_PROPERTIES,
>(
  declaration: Declared &
    Properties<P, Q, B> & {
      result: R;
      handle(this: void, call: Call<Input<P, Q, B>>): MaybePromise<Static<R> | WrittenResult>;
      represent?(result: Static<R>): MaybePromise<Representation | undefined>;
      serialize?(result: Static<R>): string;
    },
): ServerOperation {
  return { ...declared(declaration), target: 'server' } as unknown as ServerOperation;
}

/** Declares an operation on the session that its parameter `session_id` names. */
export function sessionOperation<
  R extends TSchema,
  Q extends TProperties = typeof NO_PROPERTIES,
  B extends TProperties = typeof NO_PROPERTIES,
>(
  declaration: Omit<Declared, 'scope'> &
    Properties<typeof NO_PROPERTIES, Q, B> & {
      result: R;
      handle(
        this: void,
        session: Session,
        call: Call<Input<typeof NO_PROPERTIES, Q, B>>,
      ): MaybePromise<Static<R> | WrittenResult>;
      represent?(result: Static<R>): MaybePromise<Representation | undefined>;
      serialize?(result: Static<R>): string;
    },
): SessionOperation {
  const params = { session_id: SessionId };
  return { ...declared(declaration, params), target: 'session' } as unknown as SessionOperation;
}
