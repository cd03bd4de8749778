/** A graph or value that does not fit the runtime; says which and what would. */
export class RuntimeError extends Error {
  override readonly name = 'RuntimeError';
}

export function messageOf(cause: unknown): string {
  return cause instanceof Error ? cause.message : String(cause);
}
