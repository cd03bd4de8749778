import { type Refusal, refusalOf, type SessionLimits } from '../sessions/limits/admission.ts';

/** Sums of open sessions over keys. */
class Sums {
  readonly #sums = new Map<string, number>();

  of(key: string): number {
    return this.#sums.get(key) ?? 0;
  }

  add(key: string, change: number): void {
    const sum = this.of(key) + change;
    if (sum === 0) this.#sums.delete(key);
    else this.#sums.set(key, sum);
  }

  entries(): Iterable<readonly [key: string, sum: number]> {
    return this.#sums;
  }
}

/** Counts the open sessions of all processes, so that they keep to limits in common. */
export class LimitAccounting {
  readonly #limits: SessionLimits;
  readonly #byWorker = new Map<number, Sums>();
  readonly #clients = new Sums();
  readonly #environments = new Sums();
  #open = 0;

  constructor(limits: SessionLimits) {
    this.#limits = limits;
  }

  /** Open sessions of all processes. */
  get open(): number {
    return this.#open;
  }

  /** Counts sessions that a worker is to open, unless a limit keeps it from it. */
  admit(worker: number, owner: string, envId: string, count: number): Refusal | undefined {
    const counts = {
      inAll: this.#open,
      ofClient: this.#clients.of(owner),
      ofEnvironment: this.#environments.of(envId),
    };
    const refusal = refusalOf(this.#limits, counts, envId, count);
    if (!refusal) this.change(worker, owner, envId, count);
    return refusal;
  }

  /** Counts sessions of a worker that came unasked or, below zero, went. */
  change(worker: number, owner: string, envId: string, change: number): void {
    let sums = this.#byWorker.get(worker);
    if (!sums) {
      sums = new Sums();
      this.#byWorker.set(worker, sums);
    }
    sums.add(JSON.stringify([owner, envId]), change);
    this.#open += change;
    this.#clients.add(owner, change);
    this.#environments.add(envId, change);
  }

  /** A worker ended: its sessions are no longer open. */
  forget(worker: number): void {
    for (const [key, sum] of this.#byWorker.get(worker)?.entries() ?? []) {
      const [owner, envId] = JSON.parse(key) as [string, string];
      this.#open -= sum;
      this.#clients.add(owner, -sum);
      this.#environments.add(envId, -sum);
    }
    this.#byWorker.delete(worker);
  }
}
