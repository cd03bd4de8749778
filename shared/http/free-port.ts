/**
 * Listens on a port. Where the default port is taken, any free one replaces it.
 * @param chosen the user asked for this port
 * @throws Error when the chosen port is taken
 */
export async function listenOnPort<T>(
  port: number,
  chosen: boolean,
  listen: (port: number) => Promise<T>,
): Promise<T> {
  try {
    return await listen(port);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EADDRINUSE') throw error;
    if (chosen) {
      throw new Error(`port ${port} is taken: --port names another, --port 0 takes a free one`, {
        cause: error,
      });
    }
    console.log(`port ${port} is taken; using a free one`);
    return listen(0);
  }
}
