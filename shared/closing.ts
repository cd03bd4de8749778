/** The same resource, which `await using` closes at the end of its block. */
export function closing<T extends { close(): Promise<unknown> }>(resource: T): T & AsyncDisposable {
  return Object.assign(resource, {
    async [Symbol.asyncDispose]() {
      await resource.close();
    },
  });
}
