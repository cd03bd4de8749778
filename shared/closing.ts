/** The same resource, which `await using` closes at the end of its block. */
export function closing<T extends { close(): Promise<unknown> }>(resource: T): T & AsyncDisposable {
  return Object.assign(resource, {
    async [Symbol.asyncDispose]() {
      await resource.close();
    },
  });
}

/** Acts at the end of the block that is `using` it, after a failure too. */
export const atEnd = (act: () => unknown): Disposable => ({ [Symbol.dispose]: () => void act() });

/** Acts when a signal is aborted within the block that is `using` it. */
export function onAbort(signal: AbortSignal | undefined, act: () => void): Disposable {
  signal?.addEventListener('abort', act, { once: true });
  return { [Symbol.dispose]: () => signal?.removeEventListener('abort', act) };
}
