import { Worker } from 'node:worker_threads';
import { Problem } from '../../problems.ts';
import { CircuitBreaker } from '../breaker.ts';
import { compileEngine } from './engine.ts';
import {
  KILL_FACTOR,
  type ScriptLimit,
  type ScriptLimits,
  type WorkerReply,
  type WorkerRequest,
  type WorkerSetup,
} from './protocol.ts';

const WORKER = new URL('./worker.ts', import.meta.url);
/** Scripts that one worker keeps ready. */
const MAX_SCRIPTS_PER_WORKER = 16;
/** Calls of one script that may wait. */
const MAX_QUEUE_LENGTH = 10_000;
/** Calls in a row that reached a limit or lost their worker, after which a script is paused. */
const TRIP_AFTER = 5;
const BYTES_PER_MB = 1024 * 1024;
const MS_PER_S = 1000;
const MICROSECONDS_PER_MS = 1000;
/** Of a worker's own JavaScript; scripts live in the engine's memory and have limits of their own. */
const WORKER_HEAP_MB = 128;
/** Where Node keeps compiled modules, if it does; workers know nothing else of the process. */
const { NODE_COMPILE_CACHE } = process.env;
const WORKER_ENVIRONMENT = NODE_COMPILE_CACHE === undefined ? {} : { NODE_COMPILE_CACHE };

let engineCode: WebAssembly.Module | undefined;

export interface PoolSettings extends ScriptLimits {
  readonly workers: number;
}

interface ScriptCall {
  readonly script: PooledScript;
  readonly request: string | undefined;
  readonly resolve: (text: string) => void;
  readonly reject: (error: Error) => void;
}

/** A script of one environment. */
export class PooledScript {
  readonly id: number;
  readonly name: string;
  readonly source: string;
  readonly queue: ScriptCall[] = [];
  readonly breaker: CircuitBreaker;
  running = 0;

  constructor(id: number, name: string, source: string, now: () => number) {
    this.id = id;
    this.name = name;
    this.source = source;
    this.breaker = new CircuitBreaker(now, TRIP_AFTER);
  }
}

interface Member {
  readonly worker: Worker;
  /** Least recently used first. */
  readonly loaded: Set<number>;
  call: ScriptCall | undefined;
  watch: NodeJS.Timeout | undefined;
  ready: boolean;
  /** It was ended because its call did not stop. */
  killed: boolean;
}

/**
 * Runs scripts in worker threads, one call at a time in each. Scripts take turns, and none may occupy every worker:
 * one that loops holds up only itself. A call that does not stop when it is told to is ended together with its
 * worker, and only that call fails.
 */
export class ScriptPool {
  readonly #settings: PoolSettings;
  readonly #now: () => number;
  readonly #members = new Set<Member>();
  readonly #idle: Member[] = [];
  /** Scripts with calls that wait, in the order of their turns. */
  readonly #turns = new Set<PooledScript>();
  #scripts = 0;
  #closed = false;
  /** Workers that had to be ended. */
  kills = 0;

  constructor(settings: PoolSettings, now: () => number = performance.now.bind(performance)) {
    this.#settings = settings;
    this.#now = now;
  }

  /** Names a script; nothing runs until it is called. */
  script(name: string, source: string): PooledScript {
    return new PooledScript(++this.#scripts, name, source, this.#now);
  }

  /**
   * Loads a script and says what it declares.
   * @throws Problem `environment_fault`, `script_limit`, `too_many_requests`
   */
  async load(script: PooledScript): Promise<{ valid_actions: boolean }> {
    return JSON.parse(await this.#enqueue(script, undefined));
  }

  /**
   * Calls a script; see `bridge.ts` for requests and answers.
   * @throws Problem `environment_fault` when it threw, `script_limit` when it was stopped, `too_many_requests` when it is
   * paused or too many calls wait
   */
  call(script: PooledScript, request: string): Promise<string> {
    return this.#enqueue(script, request);
  }

  async close(): Promise<void> {
    this.#closed = true;
    for (const script of this.#turns) {
      for (const call of script.queue.splice(0)) call.reject(stopped());
    }
    await Promise.all([...this.#members].map(({ worker }) => worker.terminate()));
  }

  #enqueue(script: PooledScript, request: string | undefined): Promise<string> {
    if (this.#closed) throw stopped();
    const pause = script.breaker.enter();
    if (pause > 0) {
      throw new Problem(
        'too_many_requests',
        `${script.name} reached its limits or ended its worker ${TRIP_AFTER} times in a row and is paused for ${Math.ceil(pause / MS_PER_S)} s`,
        { retryAfterSeconds: pause / MS_PER_S },
      );
    }
    if (script.queue.length >= MAX_QUEUE_LENGTH) {
      throw new Problem(
        'too_many_requests',
        `${script.name} has ${MAX_QUEUE_LENGTH} calls waiting, the most it may have`,
        {
          retryAfterSeconds: 1,
        },
      );
    }
    return new Promise((resolve, reject) => {
      script.queue.push({ script, request, resolve, reject });
      this.#turns.add(script);
      // Later, so that a trace of what an environment reads does not include this clock.
      queueMicrotask(() => this.#dispatch());
    });
  }

  #dispatch(): void {
    while (!this.#closed) {
      const call = this.#next();
      if (!call) return;
      const member = this.#idle.pop() ?? this.#hire();
      this.#give(member, call);
    }
  }

  /** The call whose turn it is, if there is a worker for it. */
  #next(): ScriptCall | undefined {
    if (this.#idle.length === 0 && this.#members.size >= this.#settings.workers) return undefined;
    const share = Math.max(1, this.#settings.workers - 1);
    for (const script of this.#turns) {
      if (script.running >= share) continue;
      const call = script.queue.shift() as ScriptCall;
      this.#turns.delete(script);
      if (script.queue.length > 0) this.#turns.add(script);
      return call;
    }
    return undefined;
  }

  #hire(): Member {
    const { timeMs, memoryBytes, outputLength, valueBytes } = this.#settings;
    engineCode ??= compileEngine();
    const limits: ScriptLimits = { timeMs, memoryBytes, outputLength, valueBytes };
    const workerData: WorkerSetup = { limits, engineCode };
    const worker = new Worker(WORKER, {
      workerData,
      env: WORKER_ENVIRONMENT,
      resourceLimits: { maxOldGenerationSizeMb: WORKER_HEAP_MB },
    });
    worker.unref();
    const member: Member = {
      worker,
      loaded: new Set(),
      call: undefined,
      watch: undefined,
      ready: false,
      killed: false,
    };
    this.#members.add(member);
    worker.on('message', (reply: WorkerReply | 'ready') => {
      if (reply !== 'ready') {
        this.#finish(member, reply);
        return;
      }
      member.ready = true;
      this.#watch(member);
    });
    worker.on('error', error => this.#lose(member, error));
    worker.on('exit', () => this.#lose(member, new Error('the worker ended')));
    return member;
  }

  #give(member: Member, call: ScriptCall): void {
    const { script, request } = call;
    const known = member.loaded.delete(script.id);
    const [oldest] = member.loaded;
    const forget = !known && member.loaded.size >= MAX_SCRIPTS_PER_WORKER ? oldest : undefined;
    if (forget !== undefined) member.loaded.delete(forget);
    member.loaded.add(script.id);
    member.call = call;
    script.running++;
    const message: WorkerRequest = {
      script: script.id,
      ...(known ? {} : { source: script.source }),
      ...(forget !== undefined && { forget }),
      ...(request !== undefined && { request }),
    };
    member.worker.ref();
    member.worker.postMessage(message);
    if (member.ready) this.#watch(member);
  }

  /**
   * Ends the worker when its call neither answers nor stops. It is judged by the processor time that it goes on to
   * use, not by the clock: on a busy machine an innocent call may wait for long.
   */
  #watch(member: Member, used?: number): void {
    const { call } = member;
    if (!call) return;
    const { timeMs } = this.#settings;
    member.watch = setTimeout(async () => {
      const now = await cpuMilliseconds(member.worker);
      if (member.call !== call || now === undefined) return;
      if (used === undefined || now - used <= KILL_FACTOR * timeMs) {
        this.#watch(member, used ?? now);
        return;
      }
      member.killed = true;
      this.kills++;
      await member.worker.terminate();
    }, timeMs);
  }

  #finish(member: Member, reply: WorkerReply): void {
    const call = this.#release(member);
    member.worker.unref();
    this.#idle.push(member);
    if (call) this.#settle(call, reply);
    this.#dispatch();
  }

  #settle({ script, resolve, reject }: ScriptCall, reply: WorkerReply): void {
    if (!reply.ok && 'limit' in reply) {
      script.breaker.failed();
      reject(new Problem('script_limit', `${script.name} was stopped: ${this.#describe(reply.limit)}`));
      return;
    }
    script.breaker.succeeded();
    if (reply.ok) resolve(reply.text);
    else reject(new Problem('environment_fault', `${script.name}: ${reply.fault}`));
  }

  /** A worker is gone; so is the call it had. */
  #lose(member: Member, error: Error): void {
    if (!this.#members.delete(member)) return;
    const index = this.#idle.indexOf(member);
    if (index >= 0) this.#idle.splice(index, 1);
    const call = this.#release(member);
    if (call && this.#closed) call.reject(stopped());
    else if (call) {
      const limit = member.killed ? 'time' : limitOf(error);
      if (limit) this.#settle(call, { ok: false, limit });
      else {
        const { script, reject } = call;
        // The sandboxes of other scripts went with the worker, so a script that does this again and again is paused.
        script.breaker.failed();
        reject(new Problem('environment_fault', `${script.name}: the sandbox failed: ${error.message}`));
      }
    }
    this.#dispatch();
  }

  #release(member: Member): ScriptCall | undefined {
    clearTimeout(member.watch);
    const { call } = member;
    member.call = undefined;
    if (call) call.script.running--;
    return call;
  }

  #describe(limit: ScriptLimit): string {
    const { timeMs, memoryBytes, outputLength } = this.#settings;
    switch (limit) {
      case 'time':
        return `it took more than ${timeMs} ms of processor time in one call`;
      case 'memory':
        return `it needed more than ${Math.floor(memoryBytes / BYTES_PER_MB)} MB of memory`;
      case 'recursion':
        return 'its functions called one another too deeply';
      case 'output':
        return `state, observation and info of one call exceed ${outputLength} characters`;
    }
  }
}

/** Processor time of a worker, also of one that does nothing but compute; undefined when it has ended. */
async function cpuMilliseconds(worker: Worker): Promise<number | undefined> {
  try {
    const { user, system } = await worker.cpuUsage();
    return (user + system) / MICROSECONDS_PER_MS;
  } catch {
    return undefined;
  }
}

/** What ended a worker from within, where that was the script's doing. */
function limitOf(error: Error): ScriptLimit | undefined {
  if ((error as NodeJS.ErrnoException).code === 'ERR_WORKER_OUT_OF_MEMORY') return 'memory';
  return error instanceof RangeError ? 'recursion' : undefined;
}

function stopped(): Problem {
  return new Problem('draining', 'the server is shutting down and runs no scripts', { retryAfterSeconds: 1 });
}
