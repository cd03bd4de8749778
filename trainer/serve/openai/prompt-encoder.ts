import { type ChildProcess, fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { onAbort } from '../../../shared/closing.ts';
import type { JsonObject } from '../../../shared/json.ts';
import type { ChatRenderOptions, Tokenizer } from '../../models/tokenizer/tokenizer.ts';

/** Longest text, in UTF-16 units, that counts as short: some ten milliseconds. */
export const LONGEST_SHORT = 8192;
/** Expected time of a job for each character, to order jobs and to limit them. */
const MS_A_CHARACTER = 0.001;

/**
 * Tokenizes the prompts of many clients, and renders their messages by the chat template. A megabyte takes seconds, and
 * the patterns and templates of an untrusted model may never end. So two processes with limits do all of it: one for
 * short texts, which never wait for long ones, and one for long texts, which starts with the first of them.
 */
export class PromptEncoder {
  readonly #short: TextProcess;
  readonly #long: TextProcess;

  constructor({ files }: Pick<Tokenizer, 'files'>) {
    this.#short = new TextProcess(files);
    this.#long = new TextProcess(files);
  }

  /**
   * The token ids of a text; undefined for a long text with a beginning that alone has more than twice `most`.
   * @param signal aborted when its result is no longer needed
   * @throws the signal's reason; TextLimitError; Error when a process breaks or the encoder is closed
   */
  async encode(text: string, most: number, signal?: AbortSignal): Promise<readonly number[] | undefined> {
    const ids = await this.#run({ kind: 'encode', text, most }, text.length, signal);
    return ids === null ? undefined : Array.from(ids as Int32Array);
  }

  /**
   * Encodes texts that will later be encoded without a limit.
   * @throws as {@link encode}
   */
  async tryTexts(texts: readonly string[], signal?: AbortSignal): Promise<void> {
    const length = texts.reduce((sum, text) => sum + text.length, 0);
    await this.#run({ kind: 'try', texts }, length, signal);
  }

  /**
   * The text of messages by the tokenizer's chat template, which it must have.
   * @throws as {@link encode}; TextJobError for messages that the template refuses
   */
  async render(
    messages: readonly JsonObject[],
    options: ChatRenderOptions,
    signal?: AbortSignal,
  ): Promise<string> {
    const { length } = JSON.stringify([messages, options]);
    return (await this.#run({ kind: 'render', messages, options }, length, signal)) as string;
  }

  /** The text of token ids. @throws as {@link encode} */
  async decode(ids: readonly number[], signal?: AbortSignal): Promise<string> {
    return (await this.#run({ kind: 'decode', ids: Int32Array.from(ids) }, ids.length, signal)) as string;
  }

  async close(): Promise<void> {
    await Promise.all([this.#short.close(), this.#long.close()]);
  }

  #run(job: TextJob, length: number, signal: AbortSignal | undefined): Promise<unknown> {
    const process = length <= LONGEST_SHORT ? this.#short : this.#long;
    return process.run(job, MS_A_CHARACTER * length, signal);
  }
}

/** Longest result of a template, in UTF-16 units: twice the largest body of a request. */
const MAX_RENDERED = 8 * 2 ** 20;
/** Characters in the first part of a text, for each possible token. */
const CHARACTERS_A_TOKEN = 8;

/** Work on texts with one tokenizer. */
export type TextJob =
  /**
   * A text, and the most tokens of it that are needed. Replied with an Int32Array, or null if there are far too many.
   */
  | { readonly kind: 'encode'; readonly text: string; readonly most: number }
  /** Texts that are only tried: replied with null. */
  | { readonly kind: 'try'; readonly texts: readonly string[] }
  /** Messages for the chat template. Replied with the text. */
  | { readonly kind: 'render'; readonly messages: readonly JsonObject[]; readonly options: ChatRenderOptions }
  /** Replied with the text. */
  | { readonly kind: 'decode'; readonly ids: Int32Array };

/**
 * The token ids of a text; undefined for a long text with a beginning that alone has more than twice `most`. What follows may
 * still merge with the end of a beginning, but never with half of it.
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

/** Does a job. The comment of its kind names the result. @throws Error of the tokenizer or template */
export function perform(job: TextJob, tokenizer: Tokenizer): unknown {
  switch (job.kind) {
    case 'encode': {
      const ids = encodeUpTo(tokenizer, job.text, job.most);
      return ids === undefined ? null : Int32Array.from(ids);
    }
    case 'try':
      for (const text of job.texts) tokenizer.encode(text);
      return null;
    case 'decode':
      return tokenizer.decode(job.ids);
    case 'render': {
      const text = tokenizer.chatTemplate!.render(job.messages, job.options);
      if (text.length <= MAX_RENDERED) return text;
      throw new RangeError(`it makes a text of ${text.length} characters; the limit is ${MAX_RENDERED}`);
    }
  }
}

const PROGRAM = fileURLToPath(new URL('./text-program.ts', import.meta.url));
/** Time for a tokenizer to be built from its files. The largest published ones take about two seconds. */
const LOAD_LIMIT_MS = 30_000;
/** Least time limit of a job, and its limit as a multiple of the expected time. */
const JOB_LIMIT_MS = 2000;
const LIMIT_FACTOR = 20;
/** A process that does not keep a limit itself is killed this much later. */
const GRACE_MS = 3000;
const MIB = 2 ** 20;
/** Heap of the process, and what each byte of the tokenizer's files adds to it, in MiB. */
const HEAP_MIB = 512;
const HEAP_A_FILE_MIB = 24;

/** Messages to the program of a {@link TextProcess} and from it. */
export type ToTextProgram =
  | { readonly files: { readonly [name: string]: string }; readonly limitMs: number }
  | { readonly job: TextJob; readonly limitMs: number };

export interface FromTextProgram {
  readonly value?: unknown;
  /** The job took longer than its limit. */
  readonly overLimit?: true;
  /** The job failed. */
  readonly error?: string;
}

/** A job took more time or memory than it may. */
export class TextLimitError extends Error {
  override readonly name = 'TextLimitError';
}

/** A template or tokenizer threw an error at its input. */
export class TextJobError extends Error {
  override readonly name = 'TextJobError';
}

interface Waiting {
  readonly job: TextJob;
  /** Scheduling key in milliseconds of the process's clock; the lowest is next. */
  readonly due: number;
  readonly limitMs: number;
  readonly resolve: (value: unknown) => void;
  readonly reject: (error: unknown) => void;
}

/**
 * A process that does jobs with one tokenizer, one after the other, each within its limits of time and memory. It
 * starts with the first job, and again after it ended. Jobs run in order of arrival plus about their expected time:
 * short ones overtake long ones, but no job is overtaken for long.
 */
export class TextProcess {
  readonly #files: { readonly [name: string]: string };
  readonly #waiting = new Set<Waiting>();
  #child: ChildProcess | undefined;
  #loaded = false;
  #current: Waiting | undefined;
  #timer: NodeJS.Timeout | undefined;
  #closed = false;

  constructor(files: { readonly [name: string]: string }) {
    this.#files = files;
  }

  /**
   * Does a job.
   * @param costMs what it is expected to take
   * @param signal aborted when its result is no longer needed
   * @throws the signal's reason; TextLimitError, TextJobError; Error when the process breaks or is closed
   */
  async run(job: TextJob, costMs: number, signal?: AbortSignal): Promise<unknown> {
    signal?.throwIfAborted();
    if (this.#closed) throw new Error('the encoder is closed');
    const { promise, resolve, reject } = Promise.withResolvers<unknown>();
    const limitMs = JOB_LIMIT_MS + LIMIT_FACTOR * costMs;
    const waiting: Waiting = { job, due: performance.now() + costMs, limitMs, resolve, reject };
    const abort = () => {
      this.#waiting.delete(waiting);
      reject(signal?.reason);
    };
    using _abort = onAbort(signal, abort);
    this.#waiting.add(waiting);
    this.#next();
    return await promise;
  }

  async close(): Promise<void> {
    this.#closed = true;
    const child = this.#child;
    this.#end(new Error('the encoder is closed'));
    for (const { reject } of this.#waiting) reject(new Error('the encoder is closed'));
    this.#waiting.clear();
    if (child !== undefined && child.exitCode === null && child.signalCode === null) {
      child.ref();
      await new Promise(resolve => child.once('exit', resolve));
    }
  }

  #next(): void {
    if (this.#current || this.#waiting.size === 0) return;
    const next = [...this.#waiting].reduce((a, b) => (b.due < a.due ? b : a));
    this.#waiting.delete(next);
    this.#current = next;
    this.#child ??= this.#start();
    // An idle process does not keep the program alive.
    this.#child.ref();
    this.#child.channel?.ref();
    if (this.#loaded) this.#send({ job: next.job, limitMs: next.limitMs });
  }

  #start(): ChildProcess {
    const bytes = Object.values(this.#files).reduce((sum, text) => sum + text.length, 0);
    const heapMib = Math.ceil(HEAP_MIB + (HEAP_A_FILE_MIB * bytes) / MIB);
    const child = fork(PROGRAM, {
      execArgv: [`--max-old-space-size=${heapMib}`],
      serialization: 'advanced',
      stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
    });
    const broken = (error: Error) => {
      if (child !== this.#child) return;
      this.#end(error);
      this.#next();
    };
    child.on('message', (message: FromTextProgram) => {
      if (child === this.#child) this.#receive(message);
    });
    child.on('error', error => broken(new Error(`the process that tokenizes failed: ${error.message}`)));
    child.on('exit', (code, signal) => {
      // V8 ends a process without memory by SIGABRT.
      const outOfMemory = signal === 'SIGABRT' || code === 134;
      broken(
        outOfMemory
          ? new TextLimitError(`takes more than ${heapMib} MiB of memory`)
          : new Error(`the process that tokenizes ended: ${signal ?? `code ${code}`}`),
      );
    });
    this.#child = child;
    this.#send({ files: this.#files, limitMs: LOAD_LIMIT_MS });
    return child;
  }

  #send(message: ToTextProgram): void {
    const child = this.#child!;
    const late = () => {
      this.#end(new TextLimitError(`takes more than ${message.limitMs / 1000} s`));
      this.#next();
    };
    this.#timer = setTimeout(late, message.limitMs + GRACE_MS);
    child.send(message, error => {
      if (error !== null && child === this.#child) child.kill('SIGKILL');
    });
  }

  #receive({ value, overLimit, error }: FromTextProgram): void {
    clearTimeout(this.#timer);
    const current = this.#current!;
    if (!this.#loaded) {
      if (overLimit || error !== undefined) {
        const why = error ?? `it takes more than ${LOAD_LIMIT_MS / 1000} s`;
        this.#end(new Error(`the tokenizer cannot be loaded: ${why}`));
        this.#next();
        return;
      }
      this.#loaded = true;
      this.#send({ job: current.job, limitMs: current.limitMs });
      return;
    }
    this.#current = undefined;
    this.#child?.unref();
    this.#child?.channel?.unref();
    if (overLimit) current.reject(new TextLimitError(`takes more than ${current.limitMs / 1000} s`));
    else if (error !== undefined) current.reject(new TextJobError(error));
    else current.resolve(value);
    this.#next();
  }

  /** Ends the process. Its present job fails; the next one gets a new process. */
  #end(error: Error): void {
    clearTimeout(this.#timer);
    this.#child?.kill('SIGKILL');
    this.#child = undefined;
    this.#loaded = false;
    this.#current?.reject(error);
    this.#current = undefined;
  }
}
