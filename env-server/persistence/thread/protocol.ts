import { Problem, type ProblemCode } from '../../problems.ts';
import type { Turn, TurnFileHead } from '../journal/turn-file.ts';
import type { RowWrite } from '../session-rows.ts';
import type { AuditEntry, StoredEnvironment } from '../stored-environment.ts';

/** Start data of a thread. */
export interface ThreadSetup {
  /** Folder of the database. */
  readonly folder: string;
  /** True if written data survives a crash of the machine. */
  readonly synced: boolean;
  /** One shared number: 1 when nothing may be written any more. */
  readonly sealed: Int32Array;
}

/** The writes of a thread; each is done as a whole or not at all. */
export interface DatabaseWrites {
  writeSessions(changes: readonly RowWrite[]): void;
  /** Adds turns to a file of the journal, and returns how long that took, in milliseconds. */
  writeTurns(path: string, head: TurnFileHead, turns: readonly Turn[]): number;
  putEnvironment(environment: StoredEnvironment, entry: AuditEntry): boolean;
  removeEnvironment(envId: string, entry: AuditEntry): void;
  note(entry: AuditEntry): void;
  /** Writes the waiting entries once more, and closes the databases. */
  close(): void;
}

export type WriteName = keyof DatabaseWrites;

export interface WriteRequest {
  readonly id: number;
  readonly name: WriteName;
  readonly given: readonly unknown[];
}

/** Reply to a request, or the health of writes. */
export type ThreadMessage =
  | { readonly id: number; readonly result: unknown }
  | { readonly id: number; readonly error: PlainError }
  | { readonly health: HealthNews };

export type HealthNews =
  | { readonly state: 'succeeded' }
  | { readonly state: 'failed'; readonly error: PlainError }
  | { readonly state: 'waiting'; readonly bytes: number };

/** An error as it crosses from one thread to another. */
export interface PlainError {
  readonly name: string;
  readonly message: string;
  readonly stack: string | undefined;
  /** Code of the system, of Node or of a problem. */
  readonly code: string | undefined;
  /** Error code of SQLite. */
  readonly errcode: number | undefined;
  readonly problem:
    | { readonly code: ProblemCode; readonly retryAfterSeconds: number | undefined }
    | undefined;
  readonly cause: PlainError | undefined;
}

export function plainError(error: unknown): PlainError {
  const { name, message, stack, cause } = error as Error;
  const { code, errcode } = error as { readonly code?: unknown; readonly errcode?: unknown };
  return {
    name,
    message,
    stack,
    code: typeof code === 'string' ? code : undefined,
    errcode: typeof errcode === 'number' ? errcode : undefined,
    problem:
      error instanceof Problem ? { code: error.code, retryAfterSeconds: error.retryAfterSeconds } : undefined,
    cause: cause === undefined ? undefined : plainError(cause),
  };
}

export function revivedError({ name, message, stack, code, errcode, problem, cause }: PlainError): Error {
  const why = cause && revivedError(cause);
  if (problem) {
    const { retryAfterSeconds } = problem;
    return new Problem(problem.code, message, { retryAfterSeconds, cause: why });
  }
  const error = Object.assign(new Error(message, why && { cause: why }), { name, stack });
  return Object.assign(error, code !== undefined && { code }, errcode !== undefined && { errcode });
}
