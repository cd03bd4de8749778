import { Value } from 'typebox/value';
import { chain, type MaybePromise } from '../../environments/core/maybe-promise.ts';
import type { OperationInput } from '../../operations/declaration.ts';
import type { CompiledOperation, Dispatcher } from '../../operations/dispatch/dispatcher.ts';
import { execute, newCall } from '../../operations/dispatch/execute.ts';
import type { TraceContext } from '../../operations/dispatch/tracing.ts';
import { plainResult } from '../../operations/dispatch/written-result.ts';
import type { Operation } from '../../operations/operation.ts';
import { Problem } from '../../problems.ts';
import type { Principal } from '../../sessions/principal.ts';

export const JSON_TYPE = 'application/json; charset=utf-8';
export const OK = 200;
const NO_CONTENT = 204;

/** A request with all that a route needs of it, however it was read. */
export interface RestRequest {
  readonly principal: Principal;
  readonly params: { readonly [name: string]: string };
  readonly query: { readonly [name: string]: unknown };
  /** Parsed JSON; undefined where there was none. */
  readonly body: unknown;
  /** `Idempotency-Key`. */
  readonly key: unknown;
  /** Trace of the request, where requests are traced. */
  readonly trace: TraceContext | undefined;
  /** Trace id that problems of parts of the request name; a new one each when absent. */
  readonly traceId: string | undefined;
}

/** A reply that is still to be written. */
export interface RestReply {
  readonly status: number;
  readonly contentType: string | undefined;
  readonly body: string | Buffer | undefined;
}

/** The one implementation of a route; {@link addRestRoutes} and {@link PlainRequests} read requests and write replies for it. */
export interface RestRoute {
  readonly method: string;
  /** Path as Fastify has it: `/v1/sessions/:session_id`. */
  readonly url: string;
  /** True if its replies have an `ETag`. */
  readonly revalidated: boolean;
  /** @throws Problem, or what the environment code threw (see `problemOf`) */
  run(request: RestRequest): MaybePromise<RestReply>;
}

/** The route of an operation. */
export function operationRoute(dispatcher: Dispatcher, compiled: CompiledOperation): RestRoute {
  const { operation, checkRest } = compiled;
  const { services } = dispatcher;
  const gather = gatherer(operation);
  const reply = replier(compiled);
  return {
    method: operation.method,
    url: operation.path.replaceAll(/\{(\w+)\}/g, ':$1'),
    revalidated: operation.revalidated === true,
    run(request) {
      const input = gather(request);
      checkRest(input);
      const result = execute(services, newCall(services, request.principal, request.trace), operation, input);
      return chain(result, reply);
    },
  };
}

/** Makes the reply of an operation's result. Texts of JSON end with a line break, so that the shell prompt after curl starts a new line. */
function replier({ operation, serialize }: CompiledOperation): (result: unknown) => MaybePromise<RestReply> {
  const { status } = operation;
  if (status === NO_CONTENT) return () => ({ status, contentType: undefined, body: undefined });
  const json = (result: unknown): RestReply => ({
    status,
    contentType: JSON_TYPE,
    body: `${serialize(result)}\n`,
  });
  if (!operation.represent) return json;
  return result =>
    chain(operation.represent?.(plainResult(result)), representation =>
      representation
        ? { status, contentType: representation.contentType, body: representation.body }
        : json(result),
    );
}

/** Puts parameters, query, body and request key of a request into one object, as frames have it. */
function gatherer(operation: Operation): (request: RestRequest) => OperationInput {
  const params = Object.keys(operation.params.properties);
  const query = Object.keys(operation.query.properties);
  const elsewhere = [...params, ...query, 'request_key'];
  const shape = shapeOf(operation);
  return request => {
    const input = inputOf(request.body, elsewhere, shape);
    for (const name of params) input[name] = request.params[name];
    const given = request.query;
    for (const name in given) {
      if (Object.hasOwn(input, name))
        throw unknownKey(name, `the query takes ${query.join(', ') || 'nothing'}`);
      input[name] = given[name];
    }
    if (query.length > 0) Value.Convert(operation.query, input);
    if (operation.keyed && request.key !== undefined) input.request_key = request.key;
    return input;
  };
}

/**
 * The part of an operation's input that a body brings.
 * @param elsewhere keys that other parts of the request bring
 * @param shape how a body looks
 * @throws Problem `invalid_request`
 */
export function inputOf(
  body: unknown,
  elsewhere: readonly string[],
  shape: string,
): { [name: string]: unknown } {
  if (body === undefined) return {};
  if (typeof body !== 'object' || body === null || Array.isArray(body)) {
    const given = body === null ? 'null' : Array.isArray(body) ? 'a list' : `a ${typeof body}`;
    throw new Problem('invalid_request', `the body must be a JSON object such as ${shape}, got ${given}`);
  }
  for (const name of elsewhere) {
    if (Object.hasOwn(body, name)) {
      const place =
        name === 'request_key' ? 'over HTTP it is the header Idempotency-Key' : 'it belongs in the address';
      throw unknownKey(name, `${place}, not in the body`);
    }
  }
  return body as { [name: string]: unknown };
}

/** A body as an operation takes it, in short: its required keys, or else its first one. */
function shapeOf({ body }: Operation): string {
  const names = Object.keys(body.properties);
  const required = names.filter(name => body.required?.includes(name));
  const shown = required.length > 0 ? required : names.slice(0, 1);
  return `{${shown.map(name => `"${name}": …`).join(', ')}}`;
}

function unknownKey(name: string, why: string): Problem {
  const detail = `unknown key "${name}": ${why}`;
  return new Problem('invalid_request', detail, { violations: [{ pointer: `/${name}`, detail }] });
}
