import type { FastifyInstance } from 'fastify';
import { Assets, LOOK } from '../site/server/assets.ts';
import { Problem } from './problems.ts';

const PAGE = 'site/playground';
const REFERENCE = 'site/reference';

/** Opening tags of the page: the server sets the attributes of `html`. */
const NO_RUNS = '<html lang="en">';
const WITH_RUNS = '<html lang="en" data-runs="runs/">';

/**
 * The playground at `/`, the reference at `/docs/`, the gallery of components, and what these load below `/assets/`.
 * @param hasRuns whether the server shows training runs, so that the page links them
 */
export function addPlayground(app: FastifyInstance, hasRuns = false): void {
  const assets = new Assets([PAGE, REFERENCE, 'shared/shell-word.ts', ...LOOK]);
  const routes = [
    { url: '/', pathOf: () => `${PAGE}/page.html` },
    { url: '/docs/', pathOf: () => `${REFERENCE}/page.html` },
    { url: '/site/components', pathOf: () => 'site/components/gallery.html' },
    { url: '/assets/*', pathOf: (rest: string) => rest },
  ];
  app.get('/docs', (_request, reply) => reply.redirect('docs/'));
  for (const { url, pathOf } of routes) {
    app.get<{ Params: { '*': string } }>(url, async (request, reply) => {
      const asset = await assets.find(pathOf(request.params['*']));
      if (!asset) throw new Problem('not_found', `there is no ${request.url}`);
      const linked = hasRuns && (url === '/' || url === '/docs/');
      const etag = linked ? asset.etag.replace(/"$/, '-runs"') : asset.etag;
      reply.headers({ etag, 'cache-control': asset.cacheControl });
      if (request.headers['if-none-match'] === etag) return reply.code(304).send();
      return reply
        .type(asset.contentType)
        .send(linked ? String(asset.body).replace(NO_RUNS, WITH_RUNS) : asset.body);
    });
  }
}
