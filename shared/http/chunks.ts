import { type Readable, Transform, type TransformCallback } from 'node:stream';
import type { FastifyInstance } from 'fastify';

/** Chunks that are kept one by one. */
const MAX_LOOSE_CHUNKS = 1024;
/** Bytes that wait to be joined. */
const MAX_LOOSE_BYTES = 64 * 1024;
/** Chunks of any size. Further ones must have some bytes on average: each takes 2.5 µs to read, however small it is. */
const MAX_SMALL_CHUNKS = 16_384;
const MIN_AVERAGE_BYTES = 32;

/** A body that is too long, or in chunks so small that reading them would delay others. */
export class RefusedBody extends Error {
  readonly code = 'BODY_REFUSED';
  readonly statusCode = 400;
}

/** A body that did not end in time. A receiver's own timeout often starts again with each byte. */
export class LateBody extends Error {
  readonly code = 'BODY_LATE';
}

/** Limits of a body from elsewhere. */
export interface BodyLimits {
  readonly maxBytes?: number;
  /** Milliseconds from the call to its last byte. */
  readonly maxMs?: number;
}

/** Replies with a status below 200 before the reply itself. */
const MAX_INTERIM_REPLIES = 16;

/**
 * A request's `onInfo`, which ends one that gets only interim replies: each of them starts the timeout again.
 * @throws Error from the seventeenth on
 */
export function interimLimit(): () => void {
  let interim = 0;
  return () => {
    if (++interim > MAX_INTERIM_REPLIES) throw new Error('interim replies without end');
  };
}

/** Counts chunks and their bytes. */
class ChunkCount {
  #chunks = 0;
  bytes = 0;

  /** @throws RefusedBody */
  add(chunk: Buffer): void {
    this.#chunks++;
    this.bytes += chunk.length;
    if (this.#chunks > MAX_SMALL_CHUNKS && this.bytes < this.#chunks * MIN_AVERAGE_BYTES) {
      throw new RefusedBody(
        `the body comes in more than ${MAX_SMALL_CHUNKS} chunks of less than ${MIN_AVERAGE_BYTES} bytes on average; send larger chunks`,
      );
    }
  }
}

/**
 * All bytes of a stream. Its sender chooses how small the chunks are, and each that is kept takes some 200 bytes of heap,
 * so small ones are joined as they come.
 * @throws RefusedBody beyond `maxBytes` and for too many small chunks; LateBody; and what the stream throws
 */
export function bytesOf(stream: Readable, limits: BodyLimits = {}): Promise<Buffer> {
  const { maxBytes = Number.POSITIVE_INFINITY, maxMs } = limits;
  const chunks: Buffer[] = [];
  const count = new ChunkCount();
  let loose = 0;
  let timer: NodeJS.Timeout | undefined;
  const work = new Promise<Buffer>((resolve, reject) => {
    if (maxMs !== undefined) {
      const late = new LateBody(`the reply was not whole after ${maxMs / 1000} s`);
      timer = setTimeout(() => stream.destroy(late), maxMs);
    }
    stream.on('error', reject);
    stream.on('close', () => reject(new Error('the body ended early')));
    stream.on('end', () => resolve(Buffer.concat(chunks)));
    stream.on('data', (chunk: Buffer) => {
      try {
        count.add(chunk);
        if (count.bytes > maxBytes) throw new RefusedBody(`the body has more than ${maxBytes} bytes`);
      } catch (error) {
        stream.destroy(error as Error);
        return;
      }
      chunks.push(chunk);
      if (++loose < MAX_LOOSE_CHUNKS) return;
      loose = 0;
      chunks.push(Buffer.concat(chunks.splice(-MAX_LOOSE_CHUNKS)));
    });
  });
  return work.finally(() => clearTimeout(timer));
}

/** Like {@link bytesOf}, as UTF-8 text without a byte order mark. */
export async function textOf(stream: Readable, limits?: BodyLimits): Promise<string> {
  return new TextDecoder().decode(await bytesOf(stream, limits));
}

/** Joins the chunks of chunked bodies before Fastify keeps them. Too many small ones end the connection. */
export function joinChunks(app: FastifyInstance): void {
  app.addHook('preParsing', (request, reply, payload, done) => {
    if (request.headers['transfer-encoding'] === undefined) {
      done(null, payload);
      return;
    }
    const joined = new JoinedChunks();
    joined.on('error', () => reply.header('connection', 'close'));
    payload.on('error', error => joined.destroy(error));
    done(null, payload.pipe(joined));
  });
}

class JoinedChunks extends Transform {
  readonly #count = new ChunkCount();
  #chunks: Buffer[] = [];
  #size = 0;

  override _transform(chunk: Buffer, _encoding: string, done: TransformCallback): void {
    try {
      this.#count.add(chunk);
    } catch (error) {
      done(error as Error);
      return;
    }
    this.#size += chunk.length;
    this.#chunks.push(chunk);
    if (this.#size < MAX_LOOSE_BYTES && this.#chunks.length < MAX_LOOSE_CHUNKS) done();
    else this._flush(done);
  }

  override _flush(done: TransformCallback): void {
    const chunks = this.#chunks;
    this.#chunks = [];
    this.#size = 0;
    done(null, chunks.length === 0 ? undefined : Buffer.concat(chunks));
  }
}
