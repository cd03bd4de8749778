import type { FastifyInstance } from 'fastify';
import { Assets } from '../../shared/assets.ts';
import { Problem } from '../problems.ts';

const PAGE = 'env-server/web/page';
const LOOK = 'shared/web';

/** The playground at `/` and what it loads below `/assets/`. */
export function addPlayground(app: FastifyInstance): void {
  const assets = new Assets([PAGE, LOOK]);
  const routes = [
    { url: '/', pathOf: () => `${PAGE}/page.html` },
    { url: '/assets/*', pathOf: (rest: string) => rest },
  ];
  for (const { url, pathOf } of routes) {
    app.get<{ Params: { '*': string } }>(url, async (request, reply) => {
      const asset = await assets.find(pathOf(request.params['*']));
      if (!asset) throw new Problem('not_found', `there is no ${request.url}`);
      reply.headers({ etag: asset.etag, 'cache-control': 'no-cache' });
      if (request.headers['if-none-match'] === asset.etag) return reply.code(304).send();
      return reply.type(asset.contentType).send(asset.body);
    });
  }
}
