import type { Request } from './operations.ts';
import { afterReading } from './platform.ts';
import type { BatchReply } from './reply.ts';

interface BatchUnit {
  readonly requests: readonly Request[];
  readonly resolve: (replies: BatchReply[]) => void;
  readonly reject: (error: unknown) => void;
}

/**
 * Puts requests that are made in the same turn of the event loop into one batch. Requests given together stay together and
 * in order, so the steps of a session run in the order they were asked for.
 */
export class Batcher {
  readonly #exchange: (requests: readonly Request[]) => Promise<BatchReply[]>;
  readonly #maxItems: number;
  #waiting: BatchUnit[] = [];

  /** @param maxItems a batch that would hold more is sent as several */
  constructor(exchange: (requests: readonly Request[]) => Promise<BatchReply[]>, maxItems: number) {
    this.#exchange = exchange;
    this.#maxItems = maxItems;
  }

  /** The replies in the order of the requests; rejects when the batch as a whole got none. */
  add(requests: readonly Request[]): Promise<BatchReply[]> {
    return new Promise((resolve, reject) => {
      if (this.#waiting.length === 0) afterReading(() => this.#flush());
      this.#waiting.push({ requests, resolve, reject });
    });
  }

  #flush(): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    let units: BatchUnit[] = [];
    let size = 0;
    for (const unit of waiting) {
      if (size > 0 && size + unit.requests.length > this.#maxItems) {
        this.#send(units);
        units = [];
        size = 0;
      }
      units.push(unit);
      size += unit.requests.length;
    }
    this.#send(units);
  }

  #send(units: readonly BatchUnit[]): void {
    this.#exchange(units.flatMap(unit => unit.requests)).then(
      replies => {
        let start = 0;
        for (const unit of units) {
          unit.resolve(replies.slice(start, start + unit.requests.length));
          start += unit.requests.length;
        }
      },
      error => {
        for (const unit of units) unit.reject(error);
      },
    );
  }
}
