import type { FastifyInstance } from 'fastify';
import { Assets, LOOK } from '../site/server/assets.ts';
import { Problem } from './problems.ts';

const PAGE = 'site/playground';

/** Opening tags of the page: the server sets the attributes of `html`. */
const NO_RUNS = '<html lang="en">';
const WITH_RUNS = '<html lang="en" data-runs="runs/">';

/**
 * The playground at `/`, the gallery of its components, and what both load below `/assets/`.
 * @param hasRuns whether the server shows training runs, so that the page links them
 */
export function addPlayground(app: FastifyInstance, hasRuns = false): void {
  const assets = new Assets([PAGE, 'shared/shell-word.ts', ...LOOK]);
  const routes = [
    { url: '/', pathOf: () => `${PAGE}/page.html` },
    { url: '/site/components', pathOf: () => 'site/components/gallery.html' },
    { url: '/assets/*', pathOf: (rest: string) => rest },
  ];
  for (const { url, pathOf } of routes) {
    app.get<{ Params: { '*': string } }>(url, async (request, reply) => {
      const asset = await assets.find(pathOf(request.params['*']));
      if (!asset) throw new Problem('not_found', `there is no ${request.url}`);
      const linked = hasRuns && url === '/';
      const etag = linked ? asset.etag.replace(/"$/, '-runs"') : asset.etag;
      reply.headers({ etag, 'cache-control': asset.cacheControl });
      if (request.headers['if-none-match'] === etag) return reply.code(304).send();
      return reply
        .type(asset.contentType)
        .send(linked ? String(asset.body).replace(NO_RUNS, WITH_RUNS) : asset.body);
    });
  }
}
