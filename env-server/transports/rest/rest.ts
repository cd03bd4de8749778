import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { isObject } from '../../../shared/json.ts';
import { closed, Type } from '../../../shared/schema/type.ts';
import { chain, type MaybePromise } from '../../environments/core/maybe-promise.ts';
import { type Operation, type OperationInput, plainResult } from '../../operations/operation.ts';
import { RequestKey } from '../../operations/schemas/fields.ts';
import { compileCheck } from '../../operations/validation.ts';
import { invalidRequest, Problem } from '../../problems.ts';
import { runBatch, textForm } from '../../stages/batch.ts';
import type { CompiledOperation, Dispatcher } from '../../stages/dispatcher.ts';
import { traceIdOf } from '../monitoring/trace-requests.ts';
import { encodeText, JSON_TYPE, revalidateReplies } from '../replies/content.ts';
import type { ProblemHandler } from '../replies/problem-handler.ts';

const NO_CONTENT = 204;
const OK = 200;
/** Routes that programs use all the time: their replies are sent at once, without changes. */
const FREQUENT = { config: { isUncompressed: true } } as const;

export interface RestParts {
  readonly problemHandler: ProblemHandler;
  readonly maxBatchItems: number;
}

/** A route for every operation, and one for batches. */
export async function addRestRoutes(
  app: FastifyInstance,
  dispatcher: Dispatcher,
  parts: RestParts,
): Promise<void> {
  addBatchRoute(app, dispatcher, parts);
  const { true: tagged = [], false: others = [] } = Object.groupBy(
    dispatcher.operations,
    ({ operation }) => `${operation.revalidated === true}` as const,
  );
  for (const compiled of others) addRoute(app, dispatcher, compiled);
  await app.register(async scope => {
    await revalidateReplies(scope);
    for (const compiled of tagged) addRoute(scope, dispatcher, compiled);
  });
}

/** Decodes requests to calls of an operation, and encodes its results. */
function addRoute(app: FastifyInstance, dispatcher: Dispatcher, compiled: CompiledOperation): void {
  const { operation, checkRest, run } = compiled;
  const decode = decoder(operation);
  const encode = encoder(compiled);
  app.route({
    method: operation.method,
    url: operation.path.replaceAll(/\{(\w+)\}/g, ':$1'),
    ...(operation.name === 'step' && FREQUENT),
    handler(request, reply) {
      const input = decode(request);
      checkRest(input);
      const result = run(dispatcher.begin(request.principal, request.trace), input);
      if (!(result instanceof Promise)) return encode(reply, result);
      return result.then(value => encode(reply, value)).then(() => reply);
    },
  });
}

/** `POST /v1/batch`. */
function addBatchRoute(
  app: FastifyInstance,
  dispatcher: Dispatcher,
  { problemHandler, maxBatchItems }: RestParts,
): void {
  app.post('/v1/batch', FREQUENT, (request, reply) => {
    const input = inputOf(request.body, ['request_key'], BATCH_SHAPE);
    const { 'idempotency-key': key } = request.headers;
    if (key !== undefined) input.request_key = key;
    checkBatch(input);
    const traceId = traceIdOf(request);
    const batch = {
      items: input.items as unknown[],
      wait: input.wait as number | undefined,
      requestKey: input.request_key as string | undefined,
      mostItems: maxBatchItems,
      problem: (error: unknown, sessionId: unknown) => problemHandler.document(error, { traceId, sessionId }),
    };
    const texts = runBatch(dispatcher, dispatcher.begin(request.principal, request.trace), batch, textForm);
    const encode = (pieces: readonly string[]) => send(reply, OK, JSON_TYPE, encodeText([...pieces, '\n']));
    if (!(texts instanceof Promise)) return encode(texts);
    return texts.then(encode).then(() => reply);
  });
}

const BATCH_SHAPE = '{"items": [{"op": "step", "session_id": "…", "action": …}, …]}';
const BATCH_EXAMPLE = [{ op: 'step', session_id: '…', action: 'Up' }];
const checkBatch = compileCheck(
  closed({
    items: Type.Array(Type.Unknown(), { minItems: 1, examples: [BATCH_EXAMPLE] }),
    wait: Type.Optional(Type.Integer({ minimum: 1 })),
    request_key: Type.Optional(RequestKey),
  }),
  'batch',
);

/**
 * Sends the result of an operation. JSON texts end with a line break, so that the shell prompt after curl starts a new line.
 */
function encoder({
  operation,
  serialize,
}: CompiledOperation): (reply: FastifyReply, result: unknown) => MaybePromise<void> {
  const { status } = operation;
  if (status === NO_CONTENT) return reply => void reply.code(status).send();
  const json = (reply: FastifyReply, result: unknown) =>
    send(reply, status, JSON_TYPE, `${serialize(result)}\n`);
  if (!operation.represent) return json;
  return (reply, result) =>
    chain(operation.represent?.(plainResult(result)), representation =>
      representation
        ? send(reply, status, representation.contentType, representation.body)
        : json(reply, result),
    );
}

function send(reply: FastifyReply, status: number, contentType: string, body: string | Buffer): void {
  reply.code(status).header('content-type', contentType).send(body);
}

/** Merges a request's parameters, query, body and request key into one object, as in frames. */
function decoder(operation: Operation): (request: FastifyRequest) => OperationInput {
  const params = Object.keys(operation.params.properties);
  const query = Object.keys(operation.query.properties);
  const { properties } = operation.query as { properties: { [name: string]: { type?: unknown } } };
  const numbers = query.filter(name => properties[name].type === 'integer');
  const elsewhere = [...params, ...query, 'request_key'];
  const shape = shapeOf(operation);
  return request => {
    const input = inputOf(request.body, elsewhere, shape);
    const values = request.params as { readonly [name: string]: string };
    for (const name of params) input[name] = values[name];
    const given = request.query as { readonly [name: string]: unknown };
    for (const name in given) {
      if (Object.hasOwn(input, name))
        throw unknownKey(name, `the query takes ${query.join(', ') || 'nothing'}`);
      input[name] = given[name];
    }
    for (const name of numbers) if (name in given) input[name] = numberOf(given[name]);
    const { 'idempotency-key': key } = request.headers;
    if (operation.keyed && key !== undefined) input.request_key = key;
    return input;
  };
}

/** A query text in digits as a whole number; the validator reports anything else. */
function numberOf(text: unknown): unknown {
  return typeof text === 'string' && /^-?\d{1,15}$/.test(text) ? Number(text) : text;
}

/**
 * The part of an operation's input that comes from the body.
 * @param elsewhere keys that other parts of the request provide
 * @param shape an example of the body
 * @throws Problem `invalid_request`
 */
function inputOf(body: unknown, elsewhere: readonly string[], shape: string): { [name: string]: unknown } {
  if (body === undefined) return {};
  if (!isObject(body)) {
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

/** A short example of an operation's body: its required keys, or else its first one. */
function shapeOf({ body }: Operation): string {
  const names = Object.keys(body.properties);
  const required = names.filter(name => body.required?.includes(name));
  const shown = required.length > 0 ? required : names.slice(0, 1);
  return `{${shown.map(name => `"${name}": …`).join(', ')}}`;
}

function unknownKey(name: string, why: string): Problem {
  return invalidRequest(`/${name}`, `unknown key "${name}": ${why}`);
}
