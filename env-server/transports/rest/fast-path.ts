import type { IncomingMessage, ServerResponse } from 'node:http';
import type { FastifyInstance } from 'fastify';
import type { AllowedHosts } from '../../../shared/http/allowed-hosts.ts';
import { REPLY_HEADERS } from '../../../shared/http/page-security.ts';
import type { MaybePromise } from '../../environments/core/maybe-promise.ts';
import type { Dispatcher } from '../../operations/dispatch/dispatcher.ts';
import { execute, newCall } from '../../operations/dispatch/execute.ts';
import type { Lane } from '../../scheduling/fair-scheduler.ts';
import type { Principal } from '../../sessions/principal.ts';
import type { Authenticator } from '../access/auth.ts';
import type { RequestCount, RequestCounts } from '../monitoring/request-counts.ts';
import { traceIdIn } from '../monitoring/trace-requests.ts';
import { parseJson } from '../replies/json.ts';
import { PROBLEM_TYPE, type ProblemHandler } from '../replies/problem-handler.ts';
import { encodeText } from '../replies/texts.ts';
import { JSON_TYPE, restInput, runRestBatch, shapeOf } from './rest.ts';

/**
 * Steps and batches as programs send them, served on Node's own server: there the router, the hooks and the reply of a
 * framework cost more than a step. Whatever is in any way unusual goes the usual way, and whatever is not is answered
 * just as it would be there.
 */

const STEP = /^\/v1\/sessions\/([\w-]{1,128})\/step$/;
const STEP_ROUTE = '/v1/sessions/:session_id/step';
const BATCH = '/v1/batch';
const PLAIN_TYPES = new Set(['application/json', JSON_TYPE]);
/** Headers that ask for something unusual. */
const UNUSUAL = ['upgrade', 'expect', 'transfer-encoding', 'content-encoding', 'origin'] as const;
/** Parts of a step that its body does not hold. */
const ELSEWHERE = ['session_id', 'request_key'] as const;
const OK = 200;
const PAIRS = Object.entries(REPLY_HEADERS).flat();

export interface FastPathParts {
  readonly dispatcher: Dispatcher;
  readonly authenticator: Authenticator;
  readonly hosts: AllowedHosts;
  readonly counts: RequestCounts;
  readonly problemHandler: ProblemHandler;
  /** Whose turns the work for a request takes. */
  readonly laneOf: (request: IncomingMessage) => Lane;
  readonly maxBatchItems: number;
  readonly bodyLimitBytes: number;
}

/** Lets steps and batches pass by everything that the server does with other requests. */
export function addFastPath(app: FastifyInstance, parts: FastPathParts): void {
  const [usual] = app.server.listeners('request') as ((
    request: IncomingMessage,
    response: ServerResponse,
  ) => void)[];
  const path = new FastPath(parts);
  app.server.off('request', usual);
  app.server.on('request', (request, response) => {
    if (!path.take(request, response)) usual(request, response);
  });
}

class FastPath {
  readonly #parts: FastPathParts;
  readonly #step: ReturnType<Dispatcher['find']>;
  readonly #stepShape: string;
  readonly #steps: RequestCount;
  readonly #batches: RequestCount;

  constructor(parts: FastPathParts) {
    this.#parts = parts;
    this.#step = parts.dispatcher.find('step');
    this.#stepShape = shapeOf(this.#step.operation);
    this.#steps = parts.counts.counter('POST', STEP_ROUTE, OK);
    this.#batches = parts.counts.counter('POST', BATCH, OK);
  }

  /** Serves a request, unless it has to go the usual way. */
  take(request: IncomingMessage, response: ServerResponse): boolean {
    const { url = '', method } = request;
    if (method !== 'POST') return false;
    const sessionId = url === BATCH ? undefined : STEP.exec(url)?.[1];
    if ((sessionId === undefined && url !== BATCH) || !this.#isUsual(request)) return false;
    const principal = this.#principalOf(request);
    if (!principal) return false;
    const pieces: Buffer[] = [];
    request.on('data', piece => pieces.push(piece));
    request.on('end', () => {
      const [first, ...others] = pieces;
      const body = others.length > 0 ? Buffer.concat(pieces) : first;
      this.#parts.laneOf(request).run(() => {
        this.#serve(request, response, principal, sessionId, body.toString());
      });
    });
    return true;
  }

  #isUsual(request: IncomingMessage): boolean {
    const { headers, httpVersionMinor, httpVersionMajor } = request;
    const length = Number(headers['content-length']);
    return (
      httpVersionMajor === 1 &&
      httpVersionMinor === 1 &&
      this.#parts.hosts.accepts(request) &&
      length > 0 &&
      length <= this.#parts.bodyLimitBytes &&
      PLAIN_TYPES.has(headers['content-type'] ?? '') &&
      UNUSUAL.every(name => headers[name] === undefined) &&
      // A server that goes down closes its connections as it answers.
      !this.#parts.dispatcher.services.sessions.draining
    );
  }

  /** Nobody's requests are refused before their body is read. */
  #principalOf({ headers }: IncomingMessage): Principal | undefined {
    try {
      return this.#parts.authenticator.principal(headers.authorization);
    } catch {
      return undefined;
    }
  }

  #serve(
    request: IncomingMessage,
    response: ServerResponse,
    principal: Principal,
    sessionId: string | undefined,
    text: string,
  ): void {
    const fail = (error: unknown) => this.#fail(request, response, sessionId, error);
    try {
      const body = parseJson(text);
      const result: MaybePromise<string | Buffer> =
        sessionId === undefined
          ? this.#batch(request, principal, body)
          : this.#stepOf(request, principal, sessionId, body);
      const answer = (value: string | Buffer) => this.#answer(response, sessionId, value);
      if (result instanceof Promise) result.then(answer, fail);
      else answer(result);
    } catch (error) {
      fail(error);
    }
  }

  #stepOf(request: IncomingMessage, principal: Principal, sessionId: string, body: unknown) {
    const { operation, checkRest, serialize } = this.#step;
    const { services } = this.#parts.dispatcher;
    const input = restInput(body, ELSEWHERE, this.#stepShape);
    input.session_id = sessionId;
    const key = request.headers['idempotency-key'];
    if (key !== undefined) input.request_key = key;
    checkRest(input);
    const result = execute(services, newCall(services, principal), operation, input);
    return result instanceof Promise ? result.then(serialize) : serialize(result);
  }

  #batch({ headers }: IncomingMessage, principal: Principal, body: unknown) {
    const { dispatcher, problemHandler, maxBatchItems } = this.#parts;
    const result = runRestBatch(dispatcher, problemHandler, maxBatchItems, {
      body,
      key: headers['idempotency-key'],
      principal,
      traceId: traceIdIn(headers),
    });
    return result instanceof Promise ? result.then(encodeText) : encodeText(result);
  }

  #answer(response: ServerResponse, sessionId: string | undefined, body: string | Buffer): void {
    (sessionId === undefined ? this.#batches : this.#steps).count++;
    this.#parts.dispatcher.services.sessions.deliver(() =>
      write(response, OK, JSON_TYPE, typeof body === 'string' ? `${body}\n` : body, []),
    );
  }

  #fail(
    { headers }: IncomingMessage,
    response: ServerResponse,
    sessionId: string | undefined,
    error: unknown,
  ): void {
    const { problemHandler } = this.#parts;
    const document = problemHandler.document(error, { traceId: traceIdIn(headers), sessionId });
    const more = Object.entries(problemHandler.headersOf(document)).flat();
    this.#parts.counts.add('POST', sessionId === undefined ? BATCH : STEP_ROUTE, document.status);
    this.#parts.dispatcher.services.sessions.deliver(() =>
      write(response, document.status, PROBLEM_TYPE, `${JSON.stringify(document)}\n`, more),
    );
  }
}

function write(
  response: ServerResponse,
  status: number,
  type: string,
  body: string | Buffer,
  more: readonly string[],
): void {
  const length = String(Buffer.byteLength(body));
  response.writeHead(status, [...PAIRS, ...more, 'content-type', type, 'content-length', length]);
  response.end(body);
}
