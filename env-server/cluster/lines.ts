import type { Socket } from 'node:net';

/** Reads a stream as lines of text, without their ends. */
export function readLines(socket: Socket, take: (line: string) => void): void {
  socket.setEncoding('utf8');
  let begun = '';
  socket.on('data', (chunk: string) => {
    let start = 0;
    for (let end = chunk.indexOf('\n'); end >= 0; end = chunk.indexOf('\n', start)) {
      const line = begun + chunk.slice(start, end);
      begun = '';
      start = end + 1;
      take(line);
    }
    begun += chunk.slice(start);
  });
}

/** Writes lines, all those of a moment at once. */
export class LineWriter {
  readonly #socket: Socket;
  #text = '';

  constructor(socket: Socket) {
    this.#socket = socket;
  }

  /** @param line without line feeds */
  write(line: string): void {
    if (this.#text === '') process.nextTick(this.#flush);
    this.#text += `${line}\n`;
  }

  readonly #flush = (): void => {
    const text = this.#text;
    this.#text = '';
    if (!this.#socket.destroyed) this.#socket.write(text);
  };
}
