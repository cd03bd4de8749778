import type { Refusal, SharedLimits } from '../sessions/limits/admission.ts';
import type { ToSupervisor } from './messages.ts';

/** A worker's side of the counts that the supervisor keeps. */
export class SupervisorCounts implements SharedLimits {
  readonly #send: (message: ToSupervisor) => void;
  readonly #asked = new Map<number, (refusal: Refusal | undefined) => void>();
  readonly #changes = new Map<string, number>();
  #number = 0;

  constructor(send: (message: ToSupervisor) => void) {
    this.#send = send;
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
