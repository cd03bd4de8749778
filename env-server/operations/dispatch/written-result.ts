/**
 * The result of an operation as JSON text, read only where somebody looks into it: another process ran the operation, or
 * it is so long that it was written in slices.
 */
export class WrittenResult {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }

  /** For what stores replies. */
  toJSON(): unknown {
    return JSON.parse(this.text);
  }
}

/** The result itself. */
export function plainResult(result: unknown): unknown {
  return result instanceof WrittenResult ? result.toJSON() : result;
}
