import { pathToFileURL } from 'node:url';
import { parentPort, workerData } from 'node:worker_threads';

/** Runs the `reward` of a file for each posted episode. Posts that it begins, then the result, or why it failed. */
const loaded = import(pathToFileURL(workerData as string).href) as Promise<{ reward?: unknown }>;
// Reported with the first episode.
loaded.catch(() => undefined);

parentPort?.on('message', async (episode: unknown) => {
  try {
    const { reward } = await loaded;
    if (typeof reward !== 'function') throw new TypeError('it exports no function `reward`');
    parentPort?.postMessage({ began: true });
    parentPort?.postMessage({ answer: await reward(episode) });
  } catch (error) {
    parentPort?.postMessage({
      error: error instanceof Error ? (error.stack ?? error.message) : String(error),
    });
  }
});
