/** Ends with 0 when the environment server of this container takes requests: the health check of its image. */
const TIMEOUT_MS = 2000;

const port = process.env.RAGEN_PORT ?? '8080';
const url = `http://127.0.0.1:${port}/readyz`;
try {
  const reply = await fetch(url, { signal: AbortSignal.timeout(TIMEOUT_MS) });
  console.log(`${url}: ${reply.status}`);
  process.exitCode = reply.ok ? 0 : 1;
} catch (error) {
  console.log(`${url}: ${(error as Error).message}`);
  process.exitCode = 1;
}
