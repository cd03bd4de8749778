import { randomInt } from 'node:crypto';
import { ID_CHARACTERS, newId } from './ids.ts';

/** Which of several processes that serve together this one is. */
export interface WorkerPlacement {
  readonly index: number;
  /** At most {@link MAX_PROCESSES}. */
  readonly count: number;
}

/** Processes that one character of an id can tell apart. */
export const MAX_PROCESSES = ID_CHARACTERS.length;

const PREFIX = 's';
/** Serials of one millisecond; more in it run ahead of the clock. */
const SERIALS_PER_MS = MAX_PROCESSES;

const rankOf = new Uint8Array(128);
for (let rank = 0; rank < MAX_PROCESSES; rank++) rankOf[ID_CHARACTERS.charCodeAt(rank)] = rank;

/** The process that keeps a session: its id says which, for any number of processes when it was opened. */
export function workerOfSession(sessionId: string, count: number): number {
  return (rankOf[sessionId.charCodeAt(PREFIX.length)] ?? 0) % count;
}

/** An id of a session, as unguessable as others save for the character that names its process. */
export function newSessionId(placement?: WorkerPlacement): string {
  const id = newId(PREFIX);
  if (!placement) return id;
  const { index, count } = placement;
  const choices = Math.ceil((MAX_PROCESSES - index) / count);
  const rank = index + count * (choices === 1 ? 0 : randomInt(choices));
  return PREFIX + ID_CHARACTERS[rank] + id.slice(PREFIX.length + 1);
}

/** Which sessions and clients a process answers for, where several share a database. */
export interface SessionOwnership {
  ownsSession(sessionId: string): boolean;
  ownsReply(owner: string, key: string): boolean;
}

export function ownershipOf({ index, count }: WorkerPlacement): SessionOwnership {
  return {
    ownsSession: id => workerOfSession(id, count) === index,
    ownsReply: (owner, key) => workerOfReply(owner, key, count) === index,
  };
}

/** The process that remembers the reply to a client's request under a key which concerns no session yet. */
export function workerOfReply(owner: string, key: string, count: number): number {
  let hash = 0x811c9dc5;
  for (const text of [owner, '\0', key]) {
    for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
  }
  return ((hash ^ (hash >>> 16)) >>> 0) % count;
}

/** The serial of the next session: one more, or by the clock, so that those of several processes are in one order. */
export function serialAfter(last: number, now: number, placement?: WorkerPlacement): number {
  if (!placement) return last + 1;
  const slot = Math.max(Math.floor(last / SERIALS_PER_MS) + 1, Math.floor(now));
  return slot * SERIALS_PER_MS + placement.index;
}
