import { Worker } from 'node:worker_threads';
import { type SlotGroup, Slots } from '../../../shared/scheduling/queues.ts';
import { Problem } from '../../problems.ts';
import { CircuitBreaker, TRIP_AFTER } from '../breaker.ts';
import {
  compileEngine,
  KILL_FACTOR,
  type ScriptLimit,
  type ScriptLimits,
  type WorkerReply,
  type WorkerRequest,
  type WorkerSetup,
} from './sandbox.ts';

const WORKER = new URL('./worker.ts', import.meta.url);
/** Scripts that one worker keeps loaded. */
const MAX_SCRIPTS_PER_WORKER = 16;
/** Calls of one script that may wait. */
const MAX_QUEUE_LENGTH = 10_000;
const BYTES_PER_MB = 1024 * 1024;
const MS_PER_S = 1000;
const MICROSECONDS_PER_MS = 1000;
/** Heap of a worker's own JavaScript, in MiB; scripts live in the engine's memory and have separate limits. */
const WORKER_HEAP_MB = 128;
/** Folder of Node's compile cache, if set: the only process variable that workers see. */
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
interface PooledScript extends Omit<ScriptSource, 'owner'> {
  readonly id: number;
  readonly slots: SlotGroup;
  readonly breaker: CircuitBreaker;
}

export interface ScriptSource {
  /** Environment id, for messages. */
  readonly name: string;
  readonly source: string;
  /** The token that registered it. */
  readonly owner: string;
}

interface Member {
  readonly worker: Worker;
  /** Least recently used first. */
  readonly loaded: Set<number>;
  call: ScriptCall | undefined;
  watch: NodeJS.Timeout | undefined;
  ready: boolean;
  /** True if it was ended because its call did not stop. */
  killed: boolean;
}

/**
 * Runs scripts in worker threads, one call at a time in each. Owners take turns, then the scripts of an owner. No
 * script may occupy every worker, nor may an owner where others have scripts: one that loops delays only itself. A call
 * that does not stop at its limit is ended together with its worker, and only that call fails.
 */
export class ScriptPool {
  readonly #settings: PoolSettings;
  readonly #now: () => number;
  readonly #members = new Set<Member>();
  readonly #idle: Member[] = [];
  readonly #slots: Slots;
  /** Slots of one script, or of one of several owners. */
  readonly #share: number;
  readonly #owners = new Set<string>();
  #scripts = 0;
  #closed = false;
  /** Number of workers that had to be ended. */
  kills = 0;

  constructor(settings: PoolSettings, now: () => number = performance.now.bind(performance)) {
    const { workers } = settings;
    this.#settings = settings;
    this.#now = now;
    this.#share = Math.max(1, workers - 1);
    this.#slots = new Slots({
      most: workers,
      mostOfOwner: () => (this.#owners.size > 1 ? this.#share : workers),
    });
  }

  /** Adds a script; nothing runs until it is called. */
  script({ owner, ...source }: ScriptSource): PooledScript {
    this.#owners.add(owner);
    const slots = this.#slots.group(owner, this.#share);
    return { ...source, id: ++this.#scripts, slots, breaker: new CircuitBreaker(this.#now) };
  }

  /**
   * Loads a script and returns its declarations.
   * @throws Problem `environment_fault`, `script_limit`, `too_many_requests`
   */
  async load(script: PooledScript): Promise<{ valid_actions: boolean }> {
    return JSON.parse(await this.call(script));
  }

  /** Ends the workers with all running and waiting calls. */
  async close(): Promise<void> {
    this.#closed = true;
    await Promise.all([...this.#members].map(({ worker }) => worker.terminate()));
  }

  /**
   * Calls a script; see `bridge` for requests and answers.
   * @param request absent to load the script only
   * @throws Problem `environment_fault` when it threw, `script_limit` when it was stopped, `too_many_requests` when it is
   * paused or too many calls wait
   */
  async call(script: PooledScript, request?: string): Promise<string> {
    if (this.#closed) throw stopped();
    const { name, slots, breaker } = script;
    const pause = breaker.enter();
    if (pause > 0) {
      throw new Problem(
        'too_many_requests',
        `${name} reached its limits or ended its worker ${TRIP_AFTER} times in a row and is paused for ${Math.ceil(pause / MS_PER_S)} s`,
        { retryAfterSeconds: pause / MS_PER_S },
      );
    }
    if (slots.waiting >= MAX_QUEUE_LENGTH) {
      throw new Problem(
        'too_many_requests',
        `${name} has ${MAX_QUEUE_LENGTH} calls waiting, the most it may have`,
      );
    }
    // A worker starts after this pause, so that a trace of what an environment reads does not include its clock.
    await slots.take();
    if (this.#closed) {
      slots.release();
      throw stopped();
    }
    return new Promise((resolve, reject) =>
      this.#give(this.#idle.pop() ?? this.#hire(), { script, request, resolve, reject }),
    );
  }

  #hire(): Member {
    engineCode ??= compileEngine();
    const workerData: WorkerSetup = { limits: this.#settings, engineCode };
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
   * Ends the worker when its call neither answers nor stops. It is judged by the processor time it uses, not by the
   * clock: on a busy machine an innocent call may wait for long.
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

  /** A worker ended, and its call failed. */
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
        // The worker's other scripts lost their sandboxes too, so a script that does this repeatedly is paused.
        script.breaker.failed();
        reject(new Problem('environment_fault', `${script.name}: the sandbox failed: ${error.message}`));
      }
    }
  }

  #release(member: Member): ScriptCall | undefined {
    clearTimeout(member.watch);
    const { call } = member;
    member.call = undefined;
    call?.script.slots.release();
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

/** Processor time of a worker, even of one that only computes; undefined when it has ended. */
const cpuMilliseconds = (worker: Worker): Promise<number | undefined> =>
  worker.cpuUsage().then(
    ({ user, system }) => (user + system) / MICROSECONDS_PER_MS,
    () => undefined,
  );

/** Limit that the script exceeded when its worker ended from within; undefined for other errors. */
function limitOf(error: Error): ScriptLimit | undefined {
  if ((error as NodeJS.ErrnoException).code === 'ERR_WORKER_OUT_OF_MEMORY') return 'memory';
  return error instanceof RangeError ? 'recursion' : undefined;
}

function stopped(): Problem {
  return new Problem('draining', 'the server is shutting down and runs no scripts');
}
