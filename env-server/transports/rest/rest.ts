import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { Type } from 'typebox';
import { Value } from 'typebox/value';
import { chain, type MaybePromise } from '../../environments/core/maybe-promise.ts';
import type { OperationInput } from '../../operations/declaration.ts';
import { runBatch } from '../../operations/dispatch/batch.ts';
import type { CompiledOperation, Dispatcher } from '../../operations/dispatch/dispatcher.ts';
import { execute, newCall } from '../../operations/dispatch/execute.ts';
import { plainResult } from '../../operations/dispatch/forwarded-result.ts';
import { textForm } from '../../operations/dispatch/reply-form.ts';
import type { TraceContext } from '../../operations/dispatch/tracing.ts';
import { compileCheck } from '../../operations/dispatch/validation.ts';
import type { Operation } from '../../operations/operation.ts';
import { RequestKey } from '../../operations/schemas.ts';
import { Problem } from '../../problems.ts';
import type { Principal } from '../../sessions/principal.ts';
import { traceIdOf } from '../monitoring/trace-requests.ts';
import type { ProblemHandler } from '../replies/problem-handler.ts';
import { revalidateReplies } from '../replies/revalidation.ts';
import { encodeText, type TextChunks } from '../replies/texts.ts';

export const JSON_TYPE = 'application/json; charset=utf-8';

/** A route for every operation. */
export async function addRestRoutes(app: FastifyInstance, dispatcher: Dispatcher): Promise<void> {
  const { true: tagged = [], false: others = [] } = Object.groupBy(
    dispatcher.operations,
    ({ operation }) => `${operation.revalidated === true}` as const,
  );
  addRoutes(app, dispatcher, others);
  await app.register(async pages => {
    await revalidateReplies(pages);
    addRoutes(pages, dispatcher, tagged);
  });
}

function addRoutes(
  app: FastifyInstance,
  dispatcher: Dispatcher,
  operations: readonly CompiledOperation[],
): void {
  for (const compiled of operations) {
    const { operation, checkRest } = compiled;
    const gather = gatherer(compiled);
    app.route({
      method: operation.method,
      url: operation.path.replaceAll(/\{(\w+)\}/g, ':$1'),
      handler(request, reply) {
        const input = gather(request);
        checkRest(input);
        const call = newCall(dispatcher.services, request.principal, request.trace);
        const result = execute(dispatcher.services, call, operation, input);
        if (result instanceof Promise) return result.then(value => send(reply, compiled, value));
        return send(reply, compiled, result);
      },
    });
  }
}

function send(reply: FastifyReply, compiled: CompiledOperation, result: unknown): FastifyReply {
  const { operation, serialize } = compiled;
  if (operation.status !== 200) reply.code(operation.status);
  if (operation.status === 204) return reply.send();
  const representation = operation.represent?.(plainResult(result));
  if (representation)
    return reply.header('content-type', representation.contentType).send(representation.body);
  return reply.header('content-type', JSON_TYPE).send(serialize(result));
}

/** Puts parameters, query, body and request key of a request into one object, as frames have it. */
function gatherer({ operation }: CompiledOperation): (request: FastifyRequest) => OperationInput {
  const params = Object.keys(operation.params.properties);
  const query = Object.keys(operation.query.properties);
  const elsewhere = [...params, ...query, 'request_key'];
  const shape = shapeOf(operation);
  return request => {
    const input = restInput(request.body, elsewhere, shape);
    for (const name of params) input[name] = (request.params as { [name: string]: string })[name];
    const given = request.query as { [name: string]: unknown };
    for (const name in given) {
      if (Object.hasOwn(input, name))
        throw unknownKey(name, `the query takes ${query.join(', ') || 'nothing'}`);
      input[name] = given[name];
    }
    if (query.length > 0) Value.Convert(operation.query, input);
    const key = request.headers['idempotency-key'];
    if (operation.keyed && key !== undefined) input.request_key = key;
    return input;
  };
}

/**
 * The part of an operation's input that a body brings.
 * @param elsewhere keys that other parts of the request bring
 * @param shape how a body looks
 * @throws Problem `invalid_request`
 */
export function restInput(
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
export function shapeOf({ body }: Operation): string {
  const names = Object.keys(body.properties);
  const required = names.filter(name => body.required?.includes(name));
  const shown = required.length > 0 ? required : names.slice(0, 1);
  return `{${shown.map(name => `"${name}": …`).join(', ')}}`;
}

const BATCH_SHAPE = '{"items": [{"op": "step", "session_id": "…", "action": …}, …]}';

function unknownKey(name: string, why: string): Problem {
  const detail = `unknown key "${name}": ${why}`;
  return new Problem('invalid_request', detail, { violations: [{ pointer: `/${name}`, detail }] });
}

const BATCH_EXAMPLE = [{ op: 'step', session_id: '…', action: 'Up' }];
const checkBatch = compileCheck(
  Type.Object(
    {
      items: Type.Array(Type.Unknown(), { minItems: 1, examples: [BATCH_EXAMPLE] }),
      wait: Type.Optional(Type.Integer({ minimum: 1 })),
      request_key: Type.Optional(RequestKey),
    },
    { additionalProperties: false },
  ),
  'batch',
);

/** A batch as it came over HTTP. */
export interface RestBatch {
  readonly body: unknown;
  /** `Idempotency-Key`. */
  readonly key: unknown;
  readonly principal: Principal;
  readonly trace?: TraceContext;
  readonly traceId: string | undefined;
}

/** `POST /v1/batch`. */
export function addBatchRoute(
  app: FastifyInstance,
  dispatcher: Dispatcher,
  problemHandler: ProblemHandler,
  mostItems: number,
): void {
  app.post('/v1/batch', (request, reply) => {
    const { body, headers, principal, trace } = request;
    const result = runRestBatch(dispatcher, problemHandler, mostItems, {
      body,
      key: headers['idempotency-key'],
      principal,
      trace,
      traceId: traceIdOf(request),
    });
    reply.header('content-type', JSON_TYPE);
    return result instanceof Promise
      ? result.then(pieces => reply.send(encodeText(pieces)))
      : reply.send(encodeText(result));
  });
}

/** @throws Problem when the batch as a whole is refused */
export function runRestBatch(
  dispatcher: Dispatcher,
  problemHandler: ProblemHandler,
  mostItems: number,
  { body, key, principal, trace, traceId }: RestBatch,
): MaybePromise<TextChunks> {
  const input = restInput(body, ['request_key'], BATCH_SHAPE);
  if (key !== undefined) input.request_key = key;
  checkBatch(input);
  const batch = {
    items: input.items as unknown[],
    wait: input.wait as number | undefined,
    requestKey: input.request_key as string | undefined,
    mostItems,
    problem: (error: unknown, sessionId: unknown) => problemHandler.document(error, { traceId, sessionId }),
  };
  const result = runBatch(dispatcher, newCall(dispatcher.services, principal, trace), batch, textForm);
  return chain(result, pieces => [...pieces, '\n']);
}
