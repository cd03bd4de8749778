import etag from '@fastify/etag';
import type { FastifyInstance } from 'fastify';

const OK = 200;
/** A browser may keep a reply, and asks whether it still holds before it uses it. */
const REVALIDATED = 'private, no-cache';

/**
 * Gives the replies of routes that are added to `app` later an `ETag`, and answers 304 where the client has them already.
 * The tags are weak, as a reply may be compressed.
 */
export async function revalidateReplies(app: FastifyInstance): Promise<void> {
  app.addHook('onSend', (_request, reply, payload, done) => {
    if (reply.statusCode === OK) reply.header('cache-control', REVALIDATED);
    done(null, payload);
  });
  await app.register(etag, { weak: true });
}
