import type { FastifyReply, FastifyRequest } from 'fastify';

/** Kinds of errors of OpenAI's API by status; `type` names those of all others. */
const TYPES: Readonly<Record<number, string>> = {
  401: 'authentication_error',
  403: 'permission_error',
  404: 'not_found_error',
  429: 'rate_limit_error',
};

/** Seconds after which a rejected client may try again. */
const RETRY_AFTER_S = 1;

export interface ApiErrorDetails {
  /** The field of the request that was wrong. */
  readonly param?: string;
  /** Word for programs, e.g. `model_not_found`. */
  readonly code?: string;
  /** Seconds after which the same request may succeed. */
  readonly retryAfterS?: number;
}

/** A rejection in the form of OpenAI's API. */
export class ApiError extends Error {
  readonly status: number;
  readonly param: string | null;
  readonly code: string | null;
  readonly retryAfterS: number | undefined;

  constructor(status: number, message: string, { param, code, retryAfterS }: ApiErrorDetails = {}) {
    super(message);
    this.name = 'ApiError';
    this.status = status;
    this.param = param ?? null;
    this.code = code ?? null;
    this.retryAfterS = retryAfterS;
  }

  get type(): string {
    return TYPES[this.status] ?? (this.status < 500 ? 'invalid_request_error' : 'server_error');
  }

  /** The body of the reply: `{error: {message, type, param, code}}`. */
  get body() {
    const { message, type, param, code } = this;
    return { error: { message, type, param, code } };
  }
}

/** A request that cannot be carried out; `param` names the faulty field. */
export function badRequest(message: string, param?: string): ApiError {
  return new ApiError(400, message, { param });
}

/** A request without a valid key. */
export function unauthorized(message: string): ApiError {
  return new ApiError(401, message, { code: 'invalid_api_key' });
}

/** A request beyond what the server does at once. */
export function tooMany(message: string): ApiError {
  return new ApiError(429, message, { code: 'rate_limit_exceeded', retryAfterS: RETRY_AFTER_S });
}

/** @param models names that exist */
export function modelNotFound(name: string, models: readonly string[]): ApiError {
  const known = models.join(', ') || 'none';
  return new ApiError(
    404,
    `the model ${JSON.stringify(name.slice(0, 200))} does not exist; there are: ${known}`,
    {
      param: 'model',
      code: 'model_not_found',
    },
  );
}

/** Aborted when the client of a request goes away before its reply is written. */
export function clientGone(request: FastifyRequest, { raw }: FastifyReply): AbortController {
  const gone = new AbortController();
  const abort = () => {
    if (!raw.writableFinished) gone.abort(new Error('the client went away'));
  };
  raw.once('close', abort);
  if (raw.destroyed || request.raw.socket.destroyed) abort();
  return gone;
}
