import { type ChildProcess, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import type { AskReply, PlayOnReply } from '../../../shared/run-folder/checkpoint-request.ts';
import type { TrajectoryRecord } from '../../../shared/run-folder/run-files.ts';
import type { Checkpoints, Question } from '../../dashboard/checkpoint-route.ts';
import { type Checkpoint, latestCheckpoint } from '../../training/run-folder/checkpoint.ts';
import { openRunFolder } from '../../training/run-folder/run-folder.ts';
import { type ChildProgram, childOf } from './child-process.ts';
import type { PlayOnOrder, PlayOnResult } from './play-on.ts';

const TRAINER = fileURLToPath(new URL('../../main.ts', import.meta.url));
const PLAY_ON = fileURLToPath(new URL('./play-on.ts', import.meta.url));
const SERVING = / on (http:\/\/\S+)\/v1/;
const ANSWERS = 4;
/** Limits in milliseconds: until a model is loaded, of an answer, and of an episode with its loading. */
const LOAD_MS = 300_000;
const ANSWER_MS = 120_000;
const PLAY_MS = 600_000;
/** A model that nobody asks is given up after so long; a process that is asked to stop has this time. */
const IDLE_MS = 60_000;
const STOP_MS = 5000;
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
  /** Folder of the checkpoint. */
  readonly folder: string;
  readonly url: Promise<string>;
  readonly token: string;
}

/**
 * Newest checkpoints of runs for the pages of the dashboard, each in its own process: one at a time, started at its
 * first request. A served model stays for a minute.
 */
export class CheckpointProcesses implements Checkpoints {
  /** Address of the environment server on which episodes are played on. */
  readonly #server: string | undefined;
  readonly #idleMs: number;
  #served: Served | undefined;
  #ending: Promise<void> | undefined;
  #idle: NodeJS.Timeout | undefined;
  #isBusy = false;
  readonly #closed = new AbortController();
  readonly #running = new Set<ChildProgram>();

  constructor(server: string | undefined, idleMs = IDLE_MS) {
    this.#server = server;
    this.#idleMs = idleMs;
  }

  /** Processes that have not ended. */
  get pids(): readonly number[] {
    return [...this.#running].map(({ pid }) => pid);
  }

  ask(folder: string, question: Question, signal: AbortSignal): Promise<AskReply> {
    return this.#alone(
      signal,
      LOAD_MS + ANSWER_MS,
      async (checkpoint, stop) => {
        const served = await this.#serve(checkpoint);
        const url = await aborting(served.url, stop).catch(async error => {
          // A model that is still loading would keep the next one waiting.
          await this.#end();
          throw error;
        });
        const body = await completed(served, url, question, stop);
        const answers = body.choices.map(({ text, logprobs, finish_reason }) => ({
          text,
          tokens: logprobs.tokens.map((token, i) => [token, logprobs.token_logprobs[i]] as const),
          isCut: finish_reason === 'length',
        }));
        return { step: checkpoint.state.step, answers };
      },
      folder,
    );
  }

  playOn(folder: string, episode: TrajectoryRecord, turn: number, signal: AbortSignal): Promise<PlayOnReply> {
    const server = this.#server;
    if (server === undefined) throw new Error('start the dashboard with --server to play on');
    return this.#alone(
      signal,
      PLAY_MS,
      async (checkpoint, stop) => {
        // Two models may not fit.
        await this.#end();
        const running = this.#start([PLAY_ON]);
        running.process.stdout!.resume();
        try {
          const order: PlayOnOrder = { run: folder, checkpoint: checkpoint.policy, server, episode, turn };
          // A process that cannot take it says why when it ends.
          running.process.send(order, () => {});
          const replied = once(running.process, 'message') as Promise<[PlayOnResult]>;
          const [result] = await aborting(Promise.race([replied, failed(running)]), stop);
          if ('error' in result) throw new Error(result.error);
          return { step: checkpoint.state.step, actions: result.actions };
        } finally {
          await this.#stop(running.program);
        }
      },
      folder,
    );
  }

  async close(): Promise<void> {
    this.#closed.abort(new Error('the dashboard ends'));
    clearTimeout(this.#idle);
    await Promise.all([...this.#running].map(program => this.#stop(program)));
  }

  /** Does the work with the newest checkpoint of a run, unless other work is in progress. */
  async #alone<T>(
    signal: AbortSignal,
    mostMs: number,
    work: (checkpoint: Checkpoint, stop: AbortSignal) => Promise<T>,
    folder: string,
  ): Promise<T> {
    if (this.#isBusy) throw new Error('a checkpoint answers another request: wait for it and ask again');
    this.#isBusy = true;
    clearTimeout(this.#idle);
    const late = AbortSignal.timeout(mostMs);
    try {
      const checkpoint = latestCheckpoint(openRunFolder(folder).run);
      if (!checkpoint) throw new Error('the run has no checkpoint yet: save one, and ask again');
      return await work(checkpoint, AbortSignal.any([signal, this.#closed.signal, late]));
    } catch (error) {
      throw late.aborted ? new Error(`the checkpoint has not answered in ${mostMs / 1000} s`) : error;
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

/** The part of a completion that is read. */
interface Completion {
  readonly error?: { readonly message: string };
  readonly choices: readonly {
    readonly text: string;
    readonly finish_reason: string;
    readonly logprobs: { readonly tokens: readonly string[]; readonly token_logprobs: readonly number[] };
  }[];
}

/**
 * The model's answer.
 * @throws Error with the reason why there is none
 */
async function completed(
  { token, lastWords }: Served,
  url: string,
  question: Question,
  stop: AbortSignal,
): Promise<Completion> {
  const late = AbortSignal.timeout(ANSWER_MS);
  const post = async () => {
    const reply = await fetch(`${url}/v1/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', authorization: `Bearer ${token}` },
      body: JSON.stringify({ ...question, n: ANSWERS, logprobs: 0 }),
      signal: AbortSignal.any([stop, late]),
    });
    return { ok: reply.ok, body: (await reply.json()) as Completion };
  };
  const { ok, body } = await post().catch(error => {
    stop.throwIfAborted();
    throw new Error(
      late.aborted
        ? `the checkpoint has not answered in ${ANSWER_MS / 1000} s`
        : `the checkpoint does not answer: ${lastWords() || (error as Error).message}`,
    );
  });
  if (!ok) throw new Error(`the checkpoint refuses: ${body.error?.message}`);
  return body;
}

/** Rejects with its last words when a process ends. */
async function failed({ program, lastWords }: Running): Promise<never> {
  const status = await program.ended;
  throw new Error(
    `the checkpoint does not load: ${lastWords() || `its process ended with status ${status}`}`,
  );
}

/** The result of work that a signal may abandon. */
function aborting<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  const stopped = Promise.withResolvers<never>();
  const stop = () => stopped.reject(signal.reason);
  if (signal.aborted) stop();
  signal.addEventListener('abort', stop, { once: true });
  return Promise.race([work, stopped.promise]).finally(() => signal.removeEventListener('abort', stop));
}
