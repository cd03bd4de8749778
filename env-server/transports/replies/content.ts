import type { IncomingMessage } from 'node:http';
import { promisify } from 'node:util';
import { brotliDecompress, gunzip, inflate } from 'node:zlib';
import compress from '@fastify/compress';
import type { FastifyInstance } from 'fastify';
import { Problem } from '../../problems.ts';
import type { Lane } from '../../scheduling/fair-scheduler.ts';
import { type SlotGroup, Slots } from '../../scheduling/slots.ts';
import { MAX_DEFINITION_PARTS, MAX_PARTS, parseJson } from './json.ts';

/** Compressed bodies that are taken, by `Content-Encoding`. */
const DECODERS: { readonly [encoding: string]: (body: Buffer, options: object) => Promise<Buffer> } = {
  gzip: promisify(gunzip),
  br: promisify(brotliDecompress),
  deflate: promisify(inflate),
};
/**
 * Bodies that are being decompressed, or wait in full length for their turn to be parsed: each takes a thread, of which
 * there are few, and memory up to the limit.
 */
const MAX_DECODING = 2;
/** Replies below are not worth the time. */
const MIN_COMPRESSED_BYTES = 8192;
/** Replies up to this size are compressed in one piece, which is quicker but holds up others meanwhile. */
const MAX_CHUNK_BYTES = 32_768;
/** Events are sent as they come, so nothing gathers them. */
const COMPRESSIBLE =
  /^(?:text\/(?!event-stream)|image\/svg|application\/(?:json|jsonl|problem\+json|javascript))/;
const JSON_CONTENT = /^application\/(?:problem\+)?json\b/;
/** Routes that take definitions of environments. */
const DEFINITIONS = '/v1/envs';
/** Replies that are larger are not indented, as that would hold up everybody. */
const MAX_INDENTED_BYTES = 256 * 1024;
const INDENT = 2;

declare module 'fastify' {
  interface FastifyRequest {
    /** The query asks for JSON that is indented. */
    pretty: boolean;
  }
}

/**
 * Takes bodies of JSON only, compressed or not.
 * @param limitBytes of a body, also after it was decompressed
 * @param laneOf gives the turns in which a body is parsed
 */
export function readJson(
  app: FastifyInstance,
  limitBytes: number,
  laneOf: (request: IncomingMessage) => Lane,
): void {
  const slots = new Slots({ most: MAX_DECODING });
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('application/json', { parseAs: 'buffer' }, (request, body: Buffer, done) => {
    const encoding = request.headers['content-encoding']?.toLowerCase() ?? 'identity';
    const maxParts = request.routeOptions.url?.startsWith(DEFINITIONS) ? MAX_DEFINITION_PARTS : MAX_PARTS;
    const read = (plain: Buffer, release?: () => void) =>
      laneOf(request.raw).run(() => {
        release?.();
        let value: unknown;
        try {
          value = plain.length === 0 ? undefined : parseJson(plain.toString(), maxParts);
        } catch (error) {
          done(error as Error);
          return;
        }
        done(null, value);
      });
    if (encoding === 'identity') read(body);
    else {
      const { raw } = request;
      const decoding = { body, encoding, limitBytes, isLeft: () => raw.socket.destroyed };
      const slot = slots.group(laneOf(raw).client);
      decode(decoding, slot).then(plain => read(plain, () => slot.release()), done);
    }
  });
}

interface Decoding {
  readonly body: Buffer;
  readonly encoding: string;
  /** Greatest length of the body when it is decompressed. */
  readonly limitBytes: number;
  /** True if its client is gone. */
  isLeft(): boolean;
}

/** Decompresses a body. It keeps its slot until it is parsed: the caller releases it, unless this throws. */
async function decode(decoding: Decoding, slot: SlotGroup): Promise<Buffer> {
  const { body, encoding, limitBytes } = decoding;
  const decoder = Object.hasOwn(DECODERS, encoding) ? DECODERS[encoding] : undefined;
  if (!decoder) {
    throw new Problem(
      'unsupported_media_type',
      `the header content-encoding is ${JSON.stringify(encoding)}; bodies are taken as they are, or compressed with one of ${Object.keys(DECODERS).join(', ')}`,
    );
  }
  await slot.take();
  try {
    if (decoding.isLeft()) throw new Error('its client is gone');
    return await decoder(body, { maxOutputLength: limitBytes });
  } catch (error) {
    slot.release();
    const { code, message } = error as NodeJS.ErrnoException;
    if (code === 'ERR_BUFFER_TOO_LARGE') {
      throw new Problem(
        'body_too_large',
        `the body is larger than ${limitBytes} bytes when it is decompressed; the server takes no more (--body-limit-bytes)`,
      );
    }
    throw new Problem(
      'bad_request',
      `the body is not ${encoding} as the header content-encoding says: ${message}`,
    );
  }
}

/**
 * Lets JSON end with a line break, so that the shell prompt after curl starts a new line, indents it where the query
 * has `pretty`, and compresses large replies for clients that take that. To be called before any routes are added.
 */
export async function writeContent(app: FastifyInstance): Promise<void> {
  app.decorateRequest('pretty', false);
  app.addHook('onRequest', (request, _reply, done) => {
    const query = request.query as { pretty?: unknown };
    if (query.pretty !== undefined) {
      request.pretty = query.pretty !== 'false' && query.pretty !== '0';
      // No operation knows it.
      delete query.pretty;
    }
    done();
  });
  app.addHook('onSend', (request, reply, payload, done) => {
    const isText = typeof payload === 'string' || Buffer.isBuffer(payload);
    if (!isText || payload.length === 0 || !JSON_CONTENT.test(String(reply.getHeader('content-type')))) {
      done(null, payload);
    } else if (request.pretty && payload.length <= MAX_INDENTED_BYTES) {
      done(null, `${JSON.stringify(JSON.parse(payload.toString()), null, INDENT)}\n`);
    } else {
      done(null, typeof payload === 'string' && !payload.endsWith('\n') ? `${payload}\n` : payload);
    }
  });
  await app.register(compress, {
    globalDecompression: false,
    encodings: ['br', 'gzip'],
    threshold: MIN_COMPRESSED_BYTES,
    syncThreshold: MAX_CHUNK_BYTES,
    customTypes: COMPRESSIBLE,
  });
}
