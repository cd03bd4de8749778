import { useLayoutEffect, useRef } from 'preact/hooks';
import type { components } from '../../openapi/schema.d.ts';
import { parseJson } from '../../shared/json.ts';
import { html } from './html.ts';
import { withUnit } from './text.ts';

/** Error as a reader sees it; `code` and `trace_id` are absent where the reply was not a problem document. */
type ProblemReply = Pick<components['schemas']['Problem'], 'title' | 'detail' | 'status' | 'errors'> &
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
  // Where it is not JSON, the text itself is the message.
  const said = parseJson(text) as Partial<ProblemReply> | null | undefined;
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

/** One fault, with a JSON pointer to it in the request. */
export type Violation = NonNullable<ProblemReply['errors']>[number];

/** Advice for this page, which replaces server details that name routes. */
const PAGE_ADVICE: { readonly [code: string]: string } = {
  unauthorized: 'Write a token of this server into the field at the top of the page.',
  environment_exists:
    'An environment has this id already. Press Replace to put your definition in its place, or choose another id.',
  builtin_environment: 'This id belongs to a built-in environment. Choose another id for yours.',
  environment_in_use:
    'Sessions of this environment are open. Wait until they end (Watch shows them), then press the button again.',
};

/** Line of a script, as the checker reports it. */
export const LINE = /line (\d+)/;

interface ProblemNoteProps {
  /** An error; undefined while there is none. */
  readonly problem: unknown;
  /** Moves to the place of a violation; without it pointers are only shown. */
  readonly reveal?: (violation: Violation) => void;
  /** A remedy, after the report. */
  readonly advice?: string;
}

/** Full report of an error. */
export function ProblemNote({ problem, reveal, advice }: ProblemNoteProps) {
  const place = useRef<HTMLDivElement>(null);
  const isShown = problem !== undefined;
  useLayoutEffect(() => {
    if (isShown) place.current?.scrollIntoView({ block: 'nearest' });
  }, [isShown]);
  if (!isShown) return null;
  return html`<div ref=${place} class="note bad problem" role="alert">
    ${
      problem instanceof RequestFailed
        ? report(problem, reveal)
        : html`<p class="title">${problem instanceof Error ? problem.message : String(problem)}</p>`
    }
    ${advice !== undefined && html`<p>${advice}</p>`}
  </div>`;
}

function report({ problem }: RequestFailed, reveal: ProblemNoteProps['reveal']) {
  const { title, status, code, detail, errors = [], trace_id: trace, retry_after_s: wait } = problem;
  const items = errors.flatMap(violation => {
    const isRepeated = detail.includes(violation.detail);
    if (isRepeated && !reveal) return [];
    const pointer = code === 'check_failed' ? undefined : violation.pointer || '/';
    const place = LINE.exec(violation.detail)?.[0] ?? pointer;
    const link = reveal
      ? html`<button type="button" class="link" onClick=${() => reveal(violation)}>${place}</button>`
      : html`<code>${place}</code>`;
    const text = isRepeated ? '' : ` ${violation.detail}`;
    return place === undefined && text === '' ? [] : [html`<li>${place !== undefined && link}${text}</li>`];
  });
  return html`<p class="title">${title}</p>
    <p>${(code !== undefined && PAGE_ADVICE[code]) || detail}</p>
    ${items.length > 0 && html`<ul>${items}</ul>`}
    ${wait !== undefined && html`<p>Try again in ${withUnit(wait, 's')}.</p>`}
    <p class="fine">${status}${code ? ` ${code}` : ''}${trace ? ` · trace ${trace}` : ''}</p>`;
}
