import { type ChildProcess, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { orAborted } from '../../../shared/http/retry.ts';
import type {
  AskReply,
  EncodedText,
  KeptCheckpoints,
  PlayOnReply,
} from '../../../shared/run-folder/requests.ts';
import {
  type CheckpointChoice,
  type Checkpoints,
  MAX_PROMPT,
  type PlayOnStart,
  type Question,
} from '../../dashboard/checkpoint-route.ts';
import {
  type Checkpoint,
  checkpointAt,
  keptCheckpoints,
  latestCheckpoint,
} from '../../training/run-folder/checkpoint.ts';
import { openRunFolder, runFolderAt } from '../../training/run-folder/run-folder.ts';
import { type ChildProgram, childOf } from './child-program.ts';
import type { PlayOnOrder, PlayOnResult } from './play-on.ts';

const TRAINER = fileURLToPath(new URL('../../main.ts', import.meta.url));
const PLAY_ON = fileURLToPath(new URL('./play-on.ts', import.meta.url));
const SERVING = / on (http:\/\/\S+)\/v1/;
const ANSWERS = 4;
/** Limits in milliseconds: of an answer and of an episode, each with the loading of the model. */
const ASK_MS = 420_000;
const PLAY_MS = 600_000;
/** A model that nobody asks is given up after so long; a process that is asked to stop has this time. */
const IDLE_MS = 60_000;
const STOP_MS = 5000;
/** Checkpoints that an error names. */
const MAX_NAMED = 10;
/** Characters kept of what a process says about its failure. */
const MAX_SAID = 2000;

/** A process with its last words. */
interface Running {
  readonly program: ChildProgram;
  readonly process: ChildProcess;
  /** The last line that it wrote about a failure. */
  lastWords(): string;
}

interface Served extends Running {
  readonly folder: string;
  readonly url: Promise<string>;
  readonly token: string;
}

/**
 * Checkpoints of runs for the pages of the dashboard, each in its own process: one at a time, started at its first
 * request. A served model stays for a minute, or until another one is asked.
 */
export class CheckpointProcesses implements Checkpoints {
  /** Address of the environment server on which episodes are played on. */
  readonly #server: string | undefined;
  readonly #idleMs: number;
  readonly #askMs: number;
  #served: Served | undefined;
  #ending: Promise<void> | undefined;
  #idle: NodeJS.Timeout | undefined;
  #isBusy = false;
  readonly #closed = new AbortController();
  readonly #running = new Set<ChildProgram>();

  constructor(server: string | undefined, { idleMs = IDLE_MS, askMs = ASK_MS } = {}) {
    this.#server = server;
    this.#idleMs = idleMs;
    this.#askMs = askMs;
  }

  /** Processes that have not ended. */
  get pids(): readonly number[] {
    return [...this.#running].map(({ pid }) => pid);
  }

  kept(folder: string): KeptCheckpoints {
    return keptCheckpoints(runFolderAt(folder));
  }

  ask(choice: CheckpointChoice, question: Question, signal: AbortSignal): Promise<AskReply> {
    return this.#alone(choice, signal, this.#askMs, async (checkpoint, stop) => {
      const { before, text, after, ...sampling } = question;
      const served = await this.#serve(checkpoint);
      const url = await orAborted(served.url, stop).catch(async error => {
        // A model that is still loading would keep the next one waiting.
        await this.#end();
        throw error;
      });
      const post = <T>(path: string, body: object) => replyOf<T>(served, `${url}${path}`, body, stop);
      const encoded =
        text === '' ? undefined : await post<Tokens>('/tokenize', { prompt: text, return_token_strs: true });
      const prompt = [...before, ...(encoded?.tokens ?? []), ...after];
      if (prompt.length > MAX_PROMPT)
        throw new Error(`the prompt has ${prompt.length} tokens, more than ${MAX_PROMPT}`);
      const { choices } = await post<Completion>('/v1/completions', {
        ...sampling,
        ...{ prompt, n: ANSWERS, logprobs: 0 },
      });
      const answers = choices.map(({ text, logprobs, finish_reason }) => ({
        text,
        tokens: logprobs.tokens.map((token, i) => [token, logprobs.token_logprobs[i]] as const),
        isCut: finish_reason === 'length',
      }));
      return { step: checkpoint.state.step, answers, ...(encoded && { encoded: asRead(encoded, text) }) };
    });
  }

  playOn(choice: CheckpointChoice, start: PlayOnStart, signal: AbortSignal): Promise<PlayOnReply> {
    const server = this.#server;
    if (server === undefined) throw new Error('start the dashboard with --server to play on');
    return this.#alone(choice, signal, PLAY_MS, async (checkpoint, stop) => {
      // Two models may not fit.
      await this.#end();
      const running = this.#start([PLAY_ON]);
      running.process.stdout!.resume();
      try {
        const order: PlayOnOrder = { run: choice.folder, checkpoint: checkpoint.policy, server, start };
        // A process that cannot take it says why when it ends.
        running.process.send(order, () => {});
        const replied = once(running.process, 'message') as Promise<[PlayOnResult]>;
        const [result] = await orAborted(Promise.race([replied, failed(running)]), stop);
        if ('error' in result) throw new Error(result.error);
        return { step: checkpoint.state.step, actions: result.actions };
      } finally {
        await this.#stop(running.program);
      }
    });
  }

  async close(): Promise<void> {
    this.#closed.abort(new Error('the dashboard ends'));
    clearTimeout(this.#idle);
    await Promise.all([...this.#running].map(program => this.#stop(program)));
  }

  /** Does the work with a checkpoint, unless other work is in progress. */
  async #alone<T>(
    choice: CheckpointChoice,
    signal: AbortSignal,
    mostMs: number,
    work: (checkpoint: Checkpoint, stop: AbortSignal) => Promise<T>,
  ): Promise<T> {
    if (this.#isBusy) throw new Error('a checkpoint answers another request: wait for it and ask again');
    this.#isBusy = true;
    clearTimeout(this.#idle);
    const late = AbortSignal.timeout(mostMs);
    try {
      return await work(chosen(choice), AbortSignal.any([signal, this.#closed.signal, late]));
    } catch (error) {
      if (!late.aborted) throw error;
      // It may never answer.
      await this.#end();
      throw new Error(`the checkpoint has not answered in ${mostMs / 1000} s`);
    } finally {
      this.#isBusy = false;
      if (!this.#closed.signal.aborted) this.#idle = setTimeout(() => void this.#end(), this.#idleMs).unref();
    }
  }

  /** The process that serves a checkpoint; of another one it is ended first. */
  async #serve({ folder }: Checkpoint): Promise<Served> {
    if (this.#served?.folder === folder) return this.#served;
    await this.#end();
    const token = randomBytes(24).toString('base64url');
    const args = ['serve', folder, '--host', '127.0.0.1', '--port', '0', '--max-streams', String(ANSWERS)];
    const running = this.#start([TRAINER, ...args, '--log-level', 'silent'], { RAGEN_SERVE_TOKEN: token });
    const found = new Promise<string>(resolve => {
      createInterface({ input: running.process.stdout! }).on('line', line => {
        const match = SERVING.exec(line);
        if (match) resolve(match[1]);
      });
    });
    const url = Promise.race([found, failed(running)]);
    url.catch(() => undefined);
    const served = { ...running, folder, token, url };
    this.#served = served;
    const forget = () => {
      if (this.#served === served) this.#served = undefined;
    };
    running.program.ended.then(forget, forget);
    return served;
  }

  #start(args: readonly string[], env: Readonly<Record<string, string>> = {}): Running {
    this.#closed.signal.throwIfAborted();
    const process_ = spawn(process.execPath, args, {
      stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
      detached: true,
      env: { ...process.env, ...env },
    });
    const program = childOf(process_);
    this.#running.add(program);
    const ended = () => this.#running.delete(program);
    program.ended.then(ended, ended);
    let said = '';
    process_.stderr!.setEncoding('utf8').on('data', text => {
      said = (said + text).slice(-MAX_SAID);
    });
    return { program, process: process_, lastWords: () => said.trim().split('\n').at(-1) ?? '' };
  }

  /** Ends the served model; resolves once no served one is left. */
  async #end(): Promise<void> {
    const served = this.#served;
    this.#served = undefined;
    if (served) this.#ending = this.#stop(served.program);
    await this.#ending;
  }

  async #stop(program: ChildProgram): Promise<void> {
    program.stop();
    const timer = setTimeout(() => program.kill(), STOP_MS);
    await program.ended.catch(() => undefined);
    clearTimeout(timer);
  }
}

/** @throws Error where the run does not have the checkpoint, or it is damaged */
function chosen({ folder, step }: CheckpointChoice): Checkpoint {
  const { run } = openRunFolder(folder);
  const checkpoint = step === undefined ? latestCheckpoint(run) : checkpointAt(run, step);
  if (checkpoint) return checkpoint;
  const { steps } = keptCheckpoints(run);
  throw new Error(
    steps.length === 0
      ? 'the run has no checkpoint yet: save one, and ask again'
      : `the run has no checkpoint of step ${step} any more: it keeps ${steps.slice(-MAX_NAMED).join(', ')}`,
  );
}

/** The part of a completion that is read. */
interface Completion {
  readonly choices: readonly {
    readonly text: string;
    readonly finish_reason: string;
    readonly logprobs: { readonly tokens: readonly string[]; readonly token_logprobs: readonly number[] };
  }[];
}

/** The tokens of a text, and the text of each. */
interface Tokens {
  readonly tokens: readonly number[];
  readonly token_strs: readonly string[];
}

function asRead({ tokens, token_strs }: Tokens, text: string): EncodedText {
  const readAs = token_strs.join('');
  return { tokens: tokens.length, ...(readAs === text ? {} : { readAs }) };
}

/**
 * The reply of a served model.
 * @throws Error with the reason why there is none
 */
async function replyOf<T>(
  { token, lastWords }: Served,
  url: string,
  body: object,
  stop: AbortSignal,
): Promise<T> {
  const post = async () => {
    const reply = await fetch(url, {
      method: 'POST',
      headers: { 'content-type': 'application/json', authorization: `Bearer ${token}` },
      body: JSON.stringify(body),
      signal: stop,
    });
    return (await reply.json()) as T | { readonly error: { readonly message: string } };
  };
  const reply = await post().catch(error => {
    stop.throwIfAborted();
    throw new Error(`the checkpoint does not answer: ${lastWords() || (error as Error).message}`);
  });
  if (typeof reply === 'object' && reply !== null && 'error' in reply)
    throw new Error(`the checkpoint refuses: ${reply.error.message}`);
  return reply as T;
}

/** Rejects with its last words when a process ends. */
async function failed({ program, lastWords }: Running): Promise<never> {
  const status = await program.ended;
  throw new Error(
    `the checkpoint does not load: ${lastWords() || `its process ended with status ${status}`}`,
  );
}
