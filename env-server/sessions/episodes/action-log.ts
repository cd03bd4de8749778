import type { Json } from '../../../shared/json.ts';
import { sizeOf } from '../limits/budgets.ts';

/** Most actions of a chunk. */
const MAX_ACTIONS = 64;
/** A chunk of this many bytes takes no more actions. */
const MAX_BYTES = 16 * 1024;
/** Bytes of an empty chunk. */
const CHUNK_BYTES = 160;

/** A position in an action log: everything before it never changes. */
export interface LogPosition {
  readonly chunk: ActionChunk;
  /** Actions of the chunk before the position; at least one. */
  readonly count: number;
}

/** Some actions, with the position before them. Only the log that made a chunk appends to it. */
export class ActionChunk {
  readonly before: LogPosition | undefined;
  readonly actions: Json[] = [];
  /** Actions of the log before this chunk. */
  readonly first: number;
  /** Estimated memory of the chunks before this one. */
  readonly bytesBefore: number;
  /** Estimated memory of this chunk alone. */
  bytes = CHUNK_BYTES;

  constructor(before: LogPosition | undefined) {
    this.before = before;
    this.first = lengthOf(before);
    this.bytesBefore = bytesOf(before);
  }

  /** @param bytes estimated memory of the action, see {@link actionSize} */
  add(action: Json, bytes: number): void {
    this.actions.push(action);
    this.bytes += bytes;
  }
}

/**
 * The actions of an episode. The log only grows, and its positions share everything before them: a snapshot or a clone
 * holds a position, never a copy.
 */
export class ActionLog {
  #before: LogPosition | undefined;
  #open: ActionChunk | undefined;

  constructor(before?: LogPosition) {
    this.#before = before;
  }

  get position(): LogPosition | undefined {
    const chunk = this.#open;
    return chunk ? { chunk, count: chunk.actions.length } : this.#before;
  }

  /** From here on nothing is appended to chunks shared with another session. */
  seal(): void {
    this.#before = this.position;
    this.#open = undefined;
  }

  /**
   * @param bytes estimated memory of the action, see {@link actionSize}
   * @returns estimated memory of the action in the log
   */
  append(action: Json, bytes: number): number {
    let chunk = this.#open;
    if (chunk && chunk.actions.length < MAX_ACTIONS && chunk.bytes < MAX_BYTES) {
      chunk.add(action, bytes);
      return bytes;
    }
    chunk = new ActionChunk(this.position);
    chunk.add(action, bytes);
    this.#open = chunk;
    return bytes + CHUNK_BYTES;
  }
}

/** Estimated memory of an action in a log; a number takes only its slot. */
export const actionSize = (action: Json): number => (typeof action === 'number' ? 0 : sizeOf(action));

/** Actions before a position. */
function lengthOf(position: LogPosition | undefined): number {
  return position ? position.chunk.first + position.count : 0;
}

/** The action before a position. */
export function lastOf(position: LogPosition | undefined): Json | undefined {
  return position?.chunk.actions[position.count - 1];
}

/** Estimated memory of the chunks that a position needs, at present. */
export function bytesOf(position: LogPosition | undefined): number {
  return position ? position.chunk.bytesBefore + position.chunk.bytes : 0;
}

/** The chunks that a position needs, last first, each with the number of actions it needs. */
export function* chunksOf(position: LogPosition | undefined): Generator<LogPosition> {
  for (let at = position; at; at = at.chunk.before) yield at;
}

/** All actions before a position, in order. */
export function actionsOf(position: LogPosition | undefined): Json[] {
  const actions = new Array<Json>(lengthOf(position));
  for (const { chunk, count } of chunksOf(position)) {
    for (let i = 0; i < count; i++) actions[chunk.first + i] = chunk.actions[i];
  }
  return actions;
}

/** A log of these actions as positions: the one at index `count` has that many actions before it. */
export function logOf(actions: readonly Json[]): (count: number) => LogPosition | undefined {
  const log = new ActionLog();
  const positions: LogPosition[] = [];
  for (const action of actions) {
    log.append(action, actionSize(action));
    positions.push(log.position!);
  }
  return count => positions[count - 1];
}
