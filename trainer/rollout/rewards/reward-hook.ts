import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import { Worker } from 'node:worker_threads';
import { type HttpError, JsonClient } from '../../../shared/http/json-client.ts';
import type { Json, JsonObject } from '../../../shared/json.ts';
import type { Episode } from '../episode.ts';
import { ProgramFault } from '../episode-agent.ts';

/** An episode as a reward hook sees it: plain JSON. */
export interface HookEpisode {
  readonly env_id: string;
  readonly tag: string;
  readonly seed: number;
  readonly success: boolean;
  readonly turns: readonly {
    /** Observation, response and executed actions of the policy. */
    readonly state: string;
    readonly response: string;
    readonly actions: readonly Json[];
    /** The environment's reward of the turn, and the format penalty. */
    readonly reward: number;
    readonly penalty: number;
    readonly info: JsonObject;
  }[];
}

/** Rewards finished episodes. */
export interface RewardHook {
  /** Name for messages: a file or an address. */
  readonly name: string;
  /** `add`: its rewards are added to the environment's; `replace`: they take their place. */
  readonly mode: 'add' | 'replace';
  /**
   * The hook's reply for an episode: `{ reward }` for the last turn, or `{ rewards }` for each.
   * @throws RewardFault when it fails, is too slow or too long
   */
  ask(episode: HookEpisode): Promise<unknown>;
  close(): Promise<void>;
}

/** A reward hook failed: its episode is lost, and so is the group if fewer than two episodes are left. */
export class RewardFault extends ProgramFault {
  constructor(hook: Pick<RewardHook, 'name'>, message: string, options?: ErrorOptions) {
    super(`rollout.reward: ${hook.name} ${message}`, options);
    this.name = 'RewardFault';
  }
}

/** A reward hook took too long; with an endless one, each further episode would, too. */
export class RewardTimeout extends RewardFault {}

/**
 * The episode with the rewards of a hook.
 * @throws RewardFault
 */
export async function withHookRewards(episode: Episode, hook: RewardHook): Promise<Episode> {
  if (episode.turns.length === 0) return episode;
  const rewards = readRewards(await hook.ask(viewOf(episode)), episode.turns.length, hook);
  const turns = episode.turns.map((turn, i) => ({
    ...turn,
    reward: hook.mode === 'add' ? turn.reward + rewards[i] : rewards[i],
  }));
  return { ...episode, turns };
}

function viewOf({ environmentId, tag, seed, success, turns }: Episode): HookEpisode {
  return {
    env_id: environmentId,
    tag,
    seed,
    success,
    turns: turns.map(({ state, rawResponse, actions, reward, penalty, info }) => ({
      state,
      response: rawResponse,
      actions,
      reward,
      penalty,
      info,
    })),
  };
}

function readRewards(answer: unknown, turns: number, hook: RewardHook): readonly number[] {
  const { reward, rewards } = (answer ?? {}) as { reward?: unknown; rewards?: unknown };
  if (Number.isFinite(reward)) return [...new Array<number>(turns - 1).fill(0), reward as number];
  if (Array.isArray(rewards) && rewards.length === turns && rewards.every(Number.isFinite)) return rewards;
  const said = JSON.stringify(answer)?.slice(0, 200) ?? String(answer);
  throw new RewardFault(
    hook,
    `said ${said}; it must say {"reward": number} for the last turn, or {"rewards": [${turns} numbers]}, one for each turn`,
  );
}

interface HttpRewardSettings {
  readonly url: string;
  readonly mode: RewardHook['mode'];
  /** For one episode, from the request to the last byte. */
  readonly timeoutMs: number;
  /** Largest reply, in bytes. */
  readonly maxBytes: number;
  /** Bearer token, if the service needs one. */
  readonly token?: string;
}

/** Rewards by a service: it gets each episode as JSON by POST, and answers with JSON. */
export class HttpReward implements RewardHook {
  readonly name: string;
  readonly mode: RewardHook['mode'];
  readonly #settings: HttpRewardSettings;
  readonly #http: JsonClient;

  constructor(settings: HttpRewardSettings) {
    this.#settings = settings;
    this.name = settings.url;
    this.mode = settings.mode;
    this.#http = new JsonClient({ ...settings, url: new URL(settings.url).origin });
  }

  async ask(episode: HookEpisode): Promise<unknown> {
    const { url, timeoutMs, maxBytes } = this.#settings;
    const { pathname, search } = new URL(url);
    const signal = AbortSignal.timeout(timeoutMs);
    try {
      return JSON.parse(await this.#http.send(pathname + search, { method: 'POST', body: episode, signal }));
    } catch (error) {
      const { message, status, text, tooLarge } = error as HttpError;
      const why = signal.aborted
        ? `took more than ${timeoutMs / 1000} s`
        : tooLarge
          ? `answered with more than ${maxBytes} bytes`
          : status === undefined
            ? `failed: ${message}`
            : `answered with status ${status}: ${text.slice(0, 200)}`;
      throw new RewardFault(this, why, { cause: error });
    }
  }

  close(): Promise<void> {
    return this.#http.close();
  }
}

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
