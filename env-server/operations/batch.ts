import type { MaybePromise } from '../../shared/maybe-promise.ts';
import { Problem, type ProblemDocument } from '../../shared/problems.ts';
import type { Dispatcher } from './dispatcher.ts';
import type { Call } from './execute.ts';
import type { OperationInput } from './operation.ts';

export interface BatchRequest {
  readonly items: readonly unknown[];
  /** Stands for the request key of items that have none. */
  readonly requestKey?: string;
  /** Answer when this many items are ready. */
  readonly wait?: number;
  readonly mostItems: number;
  /** Turns whatever an item threw into its problem document. */
  readonly problem: (error: unknown) => ProblemDocument;
}

const PENDING = '{"ok":false,"pending":true}';

/**
 * Runs many operations; results in order, each a result or a problem.
 * @returns the JSON text of a `BatchResult`
 * @throws Problem `body_too_large`, `invalid_request`
 */
export function runBatch(dispatcher: Dispatcher, call: Call, request: BatchRequest): MaybePromise<string> {
  const { items, mostItems } = request;
  if (items.length > mostItems) {
    throw new Problem(
      'body_too_large',
      `the batch has ${items.length} items; at most ${mostItems} may come at once`,
    );
  }
  const replies = new Array<string>(items.length);
  const late: Promise<void>[] = [];
  for (let index = 0; index < items.length; index++) {
    const reply = runItem(dispatcher, call, request, index);
    if (typeof reply === 'string') replies[index] = reply;
    else {
      replies[index] = PENDING;
      late.push(
        reply.then(text => {
          replies[index] = text;
        }),
      );
    }
  }
  const { wait } = request;
  if (late.length === 0) return resultText(replies, wait);
  const missing =
    (wait === undefined ? items.length : Math.min(wait, items.length)) - (items.length - late.length);
  return settled(late, missing).then(() => resultText(replies, wait));
}

/** Resolves when so many of the promises are done; they never reject. */
function settled(promises: readonly Promise<void>[], count: number): Promise<void> {
  return new Promise(resolve => {
    let missing = count;
    if (missing <= 0) resolve();
    for (const promise of promises) {
      void promise.then(() => {
        missing--;
        if (missing === 0) resolve();
      });
    }
  });
}

function runItem(
  dispatcher: Dispatcher,
  call: Call,
  request: BatchRequest,
  index: number,
): MaybePromise<string> {
  const failure = (error: unknown): string =>
    `{"ok":false,"error":${JSON.stringify(request.problem(error))}}`;
  try {
    const item = request.items[index];
    if (typeof item !== 'object' || item === null || Array.isArray(item)) {
      throw new Problem('invalid_request', 'a batch item must be an object with "op"');
    }
    const compiled = dispatcher.find((item as { op?: unknown }).op);
    const reply = dispatcher.run(
      call,
      compiled,
      withKey(item as OperationInput, request, index, compiled.operation.keyed),
    );
    if (typeof reply === 'string') return `{"ok":true,"result":${reply}}`;
    return reply.then(text => `{"ok":true,"result":${text}}`, failure);
  } catch (error) {
    return failure(error);
  }
}

function withKey(item: OperationInput, request: BatchRequest, index: number, keyed: boolean): OperationInput {
  if (!keyed || request.requestKey === undefined || item.request_key !== undefined) return item;
  return { ...item, request_key: `${request.requestKey}#${index}` };
}

/** @param replies replaced: what stands around them goes into the first and the last, so that one join makes one flat string */
function resultText(replies: string[], wait: number | undefined): string {
  const pending = wait === undefined ? '' : `,"pending":[${positionsOf(PENDING, replies).join(',')}]`;
  replies[0] = `{"results":[${replies[0]}`;
  replies[replies.length - 1] += `]${pending}}`;
  return replies.join(',');
}

function positionsOf(wanted: string, texts: readonly string[]): number[] {
  return texts.flatMap((text, index) => (text === wanted ? [index] : []));
}
