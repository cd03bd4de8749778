import { connect, type Socket } from 'node:net';
import { Problem } from '../problems.ts';
import { LineWriter, readLines } from './lines.ts';
import { readProblem } from './problem-text.ts';

const RETRY_AFTER_SECONDS = 1;
/** Second word of a reply: it holds a result, or a problem. */
export const RESULT = '+';

interface PendingRequest {
  resolve(text: string): void;
  reject(problem: Problem): void;
}

/**
 * One process's questions to another. A question is a line `number topic payload`, a reply `number +|- text`; replies
 * come in any order. Connects when it is first needed, and again after the other one has ended.
 */
export class IpcChannel {
  readonly #path: string;
  readonly #open = new Map<number, PendingRequest>();
  #socket: Socket | undefined;
  #writer: LineWriter | undefined;
  #asked = 0;

  /** @param path of the other's socket */
  constructor(path: string) {
    this.#path = path;
  }

  /** Questions without a reply. */
  get waiting(): number {
    return this.#open.size;
  }

  /**
   * @param payload JSON text without line feeds
   * @returns JSON text
   * @throws Problem that the other one answers with; `worker_unavailable` when it ends before it does
   */
  ask(topic: string, payload: string): Promise<string> {
    const number = ++this.#asked;
    const reply = new Promise<string>((resolve, reject) => this.#open.set(number, { resolve, reject }));
    this.#connected().write(`${number} ${topic} ${payload}`);
    return reply;
  }

  close(): void {
    this.#socket?.end();
  }

  #connected(): LineWriter {
    if (this.#writer) return this.#writer;
    const socket = connect(this.#path);
    readLines(socket, line => this.#take(line));
    // What went wrong is told by the end that follows.
    socket.on('error', () => undefined);
    socket.once('close', () => this.#lose(socket));
    this.#socket = socket;
    this.#writer = new LineWriter(socket);
    return this.#writer;
  }

  #take(line: string): void {
    const space = line.indexOf(' ');
    const number = Number(line.slice(0, space));
    const question = this.#open.get(number);
    this.#open.delete(number);
    const text = line.slice(space + 3);
    if (line[space + 1] === RESULT) question?.resolve(text);
    else question?.reject(readProblem(text));
  }

  #lose(socket: Socket): void {
    if (this.#socket !== socket) return;
    this.#socket = undefined;
    this.#writer = undefined;
    const questions = [...this.#open.values()];
    this.#open.clear();
    for (const { reject } of questions) {
      reject(
        new Problem(
          'worker_unavailable',
          'the process of this server that keeps what was asked for ended without warning and is starting again',
          { retryAfterSeconds: RETRY_AFTER_SECONDS },
        ),
      );
    }
  }
}
