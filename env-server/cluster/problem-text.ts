import { Problem, type ProblemCode, type Violation } from '../problems.ts';

interface ProblemFields {
  readonly code: ProblemCode;
  readonly detail: string;
  readonly violations?: readonly Violation[];
  readonly retryAfterSeconds?: number;
}

/** A problem for another process. Its cause stays where it is. */
export function problemText({ code, message, violations, retryAfterSeconds }: Problem): string {
  const fields: ProblemFields = { code, detail: message, violations, retryAfterSeconds };
  return JSON.stringify(fields);
}

export function readProblem(text: string): Problem {
  const { code, detail, ...more } = JSON.parse(text) as ProblemFields;
  return new Problem(code, detail, more);
}
