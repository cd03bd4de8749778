import type { MaybePromise } from '../../environments/core/maybe-promise.ts';
import { type WorkerPlacement, workerOfReply, workerOfSession } from '../../sessions/placement.ts';
import type { Principal } from '../../sessions/principal.ts';
import type { OperationDeclaration, OperationInput } from '../declaration.ts';
import type { WrittenResult } from './written-result.ts';

/** The other processes that serve together with this one. */
export interface SiblingWorkers {
  readonly placement: WorkerPlacement;
  /**
   * Runs an operation, whose input was checked, in another process.
   * @param request the request it came in, for {@link Call}
   * @throws Problem of the operation; `worker_unavailable` when the process ended
   */
  perform(
    index: number,
    principal: Principal,
    request: number,
    operation: OperationDeclaration,
    input: OperationInput,
  ): Promise<WrittenResult>;
  /**
   * What each of the others answers, as it comes.
   * @throws Problem `worker_unavailable` from those that cannot be asked
   */
  askAll(topic: WorkerTopic, payload: unknown): Promise<unknown>[];
  /** The same of one. */
  ask(index: number, topic: WorkerTopic, payload: unknown): Promise<unknown>;
}

/** What processes ask each other besides operations. */
export type WorkerTopic = 'list' | 'cards' | 'sessions_of' | 'refresh' | 'metrics' | 'http';

/** A request that another process answers as if it had come to it. */
export interface ForwardedRequest {
  readonly method: string;
  readonly url: string;
  readonly headers: { readonly [name: string]: unknown };
  readonly body?: string;
}

export interface ForwardedReply {
  readonly status: number;
  readonly headers: { readonly [name: string]: string };
  readonly body: string;
}

/** Custom environments change in one process, one after the other; the others follow. */
const REGISTRAR = 0;
const REGISTRAR_ONLY = new Set(['register', 'replace', 'remove']);

/** Which other process keeps what an operation is about: its session, or the reply to its key; undefined for this one. */
export function owningWorker(
  { placement: { index, count } }: SiblingWorkers,
  principal: Principal,
  { session_id: id }: OperationInput,
  key: string | undefined,
): number | undefined {
  let worker = index;
  if (typeof id === 'string') worker = workerOfSession(id, count);
  else if (key !== undefined) worker = workerOfReply(principal.name, key, count);
  return worker === index ? undefined : worker;
}

/** Which other process must do the work of an operation on the server; undefined where any may. */
export function requiredWorker(
  { placement: { index } }: SiblingWorkers,
  operation: OperationDeclaration,
): number | undefined {
  return index !== REGISTRAR && REGISTRAR_ONLY.has(operation.name) ? REGISTRAR : undefined;
}

/** What those answer that can be asked. */
export async function availableReplies(answers: readonly Promise<unknown>[]): Promise<unknown[]> {
  const settled = await Promise.allSettled(answers);
  return settled.flatMap(answer => (answer.status === 'fulfilled' ? [answer.value] : []));
}

/** Lets the others look what has changed in the store. One that is starting looks anyway. */
export async function announceChange(siblings: SiblingWorkers): Promise<void> {
  await availableReplies(siblings.askAll('refresh', null));
}

/**
 * Open sessions of an environment in all processes.
 * @throws Problem `worker_unavailable`
 */
export function countOpenSessions(
  here: number,
  envId: string,
  siblings: SiblingWorkers | undefined,
): MaybePromise<number> {
  if (!siblings) return here;
  return Promise.all(siblings.askAll('sessions_of', envId)).then(counts =>
    (counts as number[]).reduce((sum, count) => sum + count, here),
  );
}
