import { Worker } from 'node:worker_threads';
import type { Tokenizer } from '../../models/tokenizer/tokenizer.ts';

const WORKER = new URL('./encoder-worker.ts', import.meta.url);
/** Longest text, in UTF-16 units, that is tokenized at once: some ten milliseconds. Longer ones are for the thread. */
export const LONGEST_AT_ONCE = 8192;
/** What a text takes, for its place in the line. */
const MS_A_CHARACTER = 0.001;
/** Characters of a text that are looked at first, for each token that there may be. */
const CHARACTERS_A_TOKEN = 8;

/** A text, and how many tokens of it are of use. */
export interface EncoderRequest {
  readonly text: string;
  readonly most: number;
}

/** The ids, null where there are far too many, or why there are none. */
export interface EncoderReply {
  readonly ids?: Int32Array<ArrayBuffer> | null;
  readonly error?: string;
}

interface Waiting extends EncoderRequest {
  /** The next text is that with the least of it, in milliseconds of the process's clock. */
  readonly due: number;
  readonly resolve: (ids: ArrayLike<number> | undefined) => void;
  readonly reject: (error: unknown) => void;
}

/**
 * Tokenizes the prompts of many clients. A megabyte takes seconds, so long texts are for a thread with a tokenizer of its own,
 * which starts with the first of them; meanwhile all others are answered. Next is the text that was first to come, were a long
 * one to come later by about the time that it takes: short ones go ahead, but nobody is overtaken for long.
 */
export class PromptEncoder {
  readonly #tokenizer: Tokenizer;
  readonly #waiting = new Set<Waiting>();
  #worker: Worker | undefined;
  #current: Waiting | undefined;
  #closed = false;

  constructor(tokenizer: Tokenizer) {
    this.#tokenizer = tokenizer;
  }

  /**
   * The token ids of a text; undefined for a long text whose beginning alone has more than twice `most`.
   * @param signal aborted when nobody waits for them any more
   * @throws the signal's reason; Error when the thread breaks or the encoder is closed
   */
  async encode(text: string, most: number, signal?: AbortSignal): Promise<readonly number[] | undefined> {
    if (text.length <= LONGEST_AT_ONCE) return encodeUpTo(this.#tokenizer, text, most);
    signal?.throwIfAborted();
    if (this.#closed) throw new Error('the encoder is closed');
    const { promise, resolve, reject } = Promise.withResolvers<ArrayLike<number> | undefined>();
    const due = performance.now() + MS_A_CHARACTER * text.length;
    const waiting: Waiting = { text, most, due, resolve, reject };
    const abort = () => {
      this.#waiting.delete(waiting);
      reject(signal?.reason);
    };
    signal?.addEventListener('abort', abort, { once: true });
    this.#waiting.add(waiting);
    this.#next();
    try {
      const ids = await promise;
      return ids && Array.from(ids);
    } finally {
      signal?.removeEventListener('abort', abort);
    }
  }

  async close(): Promise<void> {
    this.#closed = true;
    const worker = this.#worker;
    this.#fail(new Error('the encoder is closed'));
    for (const { reject } of this.#waiting) reject(new Error('the encoder is closed'));
    this.#waiting.clear();
    await worker?.terminate();
  }

  #next(): void {
    if (this.#current || this.#waiting.size === 0) return;
    const next = [...this.#waiting].reduce((a, b) => (b.due < a.due ? b : a));
    this.#waiting.delete(next);
    this.#current = next;
    this.#worker ??= this.#start();
    // An idle thread does not keep the program alive.
    this.#worker.ref();
    this.#worker.postMessage({ text: next.text, most: next.most } satisfies EncoderRequest);
  }

  #start(): Worker {
    const worker = new Worker(WORKER, { workerData: this.#tokenizer.files });
    worker.on('message', ({ ids, error }: EncoderReply) => {
      const current = this.#current;
      this.#current = undefined;
      worker.unref();
      if (error === undefined) current?.resolve(ids ?? undefined);
      else current?.reject(new Error(`a text could not be tokenized: ${error}`));
      this.#next();
    });
    const ended = (why: string) => {
      if (worker !== this.#worker) return;
      this.#fail(new Error(`the thread that tokenizes ended: ${why}`));
      this.#next();
    };
    worker.on('error', (error: Error) => ended(error.message));
    worker.on('exit', code => ended(`code ${code}`));
    return worker;
  }

  /** The text that the thread was at fails with it; the next one gets a new thread. */
  #fail(error: Error): void {
    this.#worker = undefined;
    this.#current?.reject(error);
    this.#current = undefined;
  }
}

/**
 * The token ids of a text; undefined for a long text whose beginning alone has more than twice `most`. What follows may still
 * merge with the end of a beginning, but never with half of it.
 */
export function encodeUpTo(
  tokenizer: Pick<Tokenizer, 'encode'>,
  text: string,
  most: number,
): number[] | undefined {
  for (let length = CHARACTERS_A_TOKEN * most; length < text.length; length *= 4) {
    if (tokenizer.encode(text.slice(0, length)).length > 2 * most) return undefined;
  }
  return tokenizer.encode(text);
}
