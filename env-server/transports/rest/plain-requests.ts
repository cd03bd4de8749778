import type { IncomingMessage, ServerResponse } from 'node:http';
import type { AllowedHosts } from '../../../shared/http/allowed-hosts.ts';
import { REPLY_HEADERS } from '../../../shared/http/page-security.ts';
import type { MaybePromise } from '../../environments/core/maybe-promise.ts';
import type { Lane } from '../../scheduling/fair-scheduler.ts';
import type { SessionManager } from '../../sessions/manager.ts';
import type { Principal } from '../../sessions/principal.ts';
import type { Authenticator } from '../access/auth.ts';
import type { RequestCount, RequestCounts } from '../monitoring/request-counts.ts';
import { traceIdIn } from '../monitoring/trace-requests.ts';
import { parseJson } from '../replies/json.ts';
import { PROBLEM_TYPE, type ProblemHandler } from '../replies/problem-handler.ts';
import type { DirectServer } from './paced-requests.ts';
import { JSON_TYPE, OK, type RestReply, type RestRoute } from './route.ts';

/** Routes that programs use all the time: there the router, hooks and replies of Fastify cost more than a step. */
const FREQUENT: ReadonlySet<string> = new Set(['/v1/sessions/:session_id/step', '/v1/batch']);
const PLAIN_TYPES = new Set(['application/json', JSON_TYPE]);
/** Headers that ask for something unusual. */
const UNUSUAL = ['upgrade', 'expect', 'transfer-encoding', 'content-encoding', 'origin'] as const;
const NO_QUERY = {};
const PAIRS = Object.entries(REPLY_HEADERS).flat();

export interface PlainRequestParts {
  readonly authenticator: Authenticator;
  readonly hosts: AllowedHosts;
  readonly counts: RequestCounts;
  readonly problemHandler: ProblemHandler;
  readonly sessions: SessionManager;
  readonly bodyLimitBytes: number;
}

interface PlainRoute {
  readonly route: RestRoute;
  readonly pattern: RegExp;
  /** Counts its successes. */
  readonly succeeded: RequestCount;
}

/** A request that is served here. */
interface PlainRequest {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly principal: Principal;
  readonly plain: PlainRoute;
  readonly params: { readonly [name: string]: string };
}

/**
 * Reads plain requests of frequent routes from Node's server and writes their replies; every other request goes through
 * Fastify. Both run the same {@link RestRoute} and give the same reply.
 */
export class PlainRequests implements DirectServer {
  readonly #parts: PlainRequestParts;
  readonly #routes: readonly PlainRoute[];

  constructor(routes: readonly RestRoute[], parts: PlainRequestParts) {
    this.#parts = parts;
    this.#routes = routes
      .filter(({ method, url }) => method === 'POST' && FREQUENT.has(url))
      .map(route => ({
        route,
        pattern: new RegExp(`^${route.url.replaceAll(/:(\w+)/g, '(?<$1>[\\w-]{1,128})')}$`),
        succeeded: parts.counts.counter(route.method, route.url, OK),
      }));
  }

  take(request: IncomingMessage, response: ServerResponse, lane: Lane): boolean {
    if (request.method !== 'POST') return false;
    for (const plain of this.#routes) {
      const match = plain.pattern.exec(request.url!);
      if (!match) continue;
      const principal = this.#isPlain(request) ? this.#principalOf(request) : undefined;
      if (!principal) return false;
      this.#read({ request, response, principal, plain, params: match.groups ?? {} }, lane);
      return true;
    }
    return false;
  }

  #isPlain(request: IncomingMessage): boolean {
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
      !this.#parts.sessions.draining
    );
  }

  /** Requests without a valid token are refused before their body is read. */
  #principalOf({ headers }: IncomingMessage): Principal | undefined {
    try {
      return this.#parts.authenticator.principal(headers.authorization);
    } catch {
      return undefined;
    }
  }

  #read(plain: PlainRequest, lane: Lane): void {
    const { request } = plain;
    let first: Buffer | undefined;
    let others: Buffer[] | undefined;
    request.on('data', (piece: Buffer) => {
      if (!first) first = piece;
      else if (others) others.push(piece);
      else others = [first, piece];
    });
    request.on('end', () => {
      const body = others ? Buffer.concat(others) : first!;
      // The request keeps its listeners, and with them what they see, until it is answered.
      first = undefined;
      others = undefined;
      lane.run(() => this.#serve(plain, body.toString()));
    });
  }

  #serve(plain: PlainRequest, text: string): void {
    try {
      const result = this.#run(plain, text);
      if (result instanceof Promise) {
        result.then(
          reply => this.#answer(plain, reply),
          error => this.#fail(plain, error),
        );
      } else this.#answer(plain, result);
    } catch (error) {
      this.#fail(plain, error);
    }
  }

  #run({ request, principal, plain, params }: PlainRequest, text: string): MaybePromise<RestReply> {
    const { headers } = request;
    return plain.route.run({
      principal,
      params,
      query: NO_QUERY,
      body: parseJson(text),
      key: headers['idempotency-key'],
      trace: undefined,
      traceId: traceIdIn(headers),
    });
  }

  #answer({ response, plain }: PlainRequest, { body }: RestReply): void {
    plain.succeeded.count++;
    this.#parts.sessions.deliver(() => write(response, OK, JSON_TYPE, body!, []));
  }

  #fail({ request, response, plain, params }: PlainRequest, error: unknown): void {
    const { problemHandler, counts, sessions } = this.#parts;
    const traceId = traceIdIn(request.headers);
    const document = problemHandler.document(error, { traceId, sessionId: params.session_id });
    const { status } = document;
    const more = Object.entries(problemHandler.headersOf(document)).flat();
    counts.add('POST', plain.route.url, status);
    sessions.deliver(() => write(response, status, PROBLEM_TYPE, `${JSON.stringify(document)}\n`, more));
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
