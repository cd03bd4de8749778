import { randomBytes } from 'node:crypto';
import type { Socket } from 'node:net';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Logger } from 'pino';
import { Problem, type ProblemCode, type ProblemDocument } from '../../shared/problems.ts';
import { problemOf } from '../operations/problem-of.ts';

const PROBLEM_TYPE = 'application/problem+json; charset=utf-8';
const TRACEPARENT = /^[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}/;

/** What Fastify's own errors mean in ours. */
const FASTIFY_CODES: { readonly [code: string]: ProblemCode } = {
  FST_ERR_CTP_BODY_TOO_LARGE: 'body_too_large',
  FST_ERR_CTP_INVALID_MEDIA_TYPE: 'unsupported_media_type',
};

/** Makes, counts and logs the problems that clients are answered with. */
export class ProblemDesk {
  readonly #log: Logger;
  /** Answers by code. */
  readonly counts = new Map<ProblemCode, number>();

  constructor(log: Logger) {
    this.#log = log;
  }

  /** The document of whatever was thrown; faults of the server and of environments are logged with their cause. */
  document(error: unknown, traceId = newTraceId()): ProblemDocument {
    const problem = toProblem(error);
    this.counts.set(problem.code, (this.counts.get(problem.code) ?? 0) + 1);
    if (problem.code === 'internal' || problem.code === 'environment_fault') {
      this.#log.error(
        { err: problem.cause ?? problem, code: problem.code, trace_id: traceId },
        problem.message,
      );
    } else {
      this.#log.debug({ code: problem.code, trace_id: traceId }, problem.message);
    }
    return problem.document(traceId);
  }

  /** Answers what could not even be read as a request, and hangs up. */
  refuse(error: Error & { code?: string }, socket: Socket): void {
    if (error.code === 'ECONNRESET' || !socket.writable) {
      socket.destroy();
      return;
    }
    const document = this.document(new Problem('bad_request', error.message));
    const body = JSON.stringify(document);
    socket.end(
      `HTTP/1.1 400 Bad Request\r\nContent-Type: ${PROBLEM_TYPE}\r\nContent-Length: ${Buffer.byteLength(body)}\r\nConnection: close\r\n\r\n${body}`,
    );
  }

  /** Answers a REST request. */
  reply(error: unknown, request: FastifyRequest, reply: FastifyReply): FastifyReply {
    const document = this.prepare(error, request, reply);
    return reply.type(PROBLEM_TYPE).send(JSON.stringify(document));
  }

  /** The document for a request, whose reply gets its status and the headers that go with it. */
  prepare(error: unknown, request: FastifyRequest, reply: FastifyReply): ProblemDocument {
    const document = this.document(error, traceIdOf(request.headers.traceparent));
    if (document.retry_after_s !== undefined) {
      reply.header('retry-after', String(Math.ceil(document.retry_after_s)));
    }
    if (document.code === 'unauthorized') reply.header('www-authenticate', 'Bearer');
    reply.code(document.status);
    return document;
  }
}

function toProblem(error: unknown): Problem {
  if (error instanceof Error && 'code' in error && 'statusCode' in error && typeof error.code === 'string') {
    const code = FASTIFY_CODES[error.code];
    if (code) return new Problem(code, error.message);
    if (typeof error.statusCode === 'number' && error.statusCode < 500) {
      return new Problem('bad_request', error.message);
    }
  }
  return problemOf(error);
}

/** The trace a request belongs to, or a new one. */
export function traceIdOf(traceparent: string | string[] | undefined): string {
  const match = typeof traceparent === 'string' ? TRACEPARENT.exec(traceparent) : null;
  return match ? match[1] : newTraceId();
}

function newTraceId(): string {
  return randomBytes(16).toString('hex');
}
