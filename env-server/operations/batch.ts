import type { MaybePromise } from '../../shared/maybe-promise.ts';
import { Problem, type ProblemDocument } from '../../shared/problems.ts';
import type { CompiledOperation, Dispatcher } from './dispatcher.ts';
import type { Call } from './execute.ts';
import type { OperationInput } from './operation.ts';
import type { ReplyForm } from './reply-form.ts';

export interface BatchRequest {
  readonly items: readonly unknown[];
  /** Stands for the request key of items that have none. */
  readonly requestKey?: string;
  /** Answer when this many items are ready. */
  readonly wait?: number;
  readonly mostItems: number;
  /** Turns whatever an item threw into its problem document. */
  readonly problem: (error: unknown, sessionId: unknown) => ProblemDocument;
}

/**
 * Runs many operations; results in order, each a result or a problem.
 * @returns a `BatchResult` in the form asked for
 * @throws Problem `body_too_large`, `invalid_request`
 */
export function runBatch<T, B>(
  dispatcher: Dispatcher,
  call: Call,
  request: BatchRequest,
  form: ReplyForm<T, B>,
): MaybePromise<B> {
  const { items, mostItems } = request;
  if (items.length > mostItems) {
    throw new Problem(
      'body_too_large',
      `the batch has ${items.length} items; at most ${mostItems} may come at once`,
    );
  }
  const replies = new Array<T>(items.length);
  const late: Promise<void>[] = [];
  for (let index = 0; index < items.length; index++) {
    const reply = runItem(dispatcher, call, request, index, form);
    if (!(reply instanceof Promise)) {
      replies[index] = reply;
      continue;
    }
    replies[index] = form.pending;
    late.push(
      reply.then(item => {
        replies[index] = item;
      }),
    );
  }
  const { wait } = request;
  const finish = (): B =>
    form.batch(replies, wait === undefined ? undefined : positionsOf(form.pending, replies));
  if (late.length === 0) return finish();
  const missing =
    (wait === undefined ? items.length : Math.min(wait, items.length)) - (items.length - late.length);
  return settled(late, missing).then(finish);
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

function runItem<T>(
  dispatcher: Dispatcher,
  call: Call,
  request: BatchRequest,
  index: number,
  form: ReplyForm<T, unknown>,
): MaybePromise<T> {
  try {
    const item = request.items[index];
    if (typeof item !== 'object' || item === null || Array.isArray(item)) {
      throw new Problem('invalid_request', 'a batch item must be an object with "op"');
    }
    const compiled = dispatcher.find((item as { op?: unknown }).op);
    const result = dispatcher.perform(
      call,
      compiled,
      withKey(item as OperationInput, request, index, compiled.operation.keyed),
    );
    return result instanceof Promise
      ? later(result, compiled, request, index, form)
      : form.success(form.result(compiled, result));
  } catch (error) {
    return failure(error, request, index, form);
  }
}

function later<T>(
  result: Promise<unknown>,
  compiled: CompiledOperation,
  request: BatchRequest,
  index: number,
  form: ReplyForm<T, unknown>,
): Promise<T> {
  return result.then(
    value => form.success(form.result(compiled, value)),
    error => failure(error, request, index, form),
  );
}

function failure<T>(error: unknown, request: BatchRequest, index: number, form: ReplyForm<T, unknown>): T {
  const sessionId = (request.items[index] as { session_id?: unknown } | null)?.session_id;
  return form.failure(form.problem(request.problem(error, sessionId)));
}

function withKey(item: OperationInput, request: BatchRequest, index: number, keyed: boolean): OperationInput {
  if (!keyed || request.requestKey === undefined || item.request_key !== undefined) return item;
  return { ...item, request_key: `${request.requestKey}#${index}` };
}

function positionsOf<T>(wanted: T, items: readonly T[]): number[] {
  return items.flatMap((item, index) => (item === wanted ? [index] : []));
}
