import helmet from '@fastify/helmet';
import type { FastifyInstance } from 'fastify';

/** Headers of every reply: browsers must not guess another type or store possible secrets. Pages may override them. */
export const REPLY_HEADERS = { 'x-content-type-options': 'nosniff', 'cache-control': 'no-store' };

/** Sets the headers of every reply. */
export function secureReplies(app: FastifyInstance): void {
  app.addHook('onRequest', (_request, reply, done) => {
    reply.headers(REPLY_HEADERS);
    done();
  });
}

/**
 * Sets the headers of pages that are registered on `app` later: they load from this server only, run no inline scripts,
 * and cannot be framed. Encryption, and so `Strict-Transport-Security`, is the proxy's task.
 */
export async function securePages(app: FastifyInstance): Promise<void> {
  await app.register(helmet, {
    contentSecurityPolicy: {
      useDefaults: false,
      directives: {
        defaultSrc: ["'self'"],
        styleSrc: ["'self'"],
        imgSrc: ["'self'", 'data:', 'blob:'],
        objectSrc: ["'none'"],
        baseUri: ["'none'"],
        formAction: ["'self'"],
        frameAncestors: ["'none'"],
      },
    },
    frameguard: { action: 'deny' },
    strictTransportSecurity: false,
  });
}
