import { randomBytes } from 'node:crypto';
import type { Duplex } from 'node:stream';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Logger } from 'pino';
import { REPLY_HEADERS } from '../../../shared/http/security.ts';
import { problemOf } from '../../operations/problems.ts';
import { Problem, type ProblemCode, type ProblemDocument } from '../../problems.ts';
import { traceIdOf } from '../monitoring/trace-requests.ts';

const PROBLEM_TYPE = 'application/problem+json; charset=utf-8';

/** Default content type of curl -d. */
const FORM = 'application/x-www-form-urlencoded';

/** Characters of an address that a message repeats. */
const MAX_SHOWN_LENGTH = 300;
/** A named import of `node:http` reads all its exports, including the browser's `WebSocket`: 113 modules of Node, 13 MiB. */
const { maxHeaderSize } = process.getBuiltinModule('node:http');
const HEADER_OVERFLOW = 'HPE_HEADER_OVERFLOW';
const REQUEST_TIMEOUT = 'ERR_HTTP_REQUEST_TIMEOUT';
/** Milliseconds for which the server still reads from a client that sends. */
const LINGER_MS = 1000;

/** Problem codes for Fastify's own errors. */
const FASTIFY_CODES: { readonly [code: string]: ProblemCode } = {
  FST_ERR_CTP_BODY_TOO_LARGE: 'body_too_large',
  FST_ERR_CTP_INVALID_MEDIA_TYPE: 'unsupported_media_type',
};

/** Context of a problem, for the log. */
export interface ProblemContext {
  /** A new id when absent. */
  readonly traceId?: string;
  readonly sessionId?: unknown;
}

/** Makes, counts and logs the problems that clients get. */
export class ProblemHandler {
  readonly #log: Logger;
  readonly counts = new Map<ProblemCode, number>();

  constructor(log: Logger) {
    this.#log = log;
  }

  /** The document of a thrown value; faults of the server and of environments are logged with their cause. */
  document(error: unknown, { traceId = newTraceId(), sessionId }: ProblemContext = {}): ProblemDocument {
    const problem = toProblem(error);
    this.counts.set(problem.code, (this.counts.get(problem.code) ?? 0) + 1);
    const about = {
      code: problem.code,
      trace_id: traceId,
      ...(typeof sessionId === 'string' && { session_id: sessionId }),
    };
    if (problem.code === 'internal' || problem.code === 'environment_fault') {
      this.#log.error({ err: problem.cause ?? problem, ...about }, problem.message);
    } else {
      this.#log.debug(about, problem.message);
    }
    return problem.document(traceId);
  }

  /** Answers data that cannot be read as a request, and closes the connection. */
  refuse(error: Error & { code?: string }, socket: Duplex): void {
    if (error.code === 'ECONNRESET' || !socket.writable) {
      socket.destroy();
      return;
    }
    const document = this.document(new Problem('bad_request', whatIsWrong(error)));
    const body = `${JSON.stringify(document)}\n`;
    const headers = {
      ...REPLY_HEADERS,
      'content-type': PROBLEM_TYPE,
      'content-length': Buffer.byteLength(body),
      connection: 'close',
    };
    const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
    lingeringClose(socket, `HTTP/1.1 400 Bad Request\r\n${lines.join('')}\r\n${body}`);
  }

  /** Logs the error that ended a WebSocket: at a low level if its client caused it, which its close code says. */
  noteSocketError(error: Error & { code?: string }): void {
    const isClients = /^(WS_ERR_|ECONNRESET$|EPIPE$)/.test(error.code ?? '');
    if (isClients) this.#log.debug({ err: error }, 'a WebSocket was ended');
    else this.#log.error({ err: error }, 'a WebSocket failed');
  }

  /** Answers a REST request. */
  reply(error: unknown, request: FastifyRequest, reply: FastifyReply): FastifyReply {
    const document = this.prepare(error, request, reply);
    return reply.type(PROBLEM_TYPE).send(`${JSON.stringify(document)}\n`);
  }

  /** Builds the document for a request, and sets the reply's status and headers. */
  prepare(error: unknown, request: FastifyRequest, reply: FastifyReply): ProblemDocument {
    const document = this.document(explained(error, request), {
      traceId: traceIdOf(request),
      sessionId: (request.params as { session_id?: string } | null)?.session_id,
    });
    reply.headers(this.headersOf(document)).code(document.status);
    return document;
  }

  /** Headers of a problem. */
  headersOf({ code, retry_after_s }: ProblemDocument): { readonly [name: string]: string } {
    return {
      ...(retry_after_s !== undefined && { 'retry-after': String(Math.ceil(retry_after_s)) }),
      ...(code === 'upgrade_required' && { upgrade: 'websocket' }),
      ...(code === 'unauthorized' && { 'www-authenticate': 'Bearer' }),
    };
  }
}

/** Explains refusals of Fastify and its file server: the fault, and what would be right. */
function explained(error: unknown, { headers, routeOptions, url }: FastifyRequest): unknown {
  const { code, expose } = error as { readonly code?: unknown; readonly expose?: unknown };
  // @fastify/send, for paths that lead out of a folder or name no file.
  if (expose === true) return new Problem('not_found', `there is no file at ${shortened(url)}`);
  switch (code) {
    case 'FST_ERR_CTP_BODY_TOO_LARGE': {
      const { 'content-length': length } = headers;
      const size = length === undefined ? 'larger' : `${length} bytes, more`;
      return new Problem(
        'body_too_large',
        `the body is ${size} than the ${routeOptions.bodyLimit} bytes that the server takes (--body-limit-bytes)`,
      );
    }
    case 'FST_ERR_CTP_INVALID_MEDIA_TYPE': {
      const type = headers['content-type'];
      const given = type ? `is ${type}` : 'is missing';
      const curl = !type || type === FORM ? "; with curl: -H 'content-type: application/json'" : '';
      return new Problem(
        'unsupported_media_type',
        `the body must be JSON, but the header content-type ${given}; send content-type: application/json${curl}`,
      );
    }
    default:
      return error;
  }
}

/** Explains why Node could not read a request. */
function whatIsWrong({ code, message }: Error & { code?: string }): string {
  if (code === HEADER_OVERFLOW) return `the headers are larger than ${maxHeaderSize} bytes`;
  if (code === REQUEST_TIMEOUT)
    return 'the request was not there whole within the time that a server waits for one';
  return message;
}

function toProblem(error: unknown): Problem {
  if (error instanceof Error && 'code' in error && 'statusCode' in error && typeof error.code === 'string') {
    const code = FASTIFY_CODES[error.code];
    if (code) return new Problem(code, error.message);
    if (typeof error.statusCode === 'number' && error.statusCode < 500) {
      return new Problem('bad_request', shortened(error.message));
    }
  }
  return problemOf(error);
}

/** An address, or a message that repeats it, shortened to a limit. */
export function shortened(message: string): string {
  return message.length > MAX_SHOWN_LENGTH ? `${message.slice(0, MAX_SHOWN_LENGTH)}…` : message;
}

function newTraceId(): string {
  return randomBytes(16).toString('hex');
}

/**
 * Sends the last bytes of a connection and closes it. For a short while anything the client still sends is discarded: unread
 * bytes would keep the connection half open, and an immediate reset could lose the reply.
 */
function lingeringClose(socket: Duplex, last: string): void {
  const cut = setTimeout(() => socket.destroy(), LINGER_MS);
  socket.once('close', () => clearTimeout(cut));
  socket.on('error', () => socket.destroy());
  socket.end(last);
  socket.removeAllListeners('data');
  socket.resume();
}
