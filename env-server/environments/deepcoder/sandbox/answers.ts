/** Longest line that the harness may write. */
const MAX_LINE_LENGTH = 65_536;
const NEWLINE = 0x0a;
const NOTHING = Buffer.alloc(0);

/** One line of JSON from the harness, and the bytes that the line announces. */
export interface Answer {
  readonly [key: string]: unknown;
  /** Overwritten by the next answer. */
  readonly data: Buffer;
}

/** Takes apart what the harness writes: lines of JSON, each followed by as many bytes as its `bytes` says. */
export class AnswerReader {
  readonly #take: (answer: Answer) => void;
  #line: Buffer = NOTHING;
  #header: object | undefined;
  /** Holds the bytes of one answer after the other. */
  #room: Buffer = NOTHING;
  #data: Buffer = NOTHING;
  #filled = 0;
  #mostBytes = 0;

  constructor(take: (answer: Answer) => void) {
    this.#take = take;
  }

  /** Most bytes that a line may announce; what was held is let go of. */
  allow(bytes: number): void {
    this.#mostBytes = bytes;
    this.#room = NOTHING;
    this.#data = NOTHING;
  }

  /** @throws Error when a line is no JSON, is too long or announces too much */
  push(chunk: Buffer): void {
    for (let rest = chunk; rest.length > 0; ) {
      rest = this.#header ? this.#readData(rest) : this.#readLine(rest);
    }
  }

  #readLine(chunk: Buffer): Buffer {
    const end = chunk.indexOf(NEWLINE);
    const part = end < 0 ? chunk : chunk.subarray(0, end);
    if (this.#line.length + part.length > MAX_LINE_LENGTH)
      throw new Error(`wrote a line of more than ${MAX_LINE_LENGTH} bytes`);
    this.#line = Buffer.concat([this.#line, part]);
    if (end < 0) return NOTHING;
    const header = JSON.parse(this.#line.toString()) as { bytes?: number };
    this.#line = NOTHING;
    const { bytes = 0 } = header;
    if (!(bytes <= this.#mostBytes))
      throw new Error(`announced ${bytes} bytes, more than ${this.#mostBytes}`);
    this.#header = header;
    if (bytes > this.#room.length)
      this.#room = Buffer.allocUnsafeSlow(Math.min(this.#mostBytes, 2 ** Math.ceil(Math.log2(bytes))));
    this.#data = this.#room.subarray(0, bytes);
    this.#filled = 0;
    if (bytes === 0) this.#finish();
    return chunk.subarray(end + 1);
  }

  #readData(chunk: Buffer): Buffer {
    const taken = chunk.copy(this.#data, this.#filled);
    this.#filled += taken;
    if (this.#filled === this.#data.length) this.#finish();
    return chunk.subarray(taken);
  }

  #finish(): void {
    const answer = { ...this.#header, data: this.#data };
    this.#header = undefined;
    this.#take(answer);
  }
}
