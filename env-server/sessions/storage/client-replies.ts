import type { Json } from '../../../shared/json.ts';
import type { DroppedKeysRow, ReplyRow } from '../../persistence/session-rows.ts';
import type { RowBatch } from '../../store/row-batch.ts';
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
 * Gathers the rows of changes; yields true where they must be written first.
 * @param at the time, in milliseconds since the epoch
 */
export function* replyRows(
  batch: RowBatch,
  replies: readonly ChangedReplies[],
  at: number,
): Generator<boolean> {
  for (const { owner, changes } of replies) {
    for (const added of changes.added) {
      const { number: _number, reply, ...entry } = storedReply(added);
      const text = JSON.stringify(reply);
      yield batch.add(['putReply', { ...entry, owner, reply: text }], text.length);
    }
    for (const { key } of changes.removed) yield batch.add(['removeReply', { owner, key }], key.length);
    if (changes.dropped.length === 0) continue;
    const hashes = textOfHashes(changes.dropped);
    yield batch.add(['putDroppedKeys', { owner, hashes, at }], hashes.length);
  }
}
