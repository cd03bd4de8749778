import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Json } from '../../../shared/json.ts';
import { counted } from '../../../shared/text.ts';
import type { Transition } from '../../environments/core/environment.ts';
import {
  type JournalRecord,
  type KeyFields,
  type OpenBody,
  type RecordBody,
  type RecordText,
  recordOf,
} from '../../persistence/journal/records.ts';
import { Problem } from '../../problems.ts';
import {
  countedEntries,
  type SessionStore,
  type StoredContent,
  type Tombstone,
} from '../../store/session-store.ts';
import type { SqliteSessionStore } from '../../store/sqlite-session-store.ts';
import type { WrapperChoice } from '../../wrappers/wrap.ts';
import { dynamicsSeedOf, type EpisodeState, withDynamics } from '../episodes/episode.ts';
import type { VariantCatalog } from '../episodes/variant.ts';
import type { Principal } from '../principal.ts';
import type { Session } from '../session.ts';
import { replacedReason } from './new-session.ts';
import { episodeOfRecord, keyOfRecordedStep } from './recorded-episode.ts';
import { SessionImage } from './session-image.ts';
import type { StoredHead, StoredSession, StoredSettings } from './stored-session.ts';
import {
  type HeldSession,
  heldSession,
  type SharedParts,
  type StorageParts,
  type WrittenSessions,
} from './written-sessions.ts';

interface TakingParts extends StorageParts {
  readonly store: SqliteSessionStore;
  /** Pauses between two sessions. */
  readonly signal: AbortSignal;
}

/**
 * Opens every session that earlier servers left, or records how it ended.
 * @param sliceMs time after which other work gets a turn
 * @returns ids of those that equal the database's state
 */
export async function takeAll(parts: TakingParts, sliceMs = Number.POSITIVE_INFINITY): Promise<string[]> {
  const { sessions, store, log, signal } = parts;
  const resumed: string[] = [];
  const counts = { resumed: 0, rolled_back: 0, lost: 0 };
  let sliceEnd = performance.now() + sliceMs;
  for (const id of signal.aborted ? [] : store.ids()) {
    if (performance.now() >= sliceEnd) {
      await nextTurn();
      sliceEnd = performance.now() + sliceMs;
    }
    if (signal.aborted) return resumed;
    const outcome = await take(parts, id);
    if (outcome === undefined) continue;
    counts[outcome]++;
    if (outcome === 'lost') continue;
    if (outcome === 'rolled_back') counts.resumed++;
    if (sessions.get(id)?.changed === false) resumed.push(id);
  }
  if (counts.resumed + counts.lost > 0) log.info(counts, `resumed ${counted(counts.resumed, 'session')}`);
  return resumed;
}

/** @returns undefined for a session that had ended already, or has expired */
async function take(parts: TakingParts, id: string): Promise<'resumed' | 'rolled_back' | 'lost' | undefined> {
  const { sessions, store } = parts;
  const forgetMs = sessions.forgetAt - sessions.now();
  const taken = store.take(id, undefined, undefined, forgetMs);
  let ended = taken.state === 'ended' ? taken.tombstone : undefined;
  if (taken.state === 'load') {
    const found = await reopen(parts, id, taken.content);
    if (!('ending' in found)) {
      if (!taken.content.isBehind) return 'resumed';
      found.rollBack();
      return 'rolled_back';
    }
    ended = found;
    store.end(id, undefined, ended, forgetMs);
  }
  const { forgetAt = sessions.forgetAt } = ended ?? {};
  if (ended && forgetAt > sessions.now()) sessions.recallEnded({ id, reason: null, ...ended, forgetAt });
  return ended?.ending === 'session_lost' ? 'lost' : undefined;
}

/** Makes this server the writer of sessions, and loads them from the store. */
export class TakenSessions {
  readonly #parts: SharedParts;
  readonly #written: WrittenSessions;
  readonly #loading = new Map<string, Promise<void>>();
  /** Number of times that this server became the writer of another server's session. */
  taken = 0;

  constructor(parts: SharedParts, written: WrittenSessions) {
    this.#parts = parts;
    this.#written = written;
  }

  /** A session that this server writes and has in memory. */
  held(id: string): HeldSession | undefined {
    const held = this.#loading.has(id) ? undefined : this.#written.get(id);
    if (held && this.#written.isUsable(held) && held.session.expiresAt > this.#parts.sessions.now())
      return held;
    return undefined;
  }

  /** Makes this server the writer of a session. Undefined where it has ended; the manager then knows how. */
  async hold(principal: Principal, id: string): Promise<HeldSession | undefined> {
    for (;;) {
      const loading = this.#loading.get(id);
      if (loading) await loading;
      else {
        const held = this.held(id);
        if (held) return held;
        const taking = this.#take(principal, id, this.#written.get(id));
        this.#loading.set(id, taking);
        try {
          await taking;
        } finally {
          this.#loading.delete(id);
        }
        return this.#written.get(id);
      }
    }
  }

  async #take(principal: Principal, id: string, held: HeldSession | undefined): Promise<void> {
    const owner = principal.scopes.has('admin') ? undefined : principal.name;
    const known = held && !held.failed && !held.session.closed ? `${held.epoch}-${held.top}` : undefined;
    const taken = await this.#parts.store.take(id, known, owner, this.#written.forgetMs);
    if (taken.state === 'same' || taken.state === 'load') this.taken++;
    switch (taken.state) {
      case 'same':
        // Its copy left memory meanwhile.
        if (held!.failed || held!.session.closed) return this.#take(principal, id, held);
        held!.epoch = taken.epoch;
        held!.top = 0;
        held!.stale = false;
        held!.session.usedAt = this.#parts.sessions.now();
        return;
      case 'elsewhere':
        throw new Problem(
          'session_elsewhere',
          `session ${id} can only be played by the server that opened it, since its environment holds more than its state`,
        );
      case 'ended':
        // Without a tombstone the session may be another client's.
        if (held && (taken.tombstone || held.session.owner === principal.name)) this.#written.drop(held);
        this.#recallEnd(id, taken.tombstone);
        return;
      case 'load':
        await this.#load(id, taken.content, held);
    }
  }

  async #load(id: string, content: StoredContent, copy: HeldSession | undefined): Promise<void> {
    if (copy) this.#written.drop(copy);
    const given = this.#written.takeGivenUp(id);
    const seen = copy?.seen ?? given;
    const { store } = this.#parts;
    const { epoch } = content;
    const found = await reopen(this.#parts, id, content);
    if ('ending' in found) {
      await store.end(id, { epoch, n: 0, hasCheckpoint: true }, found, this.#written.forgetMs);
      this.#recallEnd(id, found);
      return;
    }
    const counted = countedEntries(content.entries);
    const { recorded } = found;
    const own = heldSession(
      found,
      { epoch, top: 0 },
      {
        acknowledged: recorded,
        seen: counted.at(-1)!.kind === 'C' ? recorded - 1 : recorded,
        records: counted.length,
      },
    );
    this.#written.add(own);
    // A store that lost only a take or a checkpoint has the same state.
    const lost = seen !== undefined && recorded < seen;
    if (lost || (content.isBehind && seen === undefined)) found.rollBack();
    if (!lost && !content.isBehind) return;
    try {
      await this.#written.checkpoint(own);
    } catch (error) {
      // Its client does not know yet that something was lost: the server that loads it next must find that again.
      if (seen !== undefined) this.#written.giveUp(id, seen);
      throw error;
    }
  }

  #recallEnd(id: string, tombstone: Tombstone | undefined): void {
    if (!tombstone) return;
    const { owner, ending, reason = null } = tombstone;
    this.#parts.sessions.recallEnded({ id, owner, ending, reason, forgetAt: this.#parts.sessions.forgetAt });
  }
}

interface ReopenParts extends StorageParts {
  readonly store: Pick<SessionStore, 'isShared'>;
  readonly refreshEnvironments?: SharedParts['refreshEnvironments'];
}

/**
 * Opens a stored session.
 * @returns how it ended where it can no longer be opened
 * @throws Problem where another server may be able to
 */
async function reopen(parts: ReopenParts, id: string, content: StoredContent): Promise<Session | Tombstone> {
  const { sessions, editionOf, refreshEnvironments, log, store } = parts;
  const { owner, edition } = content;
  try {
    const settings = settingsOf(parts, id, content);
    if (editionOf(settings.envId) !== edition) await refreshEnvironments?.();
    // The lifetime also passes while there is no server.
    if (settings.deadline <= sessions.now()) return { owner, ending: 'session_expired' };
    if (editionOf(settings.envId) !== edition) throw new Error(replacedReason(settings.envId));
    return await restore(parts, id, content, stored =>
      sessions.recall(stored.session, stored.variant, stored.image),
    );
  } catch (error) {
    const there = sessions.get(id);
    if (there) sessions.drop(there);
    if (error instanceof Problem && store.isShared) throw error;
    const reason = (error as Error).message;
    log.error({ session_id: id, err: error }, `session ${id} is lost: ${reason}`);
    return { owner, ending: 'session_lost', reason };
  }
}

/** Episodes of records with the same beginning as others. */
const EXAMPLES = new WeakMap<OpenBody, EpisodeState>();

function firstEpisode(body: OpenBody, like: OpenBody | undefined): EpisodeState {
  if (body.episode) return episodeOfRecord(body.seed, body.options, body.episode);
  if (!like?.episode) throw new Error('its beginning is missing in the journal');
  const episode = EXAMPLES.get(like) ?? episodeOfRecord(like.seed, like.options, like.episode);
  EXAMPLES.set(like, episode);
  const { dynamics_seed: dynamicsSeed } = body;
  return dynamicsSeed === dynamicsSeedOf(episode) ? episode : withDynamics(episode, dynamicsSeed!);
}

/** Restores a session from its last checkpoint and the records after it. */
export async function restore(
  parts: Pick<ReopenParts, 'catalog' | 'viewOf' | 'sessions' | 'store'>,
  id: string,
  content: StoredContent,
  make: (stored: {
    session: StoredSession;
    variant: ReturnType<VariantCatalog['variant']>;
    image: SessionImage | undefined;
  }) => Session,
): Promise<Session> {
  const settings = settingsOf(parts, id, content);
  const [first, ...rest] = countedEntries(content.entries);
  if (!first) throw new Error('nothing of it is in the store');
  let session: Session;
  if (first.kind === 'C') {
    const variant = parts.catalog.variant(settings.envId, settings.config, settings.wrappers);
    const image = new SessionImage();
    const read = image.read(JSON.parse(first.body) as StoredHead, content.parts);
    session = make({ session: { ...settings, ...read }, variant, image });
  } else {
    const body = JSON.parse(first.body) as RecordBody<'open'>;
    if (body.lost !== undefined) throw new Error(body.lost);
    const variant = parts.catalog.variant(settings.envId, settings.config, settings.wrappers);
    const none = { snapshots: [], replies: [], droppedKeys: [] };
    const past = { ...none, episodes: 1, snapshotsTaken: 0, rolledBack: false, recorded: first.n };
    session = make({
      session: { ...settings, episode: firstEpisode(body, content.like), past },
      variant,
      image: undefined,
    });
    session.changed = true;
  }
  session.recorded = first.n;
  for (const { kind, n, body } of rest) {
    const record = recordOf({ letter: kind as RecordText['letter'], sessionId: id, n, text: body });
    if (!record)
      throw new Problem(
        'storage_failed',
        `session ${id} is played by a newer version of the server: this one does not know its record ${n}`,
        { retryAfterSeconds: 1 },
      );
    session.recorded = n;
    try {
      const redone = redo(session, record, parts.viewOf);
      if (redone) await redone;
    } catch (error) {
      if (error instanceof Problem && parts.store.isShared) throw error;
      throw new Error(`record ${n} of it could not be done again: ${(error as Error).message}`, {
        cause: error,
      });
    }
    session.changed = true;
  }
  return session;
}

/** Settings of a session, with times of this server's clock. */
export function settingsOf(
  { sessions, store }: Pick<ReopenParts, 'sessions' | 'store'>,
  id: string,
  { settings: text, entries }: StoredContent,
): StoredSettings {
  if (text === undefined) return settingsOfRecord(id, JSON.parse(entries[0].body) as OpenBody);
  const settings = JSON.parse(text) as StoredSettings;
  if (!store.isShared) return settings;
  // Server clocks differ, so a shared store has wall-clock time.
  return { ...settings, deadline: sessions.now() + settings.deadline - sessions.wall(sessions.now()) };
}

/** Settings in an `open` record. */
function settingsOfRecord(id: string, body: OpenBody): StoredSettings {
  const { serial, owner, config, deadline } = body;
  const { group_id: groupId, env_id: envId, created_at: createdAt, ttl_ms: ttlMs } = body;
  const wrappers = body.wrappers as unknown as readonly WrapperChoice[];
  const format = body.format as StoredSettings['format'];
  return { id, serial, owner, groupId, envId, config, wrappers, format, createdAt, ttlMs, deadline };
}

/**
 * Repeats a recorded operation on a session. The caller handles records of a session's beginning and end.
 * @param viewOf the reply to a request that began an episode
 * @returns a promise only where the environment is asynchronous
 */
function redo(
  session: Session,
  record: JournalRecord,
  viewOf: (session: Session) => Json,
): Promise<void> | undefined {
  switch (record.kind) {
    case 'step':
      return done(session.episode.redo(record.body));
    case 'keyed': {
      const { body } = record;
      const key = keyOfRecordedStep(session.id, body);
      return done(session.episode.redo(body.action), reply => remember(session, 'step', key, reply));
    }
    case 'transition': {
      const { action, random, ...transition } = record.body;
      const [a, b, c, d] = random;
      const result = session.episode.follow(action, transition as Transition<Json>, [a, b, c, d]);
      remember(session, 'step', record.body, result);
      break;
    }
    case 'fault':
      session.episode.fail();
      break;
    case 'reset': {
      const { seed, options, episode } = record.body;
      session.begin(episodeOfRecord(seed, options, episode!));
      remember(session, 'reset', record.body, viewOf(session));
      break;
    }
    case 'snapshot': {
      const snapshot_id = session.keep(session.episode.capture());
      remember(session, 'snapshot', record.body, { snapshot_id });
      break;
    }
    case 'restore':
      session.restore(record.body.snapshot_id, record.body.dynamics_seed);
      remember(session, 'restore', record.body, viewOf(session));
      break;
    case 'acknowledge':
      session.acknowledge();
      break;
    case 'reply':
      session.replies.remember(record.body);
      break;
  }
  return undefined;
}

function remember(session: Session, operation: string, { key, asked }: KeyFields, reply: unknown): void {
  if (key === undefined || asked === undefined) return;
  session.replies.remember({ key, operation, asked, reply: reply as Json });
}

/** A promise only where there is something to wait for. */
function done<T>(value: T | Promise<T>, then?: (value: T) => void): Promise<void> | undefined {
  if (value instanceof Promise) return value.then(then);
  then?.(value);
  return undefined;
}
