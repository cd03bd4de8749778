import type { IncomingHttpHeaders } from 'node:http';
import Fastify, { type FastifyInstance } from 'fastify';
import { securePages } from '../../../shared/http/page-security.ts';
import { lazy } from '../../../shared/lazy.ts';
import { revalidateReplies } from '../replies/revalidation.ts';
import { JSON_TYPE } from '../replies/send.ts';

const PREFIX = '/docs';
const CLIENT_ERROR = 400;
const NO_SUCH_RANGE = 416;
const SERVER_ERROR = 500;
/** Headers of a reply that are the connection's, or follow from its content. */
const OF_CONNECTION = new Set(['connection', 'content-length', 'date', 'keep-alive', 'transfer-encoding']);

type OpenApi = ReturnType<typeof import('../rest/openapi.ts').openApiDocument>;

/** The OpenAPI document and the pages made from it. Both are put together when somebody asks for them. */
export async function addReference(app: FastifyInstance): Promise<void> {
  const document = lazy(async () => (await import('../rest/openapi.ts')).openApiDocument());
  const pages = lazy(async () => swaggerPages(await document()));
  let text: string | undefined;
  await app.register(async scope => {
    await revalidateReplies(scope);
    scope.get('/openapi.json', async (_request, reply) => {
      text ??= JSON.stringify(await document());
      return reply.type(JSON_TYPE).send(text);
    });
  });
  await app.register(async scope => {
    await revalidateReplies(scope);
    await securePages(scope, { inlineStyles: true });
    for (const url of [PREFIX, `${PREFIX}/`, `${PREFIX}/*`]) {
      scope.get(url, async (request, reply) => {
        if (leadsElsewhere(request.url)) return reply.callNotFound();
        const { statusCode, headers, rawPayload } = await (await pages()).inject({
          url: request.url,
          headers: conditionsOf(request.headers),
        });
        if (statusCode >= SERVER_ERROR) throw new Error(`${request.url}: ${rawPayload.toString()}`);
        if (statusCode >= CLIENT_ERROR && statusCode !== NO_SUCH_RANGE) return reply.callNotFound();
        for (const [name, value] of Object.entries(headers)) {
          if (value !== undefined && !OF_CONNECTION.has(name)) reply.header(name, value);
        }
        return reply.code(statusCode).send(rawPayload);
      });
    }
  });
}

/** True for a path with steps upward, which would be taken on the way to the pages. */
function leadsElsewhere(url: string): boolean {
  const [path] = url.split('?', 1);
  return new URL(path, 'http://localhost').pathname !== path;
}

/** A server of the pages that listens nowhere: routes cannot be added to one that does. */
async function swaggerPages(document: OpenApi): Promise<FastifyInstance> {
  const [{ default: swagger }, { default: swaggerUi }, { DOCS_THEME }] = await Promise.all([
    import('@fastify/swagger'),
    import('@fastify/swagger-ui'),
    import('./docs-theme.ts'),
  ]);
  const pages = Fastify();
  await pages.register(swagger, { mode: 'static', specification: { document: document as never } });
  await pages.register(swaggerUi, { routePrefix: PREFIX, theme: DOCS_THEME });
  return pages;
}

/** The headers by which a client says which copy it has. */
function conditionsOf(headers: IncomingHttpHeaders): { [name: string]: string } {
  const names = ['if-none-match', 'if-modified-since', 'range', 'if-range'];
  return Object.fromEntries(
    names.flatMap(name => (typeof headers[name] === 'string' ? [[name, headers[name]]] : [])),
  );
}
