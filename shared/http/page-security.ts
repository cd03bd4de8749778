import helmet from '@fastify/helmet';
import type { FastifyInstance } from 'fastify';

/** On every reply: browsers must not guess another type, nor keep what may be secret. Pages may say otherwise. */
export const REPLY_HEADERS = { 'x-content-type-options': 'nosniff', 'cache-control': 'no-store' };

/** Sets the headers of every reply. */
export function secureReplies(app: FastifyInstance): void {
  app.addHook('onRequest', (_request, reply, done) => {
    reply.headers(REPLY_HEADERS);
    done();
  });
}

/**
 * Sets the headers of pages that are registered on `app` later: they load from this server only, run no inline
 * scripts, and are in no frame. A proxy is responsible for encryption, and so for `Strict-Transport-Security`.
 * @param inlineStyles for pages of others that cannot do without
 */
export async function securePages(
  app: FastifyInstance,
  { inlineStyles = false }: { readonly inlineStyles?: boolean } = {},
): Promise<void> {
  await app.register(helmet, {
    contentSecurityPolicy: {
      useDefaults: false,
      directives: {
        defaultSrc: ["'self'"],
        styleSrc: inlineStyles ? ["'self'", "'unsafe-inline'"] : ["'self'"],
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
