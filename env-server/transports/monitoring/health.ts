import swagger from '@fastify/swagger';
import swaggerUi from '@fastify/swagger-ui';
import type { FastifyInstance } from 'fastify';
import { securePages } from '../../../shared/http/page-security.ts';
import { VERSION } from '../../../shared/version.ts';
import type { PersistenceHealth } from '../../persistence/persistence-health.ts';
import { Problem } from '../../problems.ts';
import type { SessionManager } from '../../sessions/manager.ts';
import { resuming } from '../../stages/locate.ts';
import { revalidateReplies } from '../replies/revalidation.ts';
import { JSON_TYPE } from '../replies/send.ts';
import { openApiDocument } from '../rest/openapi.ts';
import { DOCS_THEME } from './docs-theme.ts';

const RETRY_AFTER_SECONDS = 5;

/** Health, readiness, metrics, the OpenAPI document and the reference made from it. */
export async function addPages(
  app: FastifyInstance,
  sessions: SessionManager,
  persistence: PersistenceHealth,
  metrics: () => Promise<{ readonly type: string; readonly text: string }>,
): Promise<void> {
  const alive = { status: 'ok', version: VERSION };
  app.get('/livez', (_request, reply) => reply.send(alive));
  app.get('/readyz', (_request, reply) => {
    if (sessions.draining) {
      throw new Problem('draining', 'the server is shutting down', {
        retryAfterSeconds: RETRY_AFTER_SECONDS,
      });
    }
    if (sessions.resumption) throw resuming();
    if (sessions.recorder?.isShared) sessions.requireRoom();
    const problem = persistence.problem();
    if (problem) throw problem;
    return reply.send({ ...alive, persistence: persistence.report() });
  });
  app.get('/metrics', async (request, reply) => {
    if (!request.principal.scopes.has('admin')) {
      throw new Problem('forbidden', 'metrics need a token with the scope admin');
    }
    const { type, text } = await metrics();
    return reply.type(type).send(text);
  });
  const document = openApiDocument();
  const text = JSON.stringify(document);
  await app.register(async pages => {
    await revalidateReplies(pages);
    pages.get('/openapi.json', (_request, reply) => reply.type(JSON_TYPE).send(text));
  });
  await app.register(async pages => {
    await revalidateReplies(pages);
    await securePages(pages, { inlineStyles: true });
    await pages.register(swagger, {
      mode: 'static',
      specification: { document: document as unknown as Parameters<typeof JSON.stringify>[0] },
    });
    await pages.register(swaggerUi, { routePrefix: '/docs', theme: DOCS_THEME });
  });
}
