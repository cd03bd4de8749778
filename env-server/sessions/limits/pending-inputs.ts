import { Problem } from '../../problems.ts';
import { inMb } from './budgets.ts';
import { sizeOf } from './size.ts';

/** About what an operation takes that is in progress, besides its input. */
export const OPERATION_BYTES = 1000;
const BYTES_PER_MB = 1024 * 1024;
/** Bytes of pending inputs above which no more are taken: of one token, and of all together. */
export const MAX_PENDING_BYTES_PER_CLIENT = 64 * BYTES_PER_MB;
export const MAX_PENDING_BYTES = 2 * MAX_PENDING_BYTES_PER_CLIENT;
/** An input below is taken above the limits as well, unless it is known that it would have to wait. */
const SMALL_BYTES = 4096;
const RETRY_AFTER_SECONDS = 1;

/**
 * The inputs of operations that are not done, by the name of the token that sent them. An operation may outlive its
 * request when the client went away or waits no longer: its input counts until it is done.
 */
export class PendingInputs {
  /** True if some inputs are refused now. */
  isTight = false;
  #inAll = 0;
  readonly #byClient = new Map<string, number>();

  /** Estimated memory of all of them, in bytes. */
  get bytes(): number {
    return this.#inAll;
  }

  /**
   * Refuses an input where those that are pending take too much. The input is weighed only then.
   * @param waits it is known that its operation would have to wait
   * @throws Problem `too_many_requests`
   */
  requireRoom(client: string, input: unknown, waits: boolean): void {
    if (!this.isTight) return;
    const taken = this.#byClient.get(client) ?? 0;
    const isOwn = taken >= MAX_PENDING_BYTES_PER_CLIENT;
    if (!isOwn && this.#inAll < MAX_PENDING_BYTES) return;
    if (!waits && sizeOf(input, SMALL_BYTES) < SMALL_BYTES) return;
    throw new Problem(
      'too_many_requests',
      isOwn
        ? `operations of yours that are not done hold ${inMb(taken)} of input; one token may have ${inMb(MAX_PENDING_BYTES_PER_CLIENT)}`
        : `operations that are not done hold ${inMb(this.#inAll)} of input, the most that the server takes`,
      { retryAfterSeconds: RETRY_AFTER_SECONDS },
    );
  }

  /** Counts an input until its operation is done. */
  hold(client: string, input: unknown, operation: Promise<unknown>): void {
    const bytes = OPERATION_BYTES + sizeOf(input);
    this.#count(client, bytes);
    const done = () => this.#count(client, -bytes);
    operation.then(done, done);
  }

  #count(client: string, bytes: number): void {
    this.#inAll += bytes;
    this.isTight = this.#inAll >= MAX_PENDING_BYTES_PER_CLIENT;
    const taken = (this.#byClient.get(client) ?? 0) + bytes;
    if (taken === 0) this.#byClient.delete(client);
    else this.#byClient.set(client, taken);
  }
}
