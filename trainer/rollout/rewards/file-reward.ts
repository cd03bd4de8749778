import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import { Worker } from 'node:worker_threads';
import { type HookEpisode, RewardFault, type RewardHook, RewardTimeout } from './reward-hook.ts';

/** For the start of a thread and the loading of the file. */
const START_TIMEOUT_MS = 60_000;
const WORKER = new URL('./file-reward-worker.ts', import.meta.url);

export interface FileRewardSettings {
  readonly file: string;
  readonly mode: RewardHook['mode'];
  /** For one episode, from the call of the function; a longer call ends with its thread, which is started again. */
  readonly timeoutMs: number;
  /** Heap of the thread. */
  readonly memoryMb: number;
}

interface Waiting {
  readonly resolve: (answer: unknown) => void;
  readonly reject: (error: Error) => void;
  readonly episode: HookEpisode;
}

/**
 * Rewards by a function `reward(episode)` that a TypeScript or JavaScript file exports. It runs in a separate thread,
 * one episode after the other, so an endless loop costs only its episode. The file is trusted like ragen's own code.
 */
export class FileReward implements RewardHook {
  readonly name: string;
  readonly mode: RewardHook['mode'];
  readonly #settings: FileRewardSettings;
  readonly #queue: Waiting[] = [];
  #worker: Worker | undefined;
  #current: Waiting | undefined;
  #timer: NodeJS.Timeout | undefined;
  #closed = false;

  /** @throws Error where there is no such file */
  constructor(settings: FileRewardSettings) {
    this.#settings = settings;
    this.name = resolve(settings.file);
    if (!existsSync(this.name)) throw new Error(`there is no file ${this.name} with a function \`reward\``);
    this.mode = settings.mode;
  }

  ask(episode: HookEpisode): Promise<unknown> {
    return new Promise((resolve, reject) => {
      if (this.#closed) return reject(new RewardFault(this, 'was closed'));
      this.#queue.push({ resolve, reject, episode });
      this.#next();
    });
  }

  async close(): Promise<void> {
    this.#closed = true;
    for (const waiting of this.#queue.splice(0)) waiting.reject(new RewardFault(this, 'was closed'));
    this.#end(new RewardFault(this, 'was closed'));
  }

  #next(): void {
    if (this.#current || this.#closed) return;
    this.#current = this.#queue.shift();
    if (!this.#current) return;
    this.#worker ??= this.#start();
    this.#limit(START_TIMEOUT_MS, 'to be loaded');
    this.#worker.postMessage(this.#current.episode);
  }

  #limit(ms: number, what: string): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(
      () => this.#end(new RewardTimeout(this, `took more than ${ms / 1000} s ${what}`)),
      ms,
    );
  }

  #start(): Worker {
    const worker = new Worker(WORKER, {
      workerData: this.name,
      resourceLimits: { maxOldGenerationSizeMb: this.#settings.memoryMb },
    });
    worker.on('message', ({ began, answer, error }: { began?: true; answer?: unknown; error?: string }) => {
      if (worker !== this.#worker) return;
      if (began) return this.#limit(this.#settings.timeoutMs, 'for an episode');
      const current = this.#take();
      if (error === undefined) current?.resolve(answer);
      else current?.reject(new RewardFault(this, `failed: ${error}`));
      this.#next();
    });
    worker.on('error', (error: Error) => {
      if (worker === this.#worker)
        this.#end(new RewardFault(this, `ended: ${error.message}`, { cause: error }));
    });
    // A thread may also end by itself: `process.exit` in the file, or in what it imports.
    worker.on('exit', code => {
      if (worker === this.#worker) this.#end(new RewardFault(this, `ended its thread with code ${code}`));
    });
    worker.unref();
    return worker;
  }

  #take(): Waiting | undefined {
    clearTimeout(this.#timer);
    const current = this.#current;
    this.#current = undefined;
    return current;
  }

  /** Ends the thread; the next episode gets a new one. */
  #end(fault: RewardFault): void {
    const worker = this.#worker;
    this.#worker = undefined;
    this.#take()?.reject(fault);
    void worker?.terminate();
    this.#next();
  }
}
