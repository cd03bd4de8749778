import type { ByteReport } from './messages.ts';

/** What the sessions of one process take, in bytes. */
interface WorkerBytes {
  all: number;
  readonly byClient: Map<string, number>;
  /** Clients whose sums in the other processes it has not been told. */
  readonly untold: Set<string>;
}

/**
 * Adds up what sessions take in all processes, and says what each is to be told of the others. Processes tell it in
 * intervals: so a limit may be exceeded by what the others took within two of them.
 */
export class ByteAccounting {
  readonly #workers = new Map<number, WorkerBytes>();
  #all = 0;
  readonly #clients = new Map<string, number>();
  #isChanged = false;

  /** What a process has told. */
  hear(worker: number, { all, byClient }: ByteReport): void {
    const known = this.#workerOf(worker);
    this.#all += all - known.all;
    known.all = all;
    for (const [owner, bytes] of byClient) this.#take(known, owner, bytes);
    this.#isChanged = true;
  }

  /** A process ended: its sessions take nothing any more. What the next one in its place is told begins anew. */
  forget(worker: number): void {
    const known = this.#workers.get(worker);
    if (!known) return;
    this.#all -= known.all;
    for (const owner of [...known.byClient.keys()]) this.#take(known, owner, 0);
    this.#workers.delete(worker);
    this.#isChanged = true;
  }

  /** What is new for these processes since they were last told. */
  *reports(workers: readonly number[]): Generator<readonly [worker: number, report: ByteReport]> {
    const isNew = workers.some(worker => !this.#workers.has(worker));
    if (!this.#isChanged && !isNew) return;
    this.#isChanged = false;
    for (const worker of workers) {
      const { all, byClient, untold } = this.#workerOf(worker);
      const elsewhere = [...untold].map(
        owner => [owner, (this.#clients.get(owner) ?? 0) - (byClient.get(owner) ?? 0)] as const,
      );
      untold.clear();
      yield [worker, { all: this.#all - all, byClient: elsewhere }];
    }
  }

  #workerOf(worker: number): WorkerBytes {
    let known = this.#workers.get(worker);
    if (!known) {
      known = { all: 0, byClient: new Map(), untold: new Set(this.#clients.keys()) };
      this.#workers.set(worker, known);
    }
    return known;
  }

  #take(teller: WorkerBytes, owner: string, bytes: number): void {
    const sum = (this.#clients.get(owner) ?? 0) + bytes - (teller.byClient.get(owner) ?? 0);
    if (sum === 0) this.#clients.delete(owner);
    else this.#clients.set(owner, sum);
    if (bytes === 0) teller.byClient.delete(owner);
    else teller.byClient.set(owner, bytes);
    for (const other of this.#workers.values()) if (other !== teller) other.untold.add(owner);
  }
}
