/**
 * Reads large JSON files piece by piece, so that files beyond the longest string can be read while other work gets its
 * turn.
 */
import { createReadStream } from 'node:fs';

const [NEW_LINE, QUOTE, COMMA, BACKSLASH] = [0x0a, 0x22, 0x2c, 0x5c];
const [OPEN_LIST, CLOSE_LIST, OPEN_OBJECT, CLOSE_OBJECT] = [0x5b, 0x5d, 0x7b, 0x7d];
const BYTE_ORDER_MARK = '\uFEFF';

/**
 * The lines of a text file. Only line feeds end one: `readline` also splits at U+2028, which JSON allows inside
 * strings.
 */
export async function* textLines(file: string): AsyncGenerator<string> {
  const piece = new Piece();
  let first = true;
  const taken = (line: string) => {
    const text = first && line.startsWith(BYTE_ORDER_MARK) ? line.slice(1) : line;
    first = false;
    return text;
  };
  for await (const data of createReadStream(file)) {
    const chunk = data as Buffer;
    let start = 0;
    for (let at = chunk.indexOf(NEW_LINE); at >= 0; at = chunk.indexOf(NEW_LINE, start)) {
      yield taken(piece.end(chunk, start, at));
      start = at + 1;
    }
    piece.add(chunk, start);
  }
  yield taken(piece.end());
}

export interface JsonChunk {
  /** Type of the file's top-level value. */
  readonly of: 'array' | 'object';
  /** An element's text, or an entry's: `"key": value`. */
  readonly text: string;
}

/** The file is not one array or object; the message says why. */
export class NotJson extends Error {
  override readonly name = 'NotJson';
}

/**
 * The elements of a file that is one array or one object. Only brackets, commas and quotation marks are examined;
 * `JSON.parse` then checks each element. (The streaming parsers that were tried take four to seven times as long.)
 * @throws NotJson where the file ends early, has content after its end, or is not an array or object
 */
export async function* jsonParts(file: string): AsyncGenerator<JsonChunk> {
  const cutter = new JsonSplitter();
  for await (const chunk of createReadStream(file)) yield* cutter.cut(chunk as Buffer);
  cutter.end();
}

/** Text that may span several chunks. */
class Piece {
  #chunks: Buffer[] = [];

  add(chunk: Buffer, start: number): void {
    if (start < chunk.length) this.#chunks.push(chunk.subarray(start));
  }

  /** The text so far, with a last part. */
  end(chunk: Buffer = Buffer.alloc(0), start = 0, end = chunk.length): string {
    if (this.#chunks.length === 0) return chunk.toString('utf8', start, end);
    const text = Buffer.concat([...this.#chunks, chunk.subarray(start, end)]).toString('utf8');
    this.#chunks = [];
    return text;
  }
}

/** Splits at the commas of the outermost array or object. */
class JsonSplitter {
  readonly #piece = new Piece();
  #of: JsonChunk['of'] | undefined;
  #depth = 0;
  #inText = false;
  #escaped = false;
  #over = false;
  #parts = 0;

  /** The elements that end in a chunk. */
  *cut(chunk: Buffer): Generator<JsonChunk> {
    let start = 0;
    for (let at = 0; at < chunk.length; at++) {
      if (this.#inText) {
        at = this.#endOfText(chunk, at);
        continue;
      }
      const byte = chunk[at];
      if (byte === QUOTE) this.#inText = true;
      else if (byte === OPEN_LIST || byte === OPEN_OBJECT) {
        if (++this.#depth !== 1) continue;
        this.#begin(this.#piece.end(chunk, start, at), byte);
        start = at + 1;
      } else if (byte === CLOSE_LIST || byte === CLOSE_OBJECT) {
        if (--this.#depth !== 0) continue;
        const text = this.#piece.end(chunk, start, at);
        start = at + 1;
        this.#finish(byte);
        if (this.#parts > 0 || text.trim() !== '') yield this.#part(text);
      } else if (byte === COMMA && this.#depth === 1) {
        yield this.#part(this.#piece.end(chunk, start, at));
        start = at + 1;
      }
    }
    this.#piece.add(chunk, start);
  }

  /** @throws NotJson */
  end(): void {
    if (!this.#of) throw new NotJson('the file is not an array or object of JSON');
    if (!this.#over) throw new NotJson('the file ends early');
    if (this.#piece.end().trim() !== '') throw new NotJson('the file continues after its end');
  }

  /** End of the string that continues at `at`, or of the chunk. */
  #endOfText(chunk: Buffer, from: number): number {
    let at = from;
    if (this.#escaped) at++;
    this.#escaped = false;
    for (; at < chunk.length; at++) {
      if (chunk[at] === BACKSLASH) {
        at++;
        this.#escaped = at === chunk.length;
      } else if (chunk[at] === QUOTE) {
        this.#inText = false;
        return at;
      }
    }
    return at;
  }

  #part(text: string): JsonChunk {
    this.#parts++;
    return { of: this.#of ?? 'array', text };
  }

  #begin(before: string, byte: number): void {
    if (this.#over) throw new NotJson('the file continues after its end');
    if (before.replace(BYTE_ORDER_MARK, '').trim() !== '') {
      throw new NotJson('the file is not an array or object of JSON');
    }
    this.#of = byte === OPEN_LIST ? 'array' : 'object';
  }

  #finish(byte: number): void {
    if ((byte === CLOSE_LIST) !== (this.#of === 'array')) {
      throw new NotJson(`the ${this.#of} of the file does not end as one`);
    }
    this.#over = true;
  }
}
