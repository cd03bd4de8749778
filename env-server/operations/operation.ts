import type { Static, TObject, TProperties, TSchema } from 'typebox';
import { Type } from '../../shared/schema/type.ts';
import type { Registrations } from '../custom/registrations/registrations.ts';
import type { MaybePromise } from '../environments/core/maybe-promise.ts';
import type { SessionManager } from '../sessions/manager.ts';
import type { Principal } from '../sessions/principal.ts';
import type { Session } from '../sessions/session.ts';
import type { SharedSessions } from '../sessions/storage/shared-sessions.ts';
import type { VariantCatalog } from '../sessions/variant-catalog.ts';
import type {
  OperationDeclaration,
  OperationInput,
  OperationSchemas,
  Representation,
} from './declaration.ts';
import { SessionId } from './schemas/fields.ts';

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

/**
 * The result of an operation as JSON text, read only where somebody looks into it: another process ran the operation, or
 * it is so long that it was written in slices.
 */
export class WrittenResult {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }

  /** For what stores replies. */
  toJSON(): unknown {
    return JSON.parse(this.text);
  }
}

/** The result itself. */
export function plainResult(result: unknown): unknown {
  return result instanceof WrittenResult ? result.toJSON() : result;
}

export interface Services {
  readonly sessions: SessionManager;
  readonly catalog: VariantCatalog;
  readonly registrations: Registrations;
  /** Milliseconds that a client waits for an operation on a session unless it says otherwise. */
  readonly stepTimeoutMs: number;
  /** Tracing of operations, if it is on. */
  readonly tracing?: Tracing;
  /** Sessions in a store that several servers share. */
  readonly shared?: SharedSessions;
}

/** An operation on the server as a whole. */
export interface ServerOperation extends OperationDeclaration, OperationSchemas {
  readonly target: 'server';
  handle(services: Services, principal: Principal, input: OperationInput): MaybePromise<unknown>;
  represent?(result: unknown): MaybePromise<Representation | undefined>;
}

/** An operation on one session; runs when those that arrived before it are done. */
export interface SessionOperation extends OperationDeclaration, OperationSchemas {
  readonly target: 'session';
  handle(services: Services, session: Session, input: OperationInput): MaybePromise<unknown>;
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

const object = (properties: TProperties | undefined): TObject =>
  Type.Object(properties ?? {}, { additionalProperties: false });

const NO_PROPERTIES = {};

/** Declares an operation on the server; the handler's input and result are typed by the schemas. */
export function serverOperation<
  R extends TSchema,
  P extends TProperties = typeof NO_PROPERTIES,
  Q extends TProperties = typeof NO_PROPERTIES,
  B extends TProperties = typeof NO_PROPERTIES,
>(
  declaration: Omit<OperationDeclaration, 'result' | 'serialize'> &
    Properties<P, Q, B> & {
      result: R;
      handle(
        services: Services,
        principal: Principal,
        input: Input<P, Q, B>,
      ): MaybePromise<Static<R> | WrittenResult>;
      represent?(result: Static<R>): MaybePromise<Representation | undefined>;
      serialize?(result: Static<R>): string;
    },
): ServerOperation {
  return {
    ...declaration,
    handle: declaration.handle as ServerOperation['handle'],
    represent: declaration.represent as ServerOperation['represent'],
    serialize: declaration.serialize as ServerOperation['serialize'],
    target: 'server',
    params: object(declaration.params),
    query: object(declaration.query),
    body: object(declaration.body),
  };
}

/** Declares an operation on one session, which its parameter `session_id` names. */
export function sessionOperation<
  R extends TSchema,
  Q extends TProperties = typeof NO_PROPERTIES,
  B extends TProperties = typeof NO_PROPERTIES,
>(
  declaration: Omit<OperationDeclaration, 'result' | 'serialize' | 'tag' | 'scope'> &
    Properties<typeof NO_PROPERTIES, Q, B> & {
      result: R;
      handle(
        services: Services,
        session: Session,
        input: Input<typeof NO_PROPERTIES, Q, B>,
      ): MaybePromise<Static<R> | WrittenResult>;
      represent?(result: Static<R>): MaybePromise<Representation | undefined>;
      serialize?(result: Static<R>): string;
    },
): SessionOperation {
  return {
    ...declaration,
    handle: declaration.handle as SessionOperation['handle'],
    represent: declaration.represent as SessionOperation['represent'],
    serialize: declaration.serialize as SessionOperation['serialize'],
    target: 'session',
    tag: 'sessions',
    scope: 'play',
    params: object({ session_id: SessionId }),
    query: object(declaration.query),
    body: object(declaration.body),
  };
}
