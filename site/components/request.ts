import type { components } from '../../openapi/schema.d.ts';

/** Error as a reader sees it; `code` and `trace_id` are absent where the reply was not a problem document. */
export type ProblemReply = Pick<components['schemas']['Problem'], 'title' | 'detail' | 'status' | 'errors'> &
  Partial<Pick<components['schemas']['Problem'], 'code' | 'trace_id' | 'retry_after_s'>>;

/** The server rejected a request, or failed. */
export class RequestFailed extends Error {
  readonly problem: ProblemReply;

  constructor(problem: ProblemReply) {
    super(problem.detail);
    this.name = 'RequestFailed';
    this.problem = problem;
  }
}

const UNAUTHORIZED = 401;

/** True for a request that needs a token, or another one. */
export const isLocked = (error: unknown): boolean =>
  error instanceof RequestFailed && error.problem.status === UNAUTHORIZED;

/** The server did not answer. */
class ServerAway extends Error {
  constructor(cause: unknown) {
    super('The server does not answer. Is it still running?', { cause });
    this.name = 'ServerAway';
  }
}

/** Key under which browsers keep the token while the tab is open. */
const TOKEN_KEY = 'ragen-token';
/** Characters shown of a reply that is not a problem document. */
const MAX_REPLY_LENGTH = 500;

/** The token of this tab; empty where there is none. */
export const token = (): string => sessionStorage.getItem(TOKEN_KEY) ?? '';

/** @param value empty to forget the token */
export function setToken(value: string): void {
  if (value === '') sessionStorage.removeItem(TOKEN_KEY);
  else sessionStorage.setItem(TOKEN_KEY, value);
}

export interface RequestOptions extends Pick<RequestInit, 'method' | 'signal' | 'keepalive' | 'cache'> {
  /** Sent as JSON. */
  readonly body?: unknown;
}

/**
 * Sends a request with this tab's token.
 * @throws ServerAway
 */
export async function ask(url: string, { body, ...init }: RequestOptions = {}): Promise<Response> {
  const headers = {
    ...(body !== undefined && { 'content-type': 'application/json' }),
    ...(token() !== '' && { authorization: `Bearer ${token()}` }),
  };
  try {
    return await fetch(url, {
      ...init,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (cause) {
    throw new ServerAway(cause);
  }
}

/**
 * The text of a reply.
 * @throws ServerAway where it breaks off
 */
export function textOfReply(response: Response): Promise<string> {
  return response.text().catch(cause => {
    throw new ServerAway(cause);
  });
}

/** The error in a reply; undefined for a success. */
export function failureOf(
  { ok, status, statusText, url }: Response,
  text: string,
): RequestFailed | undefined {
  if (ok) return undefined;
  let said: Partial<ProblemReply> | null = null;
  try {
    said = JSON.parse(text);
  } catch {
    // Not JSON: the text itself is the message.
  }
  const { title, detail = title } = said ?? {};
  return new RequestFailed({
    ...(typeof detail === 'string'
      ? { ...said, detail }
      : {
          detail:
            text.slice(0, MAX_REPLY_LENGTH) || `${new URL(url).pathname} answered with status ${status}.`,
        }),
    title: title ?? (statusText || 'The request failed'),
    status,
  });
}
