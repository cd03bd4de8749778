import { Problem } from '../../problems.ts';
import { inMb } from './budgets.ts';
import { sizeOf } from './size.ts';

/** Approximate memory of an operation in progress, without its input. */
export const OPERATION_BYTES = 1000;
const BYTES_PER_MB = 1024 * 1024;
/** Bytes of pending inputs, for one token and in total, above which further ones are rejected. */
export const MAX_PENDING_BYTES_PER_CLIENT = 64 * BYTES_PER_MB;
export const MAX_PENDING_BYTES = 2 * MAX_PENDING_BYTES_PER_CLIENT;
/** Smaller inputs are accepted above the limits too, unless they would certainly have to wait. */
const SMALL_BYTES = 4096;
const RETRY_AFTER_SECONDS = 1;

/**
 * Memory of the inputs of unfinished operations, by token name. An operation may outlive its request when the client
 * leaves or stops waiting; its input counts until it is done.
 */
export class PendingInputs {
  /** True if some inputs are rejected now. */
  isTight = false;
  #inAll = 0;
  readonly #byClient = new Map<string, number>();

  /** Estimated memory of all of them, in bytes. */
  get bytes(): number {
    return this.#inAll;
  }

  /**
   * Rejects an input when pending inputs take too much memory. Only then is the input measured.
   * @param waits true if its operation would certainly have to wait
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
