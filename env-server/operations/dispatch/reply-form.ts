import type { ProblemDocument } from '../../problems.ts';
import type { CompiledOperation } from './dispatcher.ts';
import { plainResult } from './written-result.ts';

/** Form of replies: JSON text as it leaves, or plain values that something else writes. `B` is the type of batches. */
export interface ReplyForm<T, B = T> {
  /** The result of an operation. */
  result(compiled: CompiledOperation, value: unknown): T;
  problem(document: ProblemDocument): T;
  /** Batch items. */
  success(result: T): T;
  failure(problem: T): T;
  /** About how many characters an item takes. */
  lengthOf(item: T): number;
  /** The item that has no reply yet; always the same value. */
  readonly pending: T;
  /**
   * The result of a batch.
   * @param pending positions of items without a reply; absent where the batch waited for all
   */
  batch(items: readonly T[], pending: readonly number[] | undefined): B;
}

/** Batches come in consecutive chunks; the writer encodes each chunk by itself. */
export const textForm: ReplyForm<string, readonly string[]> = {
  result: (compiled, value) => compiled.serialize(value),
  problem: document => JSON.stringify(document),
  success: result => `{"ok":true,"result":${result}}`,
  failure: problem => `{"ok":false,"error":${problem}}`,
  lengthOf: item => item.length,
  pending: '{"ok":false,"pending":true}',
  batch(items, pending) {
    const pieces = new Array<string>(items.length + 1);
    pieces[0] = `{"results":[${items[0]}`;
    for (let index = 1; index < items.length; index++) pieces[index] = `,${items[index]}`;
    pieces[items.length] = pending ? `],"pending":[${pending.join(',')}]}` : ']}';
    return pieces;
  },
};

export const plainForm: ReplyForm<unknown> = {
  result: (_compiled, value) => plainResult(value),
  problem: document => document,
  success: result => ({ ok: true, result }),
  failure: error => ({ ok: false, error }),
  lengthOf: item => lengthOfTexts((item as { readonly result?: unknown }).result),
  pending: Object.freeze({ ok: false, pending: true }),
  // Replies that come later must not change what is being written.
  batch: (items, pending) => ({ results: items.slice(), ...(pending && { pending }) }),
};

/** Length of the texts in a result or in its lists, which make it long: a picture, the observations of a trajectory. */
function lengthOfTexts(value: unknown): number {
  if (typeof value === 'string') return value.length;
  if (typeof value !== 'object' || value === null) return 0;
  let length = 0;
  for (const key in value) length += lengthOfTexts((value as { [key: string]: unknown })[key]);
  return length;
}
