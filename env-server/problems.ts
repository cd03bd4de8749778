/**
 * Every error the environment server can answer with, once: code → status, title, whether the same request
 * may succeed later, and what to do about it. `docs/reference/errors.md` is generated from this table.
 */
export const PROBLEMS = {
  bad_json: {
    status: 400,
    title: 'The body is not JSON',
    retryable: false,
    advice: 'Send one JSON value (or MessagePack); `detail` says where the parser stopped.',
  },
  bad_request: {
    status: 400,
    title: 'The HTTP request is malformed',
    retryable: false,
    advice: '`detail` says what the parser of HTTP did not understand.',
  },
  unauthorized: {
    status: 401,
    title: 'A valid token is needed',
    retryable: false,
    advice: 'Send `Authorization: Bearer <token>` with a token this server knows.',
  },
  forbidden: {
    status: 403,
    title: 'The token does not allow this',
    retryable: false,
    advice: 'Use a token with the scope that `detail` names, or a page of the same origin.',
  },
  host_not_allowed: {
    status: 421,
    title: 'The request is for another host',
    retryable: false,
    advice: 'Use a name that the server knows, or add the name in `detail` to `--allowed-hosts`.',
  },
  not_found: {
    status: 404,
    title: 'No such route',
    retryable: false,
    advice: 'See `/docs` for the routes.',
  },
  method_not_allowed: {
    status: 405,
    title: 'The route takes other methods',
    retryable: false,
    advice: 'The header `Allow` names those it takes.',
  },
  upgrade_required: {
    status: 426,
    title: 'The route is a WebSocket',
    retryable: false,
    advice: 'Connect with a WebSocket client, or use the REST routes; see `/docs`.',
  },
  unknown_environment: {
    status: 404,
    title: 'No such environment',
    retryable: false,
    advice: '`GET /v1/envs` lists the environments.',
  },
  unknown_session: {
    status: 404,
    title: 'No such session',
    retryable: false,
    advice: 'The id is wrong, belongs to another token, or ended long ago. Create a session.',
  },
  unknown_snapshot: {
    status: 404,
    title: 'No such snapshot',
    retryable: false,
    advice: 'Snapshots live as long as the session that took them.',
  },
  unknown_reference: {
    status: 404,
    title: 'No such reference policy',
    retryable: false,
    advice: '`references` of `GET /v1/envs/{env_id}` lists those the environment has.',
  },
  environment_exists: {
    status: 409,
    title: 'The id is taken',
    retryable: false,
    advice: 'Use another id or version, or replace it with `PUT /v1/envs/{env_id}`.',
  },
  builtin_environment: {
    status: 409,
    title: 'The environment is built in',
    retryable: false,
    advice: 'Register your own under another id.',
  },
  environment_in_use: {
    status: 409,
    title: 'The environment is in use',
    retryable: true,
    advice: 'Close the sessions in `detail`, or remove environments composed from it.',
  },
  episode_over: {
    status: 409,
    title: 'The episode is over',
    retryable: false,
    advice: 'Reset the session before stepping again.',
  },
  wrong_step: {
    status: 409,
    title: 'The session is at another step',
    retryable: false,
    advice: '`expected_step` must be the session’s step + 1.',
  },
  session_rolled_back: {
    status: 409,
    title: 'The session was resumed from a checkpoint',
    retryable: false,
    advice:
      'The server ended without warning. Get the session to see its step, or reset it. The same actions give the same results.',
  },
  request_key_expired: {
    status: 409,
    title: 'The reply under the request key is not kept any more',
    retryable: false,
    advice: 'The request was carried out earlier. Get the session, and continue under a fresh key.',
  },
  session_expired: {
    status: 410,
    title: 'The session expired',
    retryable: false,
    advice: 'It exceeded its `ttl_s` or lifetime. Create a new one.',
  },
  session_closed: {
    status: 410,
    title: 'The session was closed',
    retryable: false,
    advice: 'Create a new session.',
  },
  session_lost: {
    status: 410,
    title: 'The session did not outlive its server',
    retryable: false,
    advice: '`detail` says why. Create a new session.',
  },
  session_elsewhere: {
    status: 421,
    title: 'Another server plays the session',
    retryable: true,
    advice:
      'Only the server that opened the session can play it: give your load balancer an affinity for such environments.',
  },
  body_too_large: {
    status: 413,
    title: 'The request is too large',
    retryable: false,
    advice: 'Send less at once; `detail` names the limit.',
  },
  unsupported_media_type: {
    status: 415,
    title: 'The body must be JSON',
    retryable: false,
    advice: 'Send `Content-Type: application/json`.',
  },
  invalid_request: {
    status: 422,
    title: 'The request does not fit its schema',
    retryable: false,
    advice: '`errors` lists JSON pointers and what was expected there.',
  },
  invalid_action: {
    status: 422,
    title: 'The action is not of the action space’s type',
    retryable: false,
    advice:
      'See `action_space`. An unknown action of the right type is not an error: `info.action_is_valid` is false.',
  },
  key_reused: {
    status: 422,
    title: 'The request key was used for another request',
    retryable: false,
    advice: 'Use a fresh key for every new request.',
  },
  unsupported: {
    status: 422,
    title: 'The environment cannot do this',
    retryable: false,
    advice: 'See `capabilities` of the environment.',
  },
  check_failed: {
    status: 422,
    title: 'The environment did not pass its check',
    retryable: false,
    advice: '`errors` lists what to mend.',
  },
  too_many_environments: {
    status: 429,
    title: 'Too many custom environments',
    retryable: false,
    advice: 'Remove some; `detail` names the limit.',
  },
  too_many_sessions: {
    status: 429,
    title: 'Too many sessions',
    retryable: true,
    advice: 'Close sessions, or wait for idle ones to expire; `detail` names the limit.',
  },
  too_many_snapshots: {
    status: 429,
    title: 'Too many snapshots of one session',
    retryable: false,
    advice: 'Close the session, or continue in a clone.',
  },
  token_budget_exceeded: {
    status: 429,
    title: 'The sessions of the token take too much memory',
    retryable: true,
    advice: 'Close sessions; `detail` names the limit.',
  },
  too_many_requests: {
    status: 429,
    title: 'Too many requests in flight',
    retryable: true,
    advice: 'Wait for replies; `detail` names the limit.',
  },
  internal: {
    status: 500,
    title: 'The server failed',
    retryable: true,
    advice: 'A fault of the server; its log has the cause under `trace_id`.',
  },
  environment_fault: {
    status: 500,
    title: 'The environment failed',
    retryable: false,
    advice: 'The episode ended; reset the session.',
  },
  script_limit: {
    status: 500,
    title: 'The script of the environment was stopped at a limit',
    retryable: false,
    advice: '`detail` names the limit: time, memory, recursion or output. The episode ended.',
  },
  remote_failed: {
    status: 502,
    title: 'The remote environment failed',
    retryable: false,
    advice: '`detail` says how. The episode ended; reset the session.',
  },
  remote_unavailable: {
    status: 502,
    title: 'The remote environment cannot be reached',
    retryable: true,
    advice: 'Retry; the episode is where it was.',
  },
  isolation_unavailable: {
    status: 503,
    title: 'Programs cannot be isolated',
    retryable: true,
    advice: '`detail` says what the machine lacks.',
  },
  environment_busy: {
    status: 503,
    title: 'The environment is busy',
    retryable: true,
    advice: 'Retry; the episode is where it was.',
  },
  draining: {
    status: 503,
    title: 'The server is shutting down',
    retryable: true,
    advice: 'Retry after the time in `Retry-After`.',
  },
  worker_unavailable: {
    status: 503,
    title: 'A process of the server is starting again',
    retryable: true,
    advice: 'Retry with the same request key.',
  },
  server_budget_exceeded: {
    status: 503,
    title: 'The sessions of the server take too much memory',
    retryable: true,
    advice: 'Retry when others have closed sessions.',
  },
  storage_failed: {
    status: 503,
    title: 'The server cannot write to its disk',
    retryable: true,
    advice: '`detail` says what the disk reports.',
  },
  step_timeout: {
    status: 504,
    title: 'The step takes too long',
    retryable: true,
    advice: 'The step continues: repeat it with the same request key for its reply.',
  },
  session_budget_exceeded: {
    status: 507,
    title: 'The session takes too much memory',
    retryable: false,
    advice:
      'Reset the session, which drops the actions of its episode, or close it; `detail` names the limit.',
  },
  session_unsaved: {
    status: 507,
    title: 'The session cannot be stored',
    retryable: false,
    advice: '`detail` says why. Get the session and continue: it lasts until the server ends.',
  },
  storage_full: {
    status: 507,
    title: 'The disk of the server is full',
    retryable: true,
    advice: 'The operator has to make room in the folder of `--data`.',
  },
} as const satisfies Record<string, ProblemDeclaration>;

export interface ProblemDeclaration {
  readonly status: number;
  readonly title: string;
  readonly retryable: boolean;
  readonly advice: string;
}

export type ProblemCode = keyof typeof PROBLEMS;

/** One violation, for 422: where (JSON pointer into the request) and what was expected. */
export interface Violation {
  readonly pointer: string;
  readonly detail: string;
}

/** Problem as it crosses the wire: `application/problem+json` (RFC 9457). */
export interface ProblemDocument {
  readonly type: string;
  readonly title: string;
  readonly status: number;
  readonly detail: string;
  readonly code: ProblemCode;
  readonly retryable: boolean;
  readonly trace_id: string;
  /** Seconds to wait, where waiting helps; also the `Retry-After` header. */
  readonly retry_after_s?: number;
  readonly errors?: readonly Violation[];
  /** State of writes to the disk, in replies of `/readyz`. */
  readonly persistence?: object;
}

/** An error with a code of the table; the transports turn it into a {@link ProblemDocument}. */
export class Problem extends Error {
  readonly code: ProblemCode;
  readonly violations: readonly Violation[] | undefined;
  readonly retryAfterSeconds: number | undefined;
  readonly #members: Pick<ProblemDocument, 'persistence'> | undefined;

  constructor(
    code: ProblemCode,
    detail: string,
    more: {
      violations?: readonly Violation[];
      retryAfterSeconds?: number;
      cause?: unknown;
      /** More members of the document. */
      members?: Pick<ProblemDocument, 'persistence'>;
    } = {},
  ) {
    // A client may cause thousands of problems a second: a stack would cost more than the rest.
    const { stackTraceLimit } = Error;
    Error.stackTraceLimit = 0;
    super(detail, more.cause === undefined ? undefined : { cause: more.cause });
    Error.stackTraceLimit = stackTraceLimit;
    this.name = 'Problem';
    this.code = code;
    this.violations = more.violations;
    this.retryAfterSeconds = more.retryAfterSeconds;
    this.#members = more.members;
  }

  get status(): number {
    return PROBLEMS[this.code].status;
  }

  document(traceId: string): ProblemDocument {
    const declared = PROBLEMS[this.code];
    return {
      type: `urn:ragen:problem:${this.code}`,
      title: declared.title,
      status: declared.status,
      detail: this.message,
      code: this.code,
      retryable: declared.retryable,
      trace_id: traceId,
      ...(this.retryAfterSeconds === undefined ? {} : { retry_after_s: this.retryAfterSeconds }),
      ...(this.violations === undefined ? {} : { errors: this.violations }),
      ...this.#members,
    };
  }
}
