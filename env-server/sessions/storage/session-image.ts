import { isDeepStrictEqual } from 'node:util';
import type { Json } from '../../../shared/json.ts';
import type { PartRow } from '../../persistence/session-rows.ts';
import { NotStorable, type StoredChange } from '../../store/session-store.ts';
import type { SqliteSessionStore } from '../../store/sqlite-session-store.ts';
import { ActionChunk, actionSize, chunksOf, type LogPosition, logOf } from '../episodes/action-log.ts';
import { type EpisodeState, weighed } from '../episodes/episode.ts';
import { inMb } from '../limits/budgets.ts';
import { type ReplyChanges, storedReply } from '../replies/reply-cache.ts';
import type {
  ActionsPart,
  SessionHistory,
  SnapshotPart,
  StoredEpisode,
  StoredHead,
  StoredPosition,
  StoredReply,
  StoredSettings,
} from './stored-session.ts';

const FIRST_VERSION = 1;

/** A session in version 1: one document, in which every episode has its actions. */
interface SessionOfVersion1 extends StoredSettings {
  readonly episode: EpisodeOfVersion1;
  readonly past: {
    readonly episodes: number;
    readonly snapshotsTaken: number;
    readonly snapshots: readonly (readonly [snapshotId: string, episode: EpisodeOfVersion1])[];
    readonly replies: readonly Omit<StoredReply, 'number'>[];
    readonly rolledBack: boolean;
  };
}

type EpisodeOfVersion1 = Omit<StoredEpisode, 'restart' | 'log'> & { readonly actions: readonly Json[] };

/** Converts sessions of version 1 to today's form, in which episodes share common parts. */
export function upgradeFirstForm(store: SqliteSessionStore): void {
  store.upgrade(FIRST_VERSION, ({ owner, edition, document }) => {
    const { episode, past, ...settings } = JSON.parse(document!) as SessionOfVersion1;
    const read = readerOf([episode, ...past.snapshots.map(([, snapshot]) => snapshot)]);
    const { head, parts, remove } = new SessionImage().change({
      episode: read(episode),
      episodes: past.episodes,
      snapshotsTaken: past.snapshotsTaken,
      snapshots: past.snapshots.map(([id, snapshot]) => [id, read(snapshot)]),
      rolledBack: past.rolledBack,
      recorded: 0,
      replies: {
        added: past.replies.map((reply, number) => ({ ...reply, number })),
        removed: [],
        dropped: new Uint32Array(),
        end: { replies: past.replies.length, dropped: 0, turn: 0 },
      },
    });
    return { owner, edition, settings: JSON.stringify(settings), head, parts, remove };
  });
}

/** Reads episodes of a session, with their common first actions. */
function readerOf(episodes: readonly EpisodeOfVersion1[]): (episode: EpisodeOfVersion1) => EpisodeState {
  const longest = episodes.reduce((a, b) => (b.actions.length > a.actions.length ? b : a)).actions;
  const shared = logOf(longest);
  const positionOf = (actions: readonly Json[]): LogPosition | undefined =>
    actions === longest || isDeepStrictEqual(actions, longest.slice(0, actions.length))
      ? shared(actions.length)
      : logOf(actions)(actions.length);
  return ({ actions, ...rest }) => weighed({ ...rest, restart: undefined, log: positionOf(actions) });
}

/** An episode that takes more is not stored. */
const MAX_EPISODE_BYTES = 16 * 1024 * 1024;

/** State of a session at one moment, without its settings: immutable data that needs no copies. */
export interface SessionContent {
  readonly episode: EpisodeState;
  readonly episodes: number;
  readonly snapshotsTaken: number;
  /** Oldest first. */
  readonly snapshots: readonly (readonly [snapshotId: string, episode: EpisodeState])[];
  readonly rolledBack: boolean;
  /** Number of its records in the journal. */
  readonly recorded: number;
  readonly replies: ReplyChanges | undefined;
}

/** Writes that bring a session in the store to its state at one moment. Text is made only on demand. */
type ContentChange = Pick<StoredChange, 'head' | 'parts' | 'remove'>;

type PartEnds = StoredHead['ends'];

/** The stored part of a chunk of actions. */
interface StoredChunk {
  readonly number: number;
  /** Number of stored actions. */
  readonly count: number;
  /** Numbers of the parts that hold them. */
  readonly parts: readonly number[];
}

/** Actions to be stored. */
interface ChunkRange {
  readonly number: number;
  readonly chunk: ActionChunk;
  readonly from: number;
  readonly to: number;
}

/** Chunks with actions to be stored, in the order in which they are found. */
interface ChangeDraft {
  readonly chunks: Map<ActionChunk, StoredChunk>;
  readonly ranges: ChunkRange[];
  chunkCount: number;
}

/** A change being written, with the state that follows. */
interface PendingChange extends ContentChange {
  readonly ends: PartEnds;
  readonly chunks: ReadonlyMap<ActionChunk, StoredChunk>;
  readonly chunkCount: number;
  /** Chunks that the session has forgotten since. */
  readonly forgotten: ActionChunk[];
}

/** The session's copy in the store, so that a checkpoint writes only changes and removes obsolete parts. */
export class SessionImage {
  #ends: PartEnds = { actions: 0, snapshot: 0, reply: 0, dropped: 0 };
  readonly #chunks = new Map<ActionChunk, StoredChunk>();
  #chunkCount = 0;
  /** Parts of forgotten chunks. */
  #unneeded: Omit<PartRow, 'data'>[] = [];
  #pending: PendingChange | undefined;
  /** True if the store has the session, with its settings. */
  isThere = false;

  /** The session no longer needs a chunk. */
  forget(chunk: ActionChunk): void {
    this.#pending?.forgotten.push(chunk);
    for (const number of this.#chunks.get(chunk)?.parts ?? [])
      this.#unneeded.push({ kind: 'actions', number });
    this.#chunks.delete(chunk);
  }

  /**
   * Changes; the session may continue while they are written. A change that was not `done` is part of the next one.
   * @throws NotStorable
   */
  change(content: SessionContent): ContentChange {
    const { episode, episodes, snapshotsTaken, snapshots, rolledBack, recorded, replies } = content;
    const draft: ChangeDraft = { chunks: new Map(), ranges: [], chunkCount: this.#chunkCount };
    const { chunks, ranges } = draft;
    const fresh = snapshots.slice(this.#ends.snapshot);
    for (const state of [episode, ...fresh.map(([, snapshot]) => snapshot)]) requireStorable(state);
    this.#collect(episode.log, draft);
    for (const [, snapshot] of fresh) this.#collect(snapshot.log, draft);
    const dropped = replies && replies.dropped.length > 0 ? replies.dropped : undefined;
    const ends: PartEnds = {
      actions: this.#ends.actions + ranges.length,
      snapshot: snapshots.length,
      reply: replies?.end.replies ?? this.#ends.reply,
      dropped: this.#ends.dropped + (dropped ? 1 : 0),
    };
    const known = (chunk: ActionChunk) => chunks.get(chunk) ?? this.#chunks.get(chunk);
    const removed = (replies?.removed ?? []).map(({ number }) => ({ kind: 'reply', number }) as const);
    const written = (state: EpisodeState) => storedEpisode(state, known);
    const head: StoredHead = {
      episode: written(episode),
      episodes,
      snapshotsTaken,
      rolledBack,
      recorded,
      ends,
    };
    this.#pending = {
      parts: partsOf({ ranges, fresh, replies, dropped, before: this.#ends, written, known }),
      head: head as unknown as Json,
      remove: [...this.#unneeded, ...removed],
      ends,
      chunks,
      chunkCount: draft.chunkCount,
      forgotten: [],
    };
    return this.#pending;
  }

  /** The store has the last change. */
  done(): void {
    const pending = this.#pending;
    if (!pending) return;
    this.#pending = undefined;
    this.isThere = true;
    this.#ends = pending.ends;
    this.#chunkCount = pending.chunkCount;
    const removed = new Set(pending.remove);
    this.#unneeded = this.#unneeded.filter(key => !removed.has(key));
    for (const [chunk, stored] of pending.chunks) this.#chunks.set(chunk, stored);
    for (const chunk of pending.forgotten) this.forget(chunk);
  }

  /** Collects the chunks of a position that are not completely stored. */
  #collect(position: LogPosition | undefined, draft: ChangeDraft): void {
    const { chunks, ranges } = draft;
    for (const { chunk, count } of chunksOf(position)) {
      const known = chunks.get(chunk) ?? this.#chunks.get(chunk);
      if (known && known.count >= count) return;
      const number = this.#ends.actions + ranges.length;
      ranges.push({ number, chunk, from: known?.count ?? 0, to: count });
      chunks.set(chunk, {
        number: known?.number ?? draft.chunkCount++,
        count,
        parts: [...(known?.parts ?? []), number],
      });
      // Everything before a chunk is stored with its first actions.
      if (known) return;
    }
  }

  /** Restores a session's content from the store. */
  read(head: StoredHead, parts: Iterable<PartRow>): { episode: EpisodeState; past: SessionHistory } {
    const actions = new Map<number, { numbers: number[]; parts: ActionsPart[] }>();
    const snapshots: SnapshotPart[] = [];
    const replies: StoredReply[] = [];
    const droppedKeys: Uint32Array[] = [];
    for (const { kind, number, data } of parts) {
      if (number >= head.ends[kind]) continue;
      switch (kind) {
        case 'actions': {
          const part = JSON.parse(data) as ActionsPart;
          const known = actions.get(part.chunk) ?? { numbers: [], parts: [] };
          known.numbers.push(number);
          known.parts.push(part);
          actions.set(part.chunk, known);
          break;
        }
        case 'snapshot':
          snapshots.push(JSON.parse(data) as SnapshotPart);
          break;
        case 'reply':
          replies.push({ number, ...(JSON.parse(data) as Omit<StoredReply, 'number'>) });
          break;
        case 'dropped':
          droppedKeys.push(hashesOf(data));
          break;
      }
    }
    const chunks = this.#readChunks(actions);
    const position = (at: StoredPosition | null) => positionIn(chunks, at);
    const episode = ({ log, restart, ...rest }: StoredEpisode): EpisodeState =>
      weighed({ ...rest, restart: restart ?? undefined, log: position(log) });
    this.#ends = head.ends;
    this.isThere = true;
    const { episodes, snapshotsTaken, rolledBack, recorded = 0 } = head;
    return {
      episode: episode(head.episode),
      past: {
        episodes,
        snapshotsTaken,
        snapshots: snapshots.map(snapshot => [snapshot.id, episode(snapshot.episode)]),
        replies,
        droppedKeys,
        rolledBack,
        recorded,
      },
    };
  }

  /** Later chunks build on earlier ones, but their numbers need not show the order. */
  #readChunks(
    stored: ReadonlyMap<
      number,
      { readonly numbers: readonly number[]; readonly parts: readonly ActionsPart[] }
    >,
  ): ReadonlyMap<number, ActionChunk> {
    const chunks = new Map<number, ActionChunk>();
    for (const last of stored.keys()) {
      const missing: number[] = [];
      for (let at: number | undefined = last; at !== undefined && !chunks.has(at); ) {
        missing.push(at);
        at = stored.get(at)?.parts[0].before?.[0];
      }
      for (const number of missing.reverse()) {
        const known = stored.get(number);
        if (!known) throw new Error(`its actions of chunk ${number} are missing`);
        const chunk = new ActionChunk(positionIn(chunks, known.parts[0].before));
        for (const part of known.parts)
          for (const action of part.actions) chunk.add(action, actionSize(action));
        chunks.set(number, chunk);
        this.#chunks.set(chunk, { number, count: chunk.actions.length, parts: known.numbers });
        this.#chunkCount = Math.max(this.#chunkCount, number + 1);
      }
    }
    return chunks;
  }
}

/** @throws NotStorable when turning an episode into text would block for too long */
function requireStorable(episode: EpisodeState): void {
  const { bytes } = episode;
  if (bytes <= MAX_EPISODE_BYTES) return;
  throw new NotStorable(
    `its state takes ${inMb(bytes)}, and at most ${inMb(MAX_EPISODE_BYTES)} can be stored`,
  );
}

interface NewParts {
  readonly ranges: readonly ChunkRange[];
  readonly fresh: SessionContent['snapshots'];
  readonly replies: ReplyChanges | undefined;
  readonly dropped: Uint32Array | undefined;
  /** First numbers of new parts. */
  readonly before: PartEnds;
  written(episode: EpisodeState): StoredEpisode;
  known(chunk: ActionChunk): StoredChunk | undefined;
}

function* partsOf({ ranges, fresh, replies, dropped, before, written, known }: NewParts): Generator<PartRow> {
  for (const { number, chunk, from, to } of ranges) {
    const part: ActionsPart = {
      chunk: known(chunk)!.number,
      before: storedPosition(chunk.before, known),
      actions: chunk.actions.slice(from, to),
    };
    yield { kind: 'actions', number, data: JSON.stringify(part) };
  }
  for (const [index, [id, episode]] of fresh.entries()) {
    const part: SnapshotPart = { id, episode: written(episode) };
    yield { kind: 'snapshot', number: before.snapshot + index, data: JSON.stringify(part) };
  }
  for (const added of replies?.added ?? []) {
    const { number, ...reply } = storedReply(added);
    yield { kind: 'reply', number, data: JSON.stringify(reply) };
  }
  if (dropped) yield { kind: 'dropped', number: before.dropped, data: textOfHashes(dropped) };
}

function storedEpisode(
  { log, restart, bytes: _bytes, ...episode }: EpisodeState,
  known: (chunk: ActionChunk) => StoredChunk | undefined,
): StoredEpisode {
  return { ...episode, restart: restart ?? null, log: storedPosition(log, known) };
}

function storedPosition(
  position: LogPosition | undefined,
  known: (chunk: ActionChunk) => StoredChunk | undefined,
): StoredPosition | null {
  return position ? [known(position.chunk)!.number, position.count] : null;
}

function positionIn(
  chunks: ReadonlyMap<number, ActionChunk>,
  at: StoredPosition | null,
): LogPosition | undefined {
  if (!at) return undefined;
  const [number, count] = at;
  const chunk = chunks.get(number);
  if (!chunk || chunk.actions.length < count) throw new Error(`its actions of chunk ${number} are missing`);
  return { chunk, count };
}

export function textOfHashes(hashes: Uint32Array): string {
  return Buffer.from(hashes.buffer, hashes.byteOffset, hashes.byteLength).toString('base64');
}

export function hashesOf(text: string): Uint32Array {
  const bytes = Uint8Array.from(Buffer.from(text, 'base64'));
  return new Uint32Array(bytes.buffer);
}
