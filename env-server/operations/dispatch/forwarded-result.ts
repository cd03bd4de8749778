/** The result of an operation that another process ran, as the JSON text it came in; read only where somebody looks into it. */
export class ForwardedResult {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

/** The result itself. */
export function plainResult(result: unknown): unknown {
  return result instanceof ForwardedResult ? JSON.parse(result.text) : result;
}
