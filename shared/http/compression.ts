import { pipeline, type Readable, Stream } from 'node:stream';
import { brotliCompress, constants, createBrotliCompress, createGzip, gzip, type InputType } from 'node:zlib';
import { negotiate } from '@fastify/accept-negotiator';
import type { FastifyInstance, FastifyReply, FastifyRequest, onSendHookHandler } from 'fastify';

declare module 'fastify' {
  interface FastifyContextConfig {
    /** Turns compression off for the replies of one route. */
    isUncompressed?: boolean;
  }
}

/** Smaller replies are not worth the time; page files are requested only once. */
const MIN_BYTES = 8192;
const MIN_PAGE_BYTES = 1024;
const OF_PAGES = /^(?:text\/(?:html|css|javascript)|image\/svg)/;
/** Events are sent as they come, so nothing may buffer them. */
const COMPRESSIBLE =
  /^(?:text\/(?!event-stream)|image\/svg|application\/(?:json|jsonl|problem\+json|javascript|yaml))/;
/** The Brotli quality that is as fast as gzip. */
const BROTLI = { params: { [constants.BROTLI_PARAM_QUALITY]: 4 } };

type Done = (error: Error | null, packed: Buffer) => void;

/** Encodings by `Content-Encoding` name, the best compression first. */
const ENCODERS = {
  br: {
    whole: (content: InputType, done: Done) => brotliCompress(content, BROTLI, done),
    stream: () => createBrotliCompress(BROTLI),
  },
  gzip: { whole: (content: InputType, done: Done) => gzip(content, done), stream: () => createGzip() },
} as const;
type Encoding = keyof typeof ENCODERS;
const ENCODINGS = Object.keys(ENCODERS) as Encoding[];

/**
 * Compresses large replies of routes added later, for clients that accept it. Buffers are compressed in a thread,
 * streams as they flow.
 */
export function compressReplies(app: FastifyInstance): void {
  app.addHook('onRoute', route => {
    const { config, onSend = [] } = route;
    if (!config?.isUncompressed) route.onSend = [...[onSend].flat(), compress];
  });
}

const compress: onSendHookHandler = (request, reply, content, done) => {
  if (
    !isLarge(content, OF_PAGES.test(String(reply.getHeader('content-type'))) ? MIN_PAGE_BYTES : MIN_BYTES)
  ) {
    done(null, content);
    return;
  }
  const encoding = encodingFor(request, reply);
  if (!encoding) {
    done(null, content);
    return;
  }
  const { vary } = reply.getHeaders();
  reply.header('vary', [...(vary === undefined ? [] : [vary].flat()), 'accept-encoding'].join(', '));
  reply.header('content-encoding', encoding);
  reply.removeHeader('content-length');
  const { whole, stream } = ENCODERS[encoding];
  if (!(content instanceof Stream)) {
    whole(content, done);
    return;
  }
  // Fastify reports errors of the stream that it sends.
  done(
    null,
    pipeline(content as Readable, stream(), () => undefined),
  );
};

function isLarge(content: unknown, least: number): content is string | Buffer | Stream {
  if (typeof content === 'string' || Buffer.isBuffer(content)) {
    return content.length >= least || (typeof content === 'string' && Buffer.byteLength(content) >= least);
  }
  return content instanceof Stream;
}

/** The encoding for a reply; undefined where the reply stays as it is. */
function encodingFor({ headers }: FastifyRequest, reply: FastifyReply): Encoding | undefined {
  const accepted = headers['accept-encoding'];
  if (accepted === undefined || reply.hasHeader('content-encoding')) return undefined;
  // A range counts uncompressed bytes.
  if (reply.hasHeader('content-range')) return undefined;
  if (!COMPRESSIBLE.test(String(reply.getHeader('content-type')))) return undefined;
  return negotiate(String(accepted).toLowerCase(), ENCODINGS) ?? undefined;
}
