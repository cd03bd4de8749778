import type { Worker } from 'node:worker_threads';

/** Reply to a call. Of an error only message, stack and cause cross from one thread to another; `fields` has others. */
export type CallReply =
  | { readonly result: unknown }
  | { readonly error: Error; readonly fields?: Readonly<Record<string, unknown>> };

/** Numbered calls to a thread. When it ends, all pending and later ones are rejected with the reason. */
export class ThreadCalls {
  readonly worker: Worker;
  readonly #pending = new Map<number, PromiseWithResolvers<never>>();
  #last = 0;
  #failure: Error | undefined;

  /**
   * @param name of the thread, for the error where it ends by itself
   * @param explain the error of calls from the reason why the thread ended
   */
  constructor(worker: Worker, name: string, explain = (reason: Error): Error => reason) {
    this.worker = worker;
    const fail = (reason: Error) => {
      this.#failure ??= explain(reason);
      for (const { reject } of this.#pending.values()) reject(this.#failure);
      this.#pending.clear();
    };
    worker.on('error', fail);
    worker.on('exit', code => fail(new Error(`${name} ended with code ${code}`)));
  }

  get pending(): number {
    return this.#pending.size;
  }

  get hasEnded(): boolean {
    return this.#failure !== undefined;
  }

  /** @param send sends the call under its number, from 1 on */
  async call<T>(send: (id: number) => void): Promise<T> {
    if (this.#failure) throw this.#failure;
    const id = ++this.#last;
    send(id);
    const reply = Promise.withResolvers<never>();
    this.#pending.set(id, reply);
    return reply.promise;
  }

  settle(id: number, reply: CallReply): void {
    const pending = this.#pending.get(id);
    this.#pending.delete(id);
    if ('error' in reply) pending?.reject(Object.assign(reply.error, reply.fields));
    else pending?.resolve(reply.result as never);
  }
}
