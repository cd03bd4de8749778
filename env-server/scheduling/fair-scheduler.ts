import { performance } from 'node:perf_hooks';
import { Queue } from '../../shared/scheduling/queues.ts';

/** Member of a {@link RoundRobin}. */
interface Flow {
  /** True if it has no work. */
  readonly isEmpty: boolean;
  /** Milliseconds left before the next flow's turn; negative after using more. */
  deficit: number;
  /** True if it is in one of the lists. */
  isListed: boolean;
}

/**
 * Deficit round robin with priority for flows that return after a pause, as in FQ-CoDel (RFC 8290, section 4.2): a flow
 * below its share never waits for flows above theirs. Costs are known only after the work, so a flow that used too much
 * is skipped until its deficit is paid.
 */
class RoundRobin<F extends Flow> {
  readonly #quantum: number;
  #fresh: F[] = [];
  #old: F[] = [];
  readonly #onLeave: ((flow: F) => void) | undefined;

  /**
   * @param quantum milliseconds that a flow gets in its turn
   * @param onLeave called with a flow that left the lists because it is empty
   */
  constructor(quantum: number, onLeave?: (flow: F) => void) {
    this.#quantum = quantum;
    this.#onLeave = onLeave;
  }

  /** Lists a flow that has work; a listed one keeps its place. */
  add(flow: F): void {
    if (flow.isListed) return;
    flow.isListed = true;
    flow.deficit = this.#quantum;
    this.#fresh.push(flow);
  }

  /** The flow that has its turn; undefined where all are empty. */
  next(): F | undefined {
    for (;;) {
      const isFresh = this.#fresh.length > 0;
      const list = isFresh ? this.#fresh : this.#old;
      const flow = list[0];
      if (!flow) return undefined;
      if (flow.deficit <= 0) {
        flow.deficit += this.#quantum;
        list.shift();
        this.#old.push(flow);
      } else if (!flow.isEmpty) {
        return flow;
      } else {
        list.shift();
        // A flow that left at once and returned as fresh could take every turn.
        if (isFresh && this.#old.length > 0) this.#old.push(flow);
        else this.#leave(flow);
      }
    }
  }

  /** The flows in its lists. */
  *[Symbol.iterator](): Generator<F> {
    yield* this.#fresh;
    yield* this.#old;
  }

  #leave(flow: F): void {
    flow.isListed = false;
    this.#onLeave?.(flow);
  }
}

/** Work on the event loop, in milliseconds, after which everything else on it gets a turn. */
export const SLICE_MS = 4;
/** Milliseconds that a client, or one of its connections, gets before the next one's turn. */
const QUANTUM_MS = 2;
/** Work, in milliseconds, after which the scheduler checks that the event loop has turned. */
const NOTED_MS = 1;
/** Long computations of one client that may run at once; each holds memory until it is done. */
const MAX_COMPUTATIONS = 4;

/** A task that runs without interruption and handles its own errors. */
export type Task = () => void;

/** Clock and timers of the scheduler. */
export interface EventLoop {
  /** Milliseconds. */
  now(): number;
  /** Calls back after the event loop has turned. */
  afterOthers(callback: () => void): void;
}

/** Milliseconds. It is saved at the start, because the environment checker replaces `performance.now`. */
export const now = performance.now.bind(performance);

const EVENT_LOOP: EventLoop = {
  now,
  afterOthers: callback => void setImmediate(callback),
};

/**
 * Shares the event loop among clients, and each client's share among its connections, by the time that their work
 * takes. A task runs at once while nothing waits and the slice is not used up; otherwise it waits in its connection's
 * queue, and the event loop turns between slices.
 */
export class FairScheduler {
  readonly #loop: EventLoop;
  readonly #clients = new Map<string, Client>();
  readonly #ring = new RoundRobin<Client>(QUANTUM_MS, client => this.#clients.delete(client.key));
  #current: Lane | undefined;
  /** Work done directly since the event loop last turned, in milliseconds. */
  #used = 0;
  #queued = 0;
  #busy = false;
  #called = false;
  /** Start of the task in progress. */
  #begun = 0;

  constructor(loop: EventLoop = EVENT_LOOP) {
    this.#loop = loop;
  }

  /** A connection's place among its client's connections. */
  lane(client: string): Lane {
    return new Lane(this, client);
  }

  /** The connection that the running code works for; undefined after an `await`, and for work without a connection. */
  get current(): Lane | undefined {
    return this.#current;
  }

  /** Binds a callback to the connection of its caller. (An `AsyncLocalStorage` costs more than a step.) */
  keep<A extends unknown[], R>(later: (...given: A) => R): (...given: A) => R {
    const lane = this.#current;
    if (!lane) return later;
    return (...given) => {
      const before = this.#current;
      this.#current = lane;
      try {
        return later(...given);
      } finally {
        this.#current = before;
      }
    };
  }

  /** Number of waiting tasks. */
  get queued(): number {
    return this.#queued;
  }

  /** Clients with a connection that had work at the last call and has begun none of it since. */
  overdue(): ReadonlySet<string> {
    const overdue = new Set<string>();
    for (const { key, lanes } of this.#clients.values())
      for (const lane of lanes) if (lane.isOverdue()) overdue.add(key);
    return overdue;
  }

  /** True if a client may start another long computation. */
  mayCompute(lane: Lane): boolean {
    return (this.#clients.get(lane.client)?.computing ?? 0) < MAX_COMPUTATIONS;
  }

  /** True if nothing waits and the slice is not used up. */
  get isFree(): boolean {
    return this.#queued === 0 && !this.#busy && this.#used < SLICE_MS;
  }

  /**
   * Start time of the task in progress, if any; almost as good as the current time for the task's first steps, and
   * free.
   */
  get begun(): number | undefined {
    return this.#busy && this.#current ? this.#begun : undefined;
  }

  /** {@link Lane.run} */
  run(lane: Lane, task: Task): void {
    if (!this.isFree) {
      this.enqueue(lane, task);
      return;
    }
    this.#begun = this.#loop.now();
    this.#busy = true;
    this.#current = lane;
    try {
      task();
    } finally {
      this.#current = undefined;
      this.#busy = false;
      this.#used += this.#loop.now() - this.#begun;
      if (this.#used >= NOTED_MS) this.#call();
    }
  }

  /** {@link Lane.enqueue} */
  enqueue(lane: Lane, task: Task): void {
    lane.queue.push(task);
    this.#list(lane);
  }

  /** {@link Lane.goOn} */
  goOn(lane: Lane, task: Task): void {
    lane.queue.unshift(task);
    this.#list(lane);
  }

  /** The account of a client, kept while it has work. */
  clientOf(key: string): Client {
    let client = this.#clients.get(key);
    if (!client) {
      client = new Client(key);
      this.#clients.set(key, client);
    }
    return client;
  }

  #list(lane: Lane): void {
    this.#queued++;
    const client = this.clientOf(lane.client);
    client.lanes.add(lane);
    this.#ring.add(client);
    this.#call();
  }

  #call(): void {
    if (this.#called) return;
    this.#called = true;
    this.#loop.afterOthers(this.#slice);
  }

  /** Runs waiting tasks for the length of a slice. */
  readonly #slice = (): void => {
    this.#called = false;
    this.#used = 0;
    this.#busy = true;
    const begin = this.#loop.now();
    this.#begun = begin;
    try {
      while (this.#queued > 0 && this.#begun - begin < SLICE_MS) this.#next();
    } finally {
      this.#busy = false;
      if (this.#queued > 0) this.#call();
    }
  };

  #next(): void {
    const client = this.#ring.next()!;
    const lane = client.lanes.next()!;
    const task = lane.queue.shift()!;
    lane.hasBegun = true;
    this.#queued--;
    const begin = this.#begun;
    this.#current = lane;
    try {
      task();
    } finally {
      this.#current = undefined;
      this.#begun = this.#loop.now();
      const cost = this.#begun - begin;
      client.deficit -= cost;
      lane.deficit -= cost;
    }
  }
}

/** One client; its connections take turns within its turn. */
class Client implements Flow {
  readonly key: string;
  readonly lanes = new RoundRobin<Lane>(QUANTUM_MS);
  deficit = 0;
  isListed = false;
  /** Long computations in progress. */
  computing = 0;
  /** Long computations not yet begun. */
  readonly waiting = new Queue<Task>();

  constructor(key: string) {
    this.key = key;
  }

  get isEmpty(): boolean {
    return this.lanes.next() === undefined;
  }
}

/** Key of a client with a token, by the token's name. */
export const clientKey = (name: string): string => `client ${name}`;

let lanes = 0;

/** The tasks of one connection, in order. */
export class Lane implements Flow {
  /** Client of the connection; see {@link FairScheduler.lane}. */
  readonly client: string;
  /** Unique among the connections of this process. */
  readonly number = ++lanes;
  readonly queue = new Queue<Task>();
  deficit = 0;
  isListed = false;
  /** False if none of its waiting tasks has begun since {@link isOverdue} was called, when some waited. */
  hasBegun = true;
  readonly #scheduler: FairScheduler;

  constructor(scheduler: FairScheduler, client: string) {
    this.#scheduler = scheduler;
    this.client = client;
  }

  get isEmpty(): boolean {
    return this.queue.length === 0;
  }

  /** True if tasks have waited since the last call. */
  isOverdue(): boolean {
    const isOverdue = !this.isEmpty && !this.hasBegun;
    this.hasBegun = this.isEmpty;
    return isOverdue;
  }

  /** True if a task would run at once. */
  get isFree(): boolean {
    return this.#scheduler.isFree;
  }

  /** Runs a task: at once where nothing waits and the slice is not used up, otherwise in its turn. */
  run(task: Task): void {
    this.#scheduler.run(this, task);
  }

  /** Runs a task in its turn, after the event loop has turned. */
  enqueue(task: Task): void {
    this.#scheduler.enqueue(this, task);
  }

  /** The same, ahead of everything else on this connection: for the rest of a task that has used up its slice. */
  goOn(task: Task): void {
    this.#scheduler.goOn(this, task);
  }

  /**
   * Runs a long computation slice by slice, once few enough of the client's are in progress.
   * @param advance runs a slice; true when nothing is left
   */
  compute(advance: () => boolean): void {
    const turn = (): void => {
      if (advance()) this.#endComputation();
      else this.enqueue(turn);
    };
    const client = this.#scheduler.clientOf(this.client);
    if (client.computing < MAX_COMPUTATIONS) {
      client.computing++;
      this.enqueue(turn);
    } else {
      client.waiting.push(() => this.enqueue(turn));
    }
  }

  /** A client with a computation in progress is listed, and so kept. */
  #endComputation(): void {
    const client = this.#scheduler.clientOf(this.client);
    const next = client.waiting.shift();
    if (next) next();
    else client.computing--;
  }
}

/** The scheduler of this process. */
export const scheduler = new FairScheduler();

/** Lane for work without a connection. */
export const background = scheduler.lane('background');

/** Resolves at the connection's next turn. */
export function nextTurn(lane: Lane): Promise<void> {
  return new Promise(resolve => lane.enqueue(resolve));
}
