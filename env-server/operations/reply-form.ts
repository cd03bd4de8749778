import type { ProblemDocument } from '../../shared/problems.ts';
import type { CompiledOperation } from './dispatcher.ts';

/** What replies are made of: JSON text as it leaves, or plain values that something else writes. */
export interface ReplyForm<T> {
  /** The result of an operation. */
  result(compiled: CompiledOperation, value: unknown): T;
  problem(document: ProblemDocument): T;
  /** Batch items. */
  success(result: T): T;
  failure(problem: T): T;
  /** The item that has no reply yet; always the same value. */
  readonly pending: T;
  /**
   * The result of a batch.
   * @param items may be changed
   * @param pending positions of items without a reply; absent where the batch waited for all
   */
  batch(items: T[], pending: readonly number[] | undefined): T;
}

export const textForm: ReplyForm<string> = {
  result: (compiled, value) => compiled.serialise(value),
  problem: document => JSON.stringify(document),
  success: result => `{"ok":true,"result":${result}}`,
  failure: problem => `{"ok":false,"error":${problem}}`,
  pending: '{"ok":false,"pending":true}',
  // What stands around the items goes into the first and the last, so that one join makes one flat string.
  batch(items, pending) {
    items[0] = `{"results":[${items[0]}`;
    items[items.length - 1] += pending ? `],"pending":[${pending.join(',')}]}` : ']}';
    return items.join(',');
  },
};

export const plainForm: ReplyForm<unknown> = {
  result: (_compiled, value) => value,
  problem: document => document,
  success: result => ({ ok: true, result }),
  failure: error => ({ ok: false, error }),
  pending: Object.freeze({ ok: false, pending: true }),
  // Replies that come later must not change what is being written.
  batch: (items, pending) => ({ results: items.slice(), ...(pending && { pending }) }),
};
