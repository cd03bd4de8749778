import type { Socket } from 'node:net';
import { now } from '../scheduling/fair-scheduler.ts';

/** Lines after which it is looked how long they took. */
const LINES_AT_ONCE = 16;
/** Work on lines, with all that follows from them at once, after which everything else has its turn, in milliseconds. */
const MAX_MS = 2;

/**
 * Reads a stream as lines of text, without their ends. Of thousands that come together it takes some, lets the event loop
 * go round, and takes the next ones; the socket waits in the meantime. A line that cannot be taken ends the socket with
 * what was thrown.
 */
export function readLines(socket: Socket, take: (line: string) => void): void {
  socket.setEncoding('utf8');
  let begun = '';

  const takeFrom = async (chunk: string): Promise<void> => {
    let start = 0;
    let since = now();
    for (let end = chunk.indexOf('\n'), count = 1; end >= 0; end = chunk.indexOf('\n', start), count++) {
      const line = begun + chunk.slice(start, end);
      begun = '';
      start = end + 1;
      take(line);
      if (count % LINES_AT_ONCE !== 0) continue;
      // What waits for a reply goes on before this does.
      await undefined;
      if (now() - since < MAX_MS) continue;
      await new Promise(setImmediate);
      since = now();
    }
    begun += chunk.slice(start);
  };

  socket.on('data', (chunk: string) => {
    socket.pause();
    takeFrom(chunk).then(
      () => socket.resume(),
      error => socket.destroy(error),
    );
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
