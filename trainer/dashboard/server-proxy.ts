import type { FastifyInstance } from 'fastify';
import { request } from 'undici';

/** Routes of an environment server that pages about runs use: to open a session, and to bring it to a turn of an episode. */
const ROUTES = ['v1/sessions', 'v1/batch'];
const MAX_BODY_BYTES = 4 * 1024 * 1024;
const TIMEOUT_MS = 60_000;
const TOKEN_VARIABLE = 'RAGEN_TOKEN';

/**
 * Passes these requests on from `/server/`, because a page may ask only the server that it came from. The token of the
 * variable `RAGEN_TOKEN` goes with them.
 * @param server its address, ending in a slash
 */
export function addServerProxy(app: FastifyInstance, server: string): void {
  const token = process.env[TOKEN_VARIABLE];
  for (const route of ROUTES) {
    app.post(`/server/${route}`, { bodyLimit: MAX_BODY_BYTES }, async (incoming, reply) => {
      try {
        const { statusCode, headers, body } = await request(`${server}${route}`, {
          method: 'POST',
          headers: {
            'content-type': 'application/json',
            ...(token ? { authorization: `Bearer ${token}` } : {}),
          },
          body: JSON.stringify(incoming.body),
          headersTimeout: TIMEOUT_MS,
          bodyTimeout: TIMEOUT_MS,
        });
        const text = await body.text();
        return reply
          .code(statusCode)
          .type(String(headers['content-type'] ?? 'application/json'))
          .send(text);
      } catch (error) {
        const detail = `${server} does not answer: ${(error as Error).message}`;
        return reply
          .code(502)
          .type('application/problem+json')
          .send(JSON.stringify({ title: 'Bad gateway', status: 502, detail }));
      }
    });
  }
}
