import { type Static, type TObject, type TProperties, type TSchema, Type } from 'typebox';
import type { JsonObject } from '../../shared/json.ts';
import type { MaybePromise } from '../../shared/maybe-promise.ts';
import type { ProblemCode } from '../../shared/problems.ts';
import type { Registrations } from '../custom/registrations.ts';
import type { Catalogue } from '../sessions/catalogue.ts';
import type { SessionManager } from '../sessions/manager.ts';
import type { Principal, Scope } from '../sessions/principal.ts';
import type { Session } from '../sessions/session.ts';
import type { AuditAction } from '../store/store.ts';
import type { Peers } from './peers.ts';
import { SessionId } from './schemas.ts';
import type { Tracing } from './tracing.ts';

export interface Services {
  readonly sessions: SessionManager;
  readonly catalogue: Catalogue;
  readonly registrations: Registrations;
  /** How long a client waits for an operation on a session unless it says otherwise, in milliseconds. */
  readonly stepTimeoutMs: number;
  /** Where operations are traced. */
  readonly tracing?: Tracing;
  /** Where this process is one of several. */
  readonly peers?: Peers;
}

/** Parameters, query and body of a request in one flat object, as frames carry them. */
export type OperationInput = { readonly [key: string]: unknown };

/** How the REST door writes a result that is not sent as JSON. */
export interface Representation {
  readonly contentType: string;
  readonly body: string | Buffer;
}

export interface BodyExample {
  readonly summary: string;
  readonly value: JsonObject;
}

interface Declaration {
  /** `op` of frames and batch items, `operationId` in OpenAPI. */
  readonly name: string;
  readonly method: 'GET' | 'POST' | 'PUT' | 'DELETE';
  /** With `{name}` for parameters. */
  readonly path: string;
  /** Status of success; 204 has no body. */
  readonly status: 200 | 201 | 204;
  readonly scope: Scope;
  readonly tag: 'sessions' | 'environments';
  readonly summary: string;
  readonly description?: string;
  readonly result: TSchema;
  /** Changes something, hence honours request keys. */
  readonly keyed: boolean;
  /** Lets an environment's code run, with all that may come of it. */
  readonly plays?: boolean;
  /** Codes that are its own; `documentedProblems` adds those that many operations share. */
  readonly problems?: readonly ProblemCode[];
  /** Its REST replies have an `ETag`: they are large and rarely change. */
  readonly revalidated?: boolean;
  /** What the audit log calls it, refused attempts included. */
  readonly audited?: AuditAction;
  /** Properties of the body that the reference shows in more detail than the check looks at. */
  readonly documented?: TProperties;
  /** Bodies for the reference, by name. */
  readonly examples?: { readonly [name: string]: BodyExample };
  /** Content types that `represent` may choose besides JSON. */
  readonly mediaTypes?: readonly string[];
  /** What `represent` writes as JSON, where that is not the result. */
  readonly representedJson?: TSchema;
}

interface Schemas {
  readonly params: TObject;
  readonly query: TObject;
  readonly body: TObject;
}

/** An operation on the server as a whole. */
export interface ServerOperation extends Declaration, Schemas {
  readonly target: 'server';
  handle(services: Services, principal: Principal, input: OperationInput): MaybePromise<unknown>;
  represent?(result: unknown): Representation | undefined;
}

/** An operation on one session; runs when those that arrived before it are done. */
export interface SessionOperation extends Declaration, Schemas {
  readonly target: 'session';
  handle(services: Services, session: Session, input: OperationInput): MaybePromise<unknown>;
  represent?(result: unknown): Representation | undefined;
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
  declaration: Omit<Declaration, 'result'> &
    Properties<P, Q, B> & {
      result: R;
      handle(services: Services, principal: Principal, input: Input<P, Q, B>): MaybePromise<Static<R>>;
      represent?(result: Static<R>): Representation | undefined;
    },
): ServerOperation {
  return {
    ...declaration,
    handle: declaration.handle as ServerOperation['handle'],
    represent: declaration.represent as ServerOperation['represent'],
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
  declaration: Omit<Declaration, 'result' | 'tag' | 'scope'> &
    Properties<typeof NO_PROPERTIES, Q, B> & {
      result: R;
      handle(
        services: Services,
        session: Session,
        input: Input<typeof NO_PROPERTIES, Q, B>,
      ): MaybePromise<Static<R>>;
      represent?(result: Static<R>): Representation | undefined;
    },
): SessionOperation {
  return {
    ...declaration,
    handle: declaration.handle as SessionOperation['handle'],
    represent: declaration.represent as SessionOperation['represent'],
    target: 'session',
    tag: 'sessions',
    scope: 'play',
    params: object({ session_id: SessionId }),
    query: object(declaration.query),
    body: object(declaration.body),
  };
}
