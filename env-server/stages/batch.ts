import { isObject } from '../../shared/json.ts';
import { counted } from '../../shared/text.ts';
import type { MaybePromise } from '../environments/core/maybe-promise.ts';
import { type ClientRequest, type OperationInput, plainResult } from '../operations/operation.ts';
import { Problem, type ProblemDocument } from '../problems.ts';
import { background, type Lane, SLICE_MS, scheduler } from '../scheduling/fair-scheduler.ts';
import type { CompiledOperation, Dispatcher } from './dispatcher.ts';

/** Format of replies: JSON text as sent, or plain values that another encoder writes. `B` is the type of batches. */
export interface ReplyForm<T, B = T> {
  result(compiled: CompiledOperation, value: unknown): T;
  problem(document: ProblemDocument): T;
  /** Batch items. */
  success(result: T): T;
  failure(problem: T): T;
  /** Approximate length of an item in characters. */
  lengthOf(item: T): number;
  /** The item that has no reply yet; always the same value. */
  readonly pending: T;
  /**
   * The result of a batch.
   * @param pending positions of items without a reply; absent where the batch waited for all
   */
  batch(items: readonly T[], pending: readonly number[] | undefined): B;
}

/** Batches arrive in consecutive chunks; the writer encodes each chunk separately. */
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
  // Later replies must not change the one being written.
  batch: (items, pending) => ({ results: items.slice(), ...(pending && { pending }) }),
};

/** Length of the texts in a result or in its lists, which can make it long: a picture, the observations of a trajectory. */
function lengthOfTexts(value: unknown): number {
  if (typeof value === 'string') return value.length;
  if (typeof value !== 'object' || value === null) return 0;
  let length = 0;
  for (const key in value) length += lengthOfTexts((value as { [key: string]: unknown })[key]);
  return length;
}

export interface BatchRequest {
  /** Each is removed when it begins: while the batch waits, it holds only what its operations hold. */
  readonly items: unknown[];
  /** Request key of items that have none. */
  readonly requestKey?: string;
  /** Answer when this many items are ready. */
  readonly wait?: number;
  readonly mostItems: number;
  /** Called with the length of replies that wait for others, as they come. */
  readonly hold?: (length: number) => void;
  /** Converts what an item threw into its problem document. */
  readonly problem: (error: unknown, sessionId: unknown) => ProblemDocument;
}

/**
 * Runs many operations; results in order, each a result or a problem. Work beyond a slice continues in the connection's next
 * turn, ahead of everything else on it.
 * @returns a `BatchResult` in the requested format
 * @throws Problem `body_too_large`, `invalid_request`
 */
export function runBatch<T, B>(
  dispatcher: Dispatcher,
  call: ClientRequest,
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
  const run = new BatchRun(dispatcher, call, request, form);
  return run.advance() ? run.finish() : run.goOn(scheduler.current ?? background).then(() => run.finish());
}

/** Length of replies above which the rest of a batch is not carried out. */
const MAX_REPLY_LENGTH = 32 * 1024 * 1024;

/** A batch in progress. */
class BatchRun<T, B> {
  readonly #dispatcher: Dispatcher;
  readonly #call: ClientRequest;
  readonly #request: BatchRequest;
  readonly #form: ReplyForm<T, B>;
  readonly #replies: T[];
  /** Items that have begun and have no reply yet. */
  #underWay = 0;
  /** Called when one of them has its reply. */
  #replied: () => void = () => undefined;
  #index = 0;
  #length = 0;
  /** Length passed to {@link BatchRequest.hold}. */
  #heldLength = 0;

  constructor(dispatcher: Dispatcher, call: ClientRequest, request: BatchRequest, form: ReplyForm<T, B>) {
    this.#dispatcher = dispatcher;
    this.#call = call;
    this.#request = request;
    this.#form = form;
    this.#replies = new Array<T>(request.items.length);
  }

  /** Runs items for the length of a slice; true when none is left. */
  advance(): boolean {
    const call = this.#call;
    const request = this.#request;
    const form = this.#form;
    const { length } = request.items;
    const end = call.mark + SLICE_MS;
    let index = this.#index;
    while (index < length && call.mark < end) {
      const reply =
        this.#length > MAX_REPLY_LENGTH
          ? failure(this.#tooLong(index), request, takeItem(request, index), form)
          : runItem(this.#dispatcher, call, request, index, form);
      if (reply instanceof Promise) {
        this.#await(reply, index);
      } else {
        this.#replies[index] = reply;
        this.#length += form.lengthOf(reply);
      }
      index++;
    }
    this.#index = index;
    return index === length;
  }

  /** Resolves when all items have begun. */
  goOn(lane: Lane): Promise<void> {
    return new Promise(resolve => {
      const turn = (): void => {
        this.#call.mark = performance.now();
        const done = this.advance();
        this.#hold();
        if (done) resolve();
        else lane.goOn(turn);
      };
      lane.goOn(turn);
    });
  }

  #await(reply: Promise<T>, index: number): void {
    this.#replies[index] = this.#form.pending;
    this.#underWay++;
    void reply.then(item => {
      this.#replies[index] = item;
      this.#length += this.#form.lengthOf(item);
      this.#hold();
      this.#underWay--;
      this.#replied();
    });
  }

  #hold(): void {
    this.#request.hold?.(this.#length - this.#heldLength);
    this.#heldLength = this.#length;
  }

  #tooLong(index: number): Problem {
    return new Problem(
      'too_many_requests',
      `the replies to the ${counted(index, 'item')} before have ${this.#length} characters, the most is ${MAX_REPLY_LENGTH}; this item was not carried out: send it in another batch`,
    );
  }

  /** The reply, when as many items are ready as the batch waits for. */
  finish(): MaybePromise<B> {
    const { items, wait } = this.#request;
    const reply = (): B =>
      this.#form.batch(
        this.#replies,
        wait === undefined ? undefined : positionsOf(this.#form.pending, this.#replies),
      );
    if (this.#underWay === 0) return reply();
    const most = wait === undefined ? 0 : Math.max(items.length - wait, 0);
    return new Promise<void>(resolve => {
      this.#replied = () => {
        if (this.#underWay <= most) resolve();
      };
      this.#replied();
    }).then(reply);
  }
}

function runItem<T>(
  dispatcher: Dispatcher,
  call: ClientRequest,
  request: BatchRequest,
  index: number,
  form: ReplyForm<T, unknown>,
): MaybePromise<T> {
  const item = takeItem(request, index);
  try {
    if (!isObject(item)) {
      throw new Problem('invalid_request', 'a batch item must be an object with "op"');
    }
    const compiled = dispatcher.find((item as { op?: unknown }).op);
    const input = withKey(item as OperationInput, request, index, compiled.operation.keyed);
    compiled.checkFrame(input);
    const result = compiled.run(call, input);
    if (!(result instanceof Promise)) return form.success(form.result(compiled, result));
    call.mark = performance.now();
    return later(result, compiled, request, { session_id: (item as OperationInput).session_id }, form);
  } catch (error) {
    call.mark = performance.now();
    return failure(error, request, item, form);
  }
}

function takeItem({ items }: BatchRequest, index: number): unknown {
  const item = items[index];
  items[index] = undefined;
  return item;
}

function later<T>(
  result: Promise<unknown>,
  compiled: CompiledOperation,
  request: BatchRequest,
  item: Pick<OperationInput, 'session_id'>,
  form: ReplyForm<T, unknown>,
): Promise<T> {
  return result.then(
    value => {
      try {
        return form.success(form.result(compiled, value));
      } catch (error) {
        return failure(error, request, item, form);
      }
    },
    error => failure(error, request, item, form),
  );
}

function failure<T>(error: unknown, request: BatchRequest, item: unknown, form: ReplyForm<T, unknown>): T {
  const sessionId = (item as { session_id?: unknown } | null | undefined)?.session_id;
  return form.failure(form.problem(request.problem(error, sessionId)));
}

function withKey(item: OperationInput, request: BatchRequest, index: number, keyed: boolean): OperationInput {
  if (!keyed || request.requestKey === undefined || item.request_key !== undefined) return item;
  return { ...item, request_key: `${request.requestKey}#${index}` };
}

function positionsOf<T>(wanted: T, items: readonly T[]): number[] {
  return items.flatMap((item, index) => (item === wanted ? [index] : []));
}
