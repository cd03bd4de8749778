import type { FastifyInstance } from 'fastify';
import { lazy } from '../../../shared/lazy.ts';
import { JSON_TYPE, revalidateReplies } from '../replies/send.ts';

/** The OpenAPI document of the page at `/docs/`, made on first request. */
export async function addReference(app: FastifyInstance): Promise<void> {
  const text = lazy(async () => JSON.stringify((await import('../rest/openapi.ts')).openApiDocument()));
  await app.register(async scope => {
    await revalidateReplies(scope);
    for (const url of ['/openapi.json', '/docs/json']) {
      scope.get(url, async (_request, reply) => reply.type(JSON_TYPE).send(await text()));
    }
  });
}
