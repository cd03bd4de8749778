import type { Json } from '../../../shared/json.ts';
import type { DroppedKeysRow, ReplyRow, RowWrite } from '../../persistence/session-rows.ts';
import { type ReplyCache, type ReplyChanges, storedReply } from '../replies/reply-cache.ts';
import { hashesOf, textOfHashes } from './session-image.ts';
import type { StoredReply } from './stored-session.ts';

/** Changes of the replies to a client's requests that concerned no session yet. */
export interface ChangedReplies {
  readonly owner: string;
  readonly memory: ReplyCache;
  readonly changes: ReplyChanges;
}

/** Stored replies by client, with the hashes of dropped keys. */
export function repliesOf(rows: readonly ReplyRow[], droppedKeys: readonly DroppedKeysRow[]) {
  const clients = new Map<string, { owner: string; replies: StoredReply[]; dropped: Uint32Array[] }>();
  const of = (owner: string) => {
    const known = clients.get(owner) ?? { owner, replies: [], dropped: [] };
    clients.set(owner, known);
    return known;
  };
  for (const { owner, reply, ...entry } of rows) {
    const { replies } = of(owner);
    replies.push({ ...entry, number: replies.length, reply: JSON.parse(reply) as Json });
  }
  for (const { owner, hashes } of droppedKeys) of(owner).dropped.push(hashesOf(hashes));
  return clients.values();
}

/** Changes of each client's replies, where there are any. */
export function changedReplies(
  clients: Iterable<readonly [owner: string, memory: ReplyCache]>,
): readonly ChangedReplies[] {
  return [...clients]
    .map(([owner, memory]) => ({ owner, memory, changes: memory.changes }))
    .filter(({ changes: { added, removed, dropped } }) => added.length + removed.length + dropped.length > 0);
}

/**
 * The rows of changes.
 * @param at the time, in milliseconds since the epoch
 */
export function* replyRows(replies: readonly ChangedReplies[], at: number): Generator<RowWrite> {
  for (const { owner, changes } of replies) {
    for (const added of changes.added) {
      const { number: _number, reply, ...entry } = storedReply(added);
      yield ['putReply', { ...entry, owner, reply: JSON.stringify(reply) }];
    }
    for (const { key } of changes.removed) yield ['removeReply', { owner, key }];
    if (changes.dropped.length > 0)
      yield ['putDroppedKeys', { owner, hashes: textOfHashes(changes.dropped), at }];
  }
}
