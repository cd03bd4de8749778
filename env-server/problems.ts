import declared from './problems.json' with { type: 'json' };

export type ProblemCode = keyof typeof declared;

export interface ProblemDeclaration {
  readonly status: number;
  readonly title: string;
  readonly retryable: boolean;
  /** Seconds to wait, unless the problem names others. */
  readonly retryAfterSeconds?: number;
  readonly advice: string;
}

/**
 * Every error the environment server can answer with, once: code → status, title, whether the same request
 * may succeed later, and what to do about it. `docs/reference/errors.md` is generated from this table.
 */
export const PROBLEMS: { readonly [code in ProblemCode]: ProblemDeclaration } = declared;

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
    this.retryAfterSeconds = more.retryAfterSeconds ?? PROBLEMS[code].retryAfterSeconds;
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

/** `invalid_request` with a single fault. */
export function invalidRequest(pointer: string, detail: string, message = detail): Problem {
  return new Problem('invalid_request', message, { violations: [{ pointer, detail }] });
}
