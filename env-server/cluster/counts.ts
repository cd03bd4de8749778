import type { ByteUsage, Refusal, SharedLimits } from '../sessions/limits/admission.ts';
import type { ByteReport, ToSupervisor } from './messages.ts';

/** How often processes tell each other what their sessions take: so long a limit may be exceeded by what is new. */
export const BYTES_INTERVAL_MS = 100;

/** A worker's side of the counts that the supervisor keeps. */
export class SupervisorCounts implements SharedLimits {
  readonly #send: (message: ToSupervisor) => void;
  readonly #asked = new Map<number, (refusal: Refusal | undefined) => void>();
  readonly #changes = new Map<string, number>();
  #number = 0;
  #usage: ByteUsage | undefined;
  /** What was told last. */
  readonly #told = new Map<string, number>();

  constructor(send: (message: ToSupervisor) => void) {
    this.#send = send;
  }

  exchange(usage: ByteUsage): void {
    this.#usage = usage;
    setInterval(() => this.tellBytes(), BYTES_INTERVAL_MS).unref();
  }

  /** Tells what has changed since the last time. */
  tellBytes(): void {
    if (!this.#usage) return;
    const byClient: [string, number][] = [];
    for (const [owner, bytes] of this.#usage.usedByClient()) {
      if ((this.#told.get(owner) ?? 0) === bytes) continue;
      this.#told.set(owner, bytes);
      byClient.push([owner, bytes]);
    }
    if (byClient.length > 0) this.#send({ kind: 'bytes', all: this.#usage.used, byClient });
  }

  /** The supervisor's report. */
  hearBytes({ all, byClient }: ByteReport): void {
    this.#usage?.hear(all, byClient);
  }

  admit(owner: string, envId: string, count: number): Promise<Refusal | undefined> {
    this.#flush();
    const number = ++this.#number;
    return new Promise(resolve => {
      this.#asked.set(number, resolve);
      this.#send({ kind: 'admit', number, owner, envId, count });
    });
  }

  /** The supervisor's answer. */
  admitted(number: number, refusal: Refusal | undefined): void {
    this.#asked.get(number)?.(refusal);
    this.#asked.delete(number);
  }

  change(owner: string, envId: string, change: number): void {
    if (this.#changes.size === 0) process.nextTick(() => this.#flush());
    const key = JSON.stringify([owner, envId]);
    this.#changes.set(key, (this.#changes.get(key) ?? 0) + change);
  }

  #flush(): void {
    if (this.#changes.size === 0) return;
    const changes = [...this.#changes].map(([key, change]) => {
      const [owner, envId] = JSON.parse(key) as [string, string];
      return [owner, envId, change] as const;
    });
    this.#changes.clear();
    this.#send({ kind: 'changes', changes });
  }
}
