import type { TObject, TProperties, TSchema } from 'typebox';
import type { JsonObject } from '../../shared/json.ts';
import type { AuditAction } from '../persistence/stored-environment.ts';
import type { ProblemCode } from '../problems.ts';
import type { Scope } from '../sessions/principal.ts';

/** Parameters, query and body of a request in one flat object, as frames carry them. */
export type OperationInput = { readonly [key: string]: unknown };

/** Form of a result that REST does not send as JSON. */
export interface Representation {
  readonly contentType: string;
  readonly body: string | Buffer;
}

interface BodyExample {
  readonly summary: string;
  readonly value: JsonObject;
}

/** An operation without its handler. */
export interface OperationDeclaration {
  /** `op` of frames and batch items, `operationId` in OpenAPI. */
  readonly name: string;
  readonly method: 'GET' | 'POST' | 'PUT' | 'DELETE';
  /** Path of the route, with `{name}` for parameters. */
  readonly path: string;
  /** Status of success; 204 has no body. */
  readonly status: 200 | 201 | 204;
  readonly scope: Scope;
  readonly tag: 'sessions' | 'environments';
  readonly summary: string;
  readonly description?: string;
  readonly result: TSchema;
  /** Makes the JSON text of a result, where that is quicker than `JSON.stringify`. */
  serialize?(result: unknown): string;
  /** Changes something, hence honors request keys. */
  readonly keyed: boolean;
  /** Lets an environment's code run, with all that may come of it. */
  readonly plays?: boolean;
  /** Codes that are its own; `documentedProblems` adds those that many operations share. */
  readonly problems?: readonly ProblemCode[];
  /** True if its REST replies have an `ETag`: they are large and rarely change. */
  readonly revalidated?: boolean;
  /** Its name in the audit log, which also records refused attempts. */
  readonly audited?: AuditAction;
  /** Properties of the body that the reference shows in more detail than the check looks at. */
  readonly documented?: TProperties;
  /** Bodies for the reference, by name. */
  readonly examples?: { readonly [name: string]: BodyExample };
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
