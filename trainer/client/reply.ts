import { BadReply, ServerProblem } from './errors.ts';
import type { Operation, OperationResult, Request, Schemas } from './operations.ts';

/** What one request of a batch came to. */
export type BatchReply = OperationResult<Operation> | ServerProblem;

/**
 * The replies of a batch in the order of its requests.
 * @throws BadReply when the value is no batch result or answers another number of requests
 */
export function readBatch(server: string, requests: readonly Request[], value: unknown): BatchReply[] {
  const results = (value as Schemas['BatchResult'] | null)?.results;
  if (!Array.isArray(results) || results.length !== requests.length) {
    throw new BadReply(
      server,
      'batch',
      `${Array.isArray(results) ? results.length : 'no'} results for ${requests.length} requests`,
    );
  }
  return results.map((entry, i) => {
    if (entry.ok) return entry.result as OperationResult<Operation>;
    if ('error' in entry && isProblem(entry.error)) {
      return new ServerProblem(server, requests[i].op, entry.error);
    }
    throw new BadReply(server, 'batch', JSON.stringify(entry));
  });
}

/** A value that has what every problem document has. */
export function isProblem(value: unknown): value is Schemas['Problem'] {
  return (
    typeof value === 'object' && value !== null && 'code' in value && 'status' in value && 'detail' in value
  );
}
