import type { Json } from '../../shared/json.ts';
import type { ObservationFormat } from '../environments/core/environment.ts';
import type { MaybePromise } from '../environments/core/maybe-promise.ts';
import type { KeyFields, RecordBody, RecordKind } from '../persistence/journal/records.ts';
import { Problem } from '../problems.ts';
import { scheduler } from '../scheduling/fair-scheduler.ts';
import type { ActionLog } from './episodes/action-log.ts';
import { type EpisodeState, requireReseedable, wholeSize, withDynamics } from './episodes/episode.ts';
import { type EpisodeSession, LiveEpisode } from './episodes/live-episode.ts';
import { Snapshots, snapshotSize, unneededBytes } from './episodes/snapshots.ts';
import type { Variant } from './episodes/variant.ts';
import { type ByteAccount, sessionBudgetExceeded } from './limits/budgets.ts';
import type { Expiring, Ordered } from './limits/server-clock.ts';
import { fingerprint, ReplyCache, type ReplyCacheOwner } from './replies/reply-cache.ts';
import { type KeyedInput, type Recorder, recordedStep } from './storage/recorded-episode.ts';
import type { SessionContent, SessionImage } from './storage/session-image.ts';
import type { SessionHistory, StoredSettings } from './storage/stored-session.ts';

/** Bytes of a session without its parts: the session, its entries in tables, its ids. */
const SESSION_BYTES = 1536;
/** Most operations that may wait for the one in progress. */
const MAX_QUEUE_LENGTH = 256;

export const SESSION_STATUSES = ['playing', 'terminated', 'truncated', 'failed', 'busy'] as const;
export type SessionStatus = (typeof SESSION_STATUSES)[number];

/** Estimated memory of a new session with this episode, in bytes. */
export const newSessionSize = (episode: EpisodeState): number => SESSION_BYTES + wholeSize(episode);

/** Settings of a new session, without its episode. */
interface SessionSettings
  extends Pick<StoredSettings, 'id' | 'serial' | 'owner' | 'groupId' | 'format' | 'ttlMs' | 'deadline'> {
  readonly variant: Variant;
  readonly now: () => number;
  /** Converts a server time to the wall clock. */
  wall(time: number): number;
  /** Account of its owner. */
  readonly account: ByteAccount;
  /** Recorder of its operations. */
  readonly recorder?: Recorder<Session>;
  /** Wall clock time, in milliseconds since the epoch. Absent: now. */
  readonly createdAt?: number;
}

/** A session: one episode after another in one environment, and the queue of operations on them. */
export class Session implements Expiring, EpisodeSession, ReplyCacheOwner, Ordered<Session> {
  readonly id: string;
  readonly serial: number;
  readonly variant: Variant;
  readonly owner: string;
  readonly groupId: string | null;
  readonly format: ObservationFormat;
  readonly createdAt: number;
  readonly ttlMs: number;
  readonly deadline: number;
  readonly #now: () => number;
  /** Converts one of its times to the wall clock, in milliseconds since the epoch. */
  readonly wall: (time: number) => number;
  readonly #account: ByteAccount;
  /** Bytes that it may take. */
  readonly mostBytes: number;
  /** Estimated memory, in bytes. */
  bytes = SESSION_BYTES;
  /** Its copy in the store; undefined before anything is written. */
  image: SessionImage | undefined;
  /** Reason why it cannot be stored. */
  unsaved: string | undefined;
  /** True if its client does not know yet that it cannot be stored. */
  unsavedUnreported = false;
  usedAt: number;
  newer: Session | undefined;
  older: Session | undefined;
  slot = 0;
  #episode: LiveEpisode;
  /** True if anything outside the episode has changed since it was last stored. */
  #changed = true;
  #episodes = 0;
  snapshots: Snapshots | undefined;
  #snapshotsTaken = 0;
  #replies: ReplyCache | undefined;
  /** True if it may be behind what its client saw last. */
  rolledBack = false;
  readonly #recorder: Recorder<Session> | undefined;
  /** Number of its records in the journal. */
  recorded = 0;
  /** Resolves when the database has what was too large for the journal; until then nothing of it is acknowledged. */
  storing: Promise<void> | undefined;
  /** Request key and input of the operation in progress, until a record has them. */
  underKey: KeyedInput | undefined;
  closed = false;
  /** Resolves when no operation runs or waits. */
  #tail: Promise<void> | undefined;
  #waiting = 0;

  /** @param past history of a stored session; absent for a new one */
  constructor(settings: SessionSettings, episode: EpisodeState, past?: SessionHistory) {
    this.id = settings.id;
    this.serial = settings.serial;
    this.variant = settings.variant;
    this.owner = settings.owner;
    this.groupId = settings.groupId;
    this.format = settings.format;
    this.#now = settings.now;
    this.wall = settings.wall;
    this.usedAt = settings.now();
    this.createdAt = settings.createdAt ?? settings.wall(this.usedAt);
    this.ttlMs = settings.ttlMs;
    this.deadline = settings.deadline;
    this.#account = settings.account;
    this.mostBytes = settings.account.limits.maxBytesPerSession;
    this.#recorder = settings.recorder;
    this.#account.add(SESSION_BYTES);
    if (past) this.#recall(past);
    else this.#episodes = 1;
    this.grow(this.snapshots?.actionBytes ?? 0);
    this.#episode = this.#adopted(episode);
    if (!past && episode.step === 0) this.variant.counters.episodes++;
  }

  #recall(past: SessionHistory): void {
    this.#episodes = past.episodes;
    this.#snapshotsTaken = past.snapshotsTaken;
    for (const [id, episode] of past.snapshots) this.#remember(id, episode);
    if (past.replies.length + past.droppedKeys.length > 0)
      this.replies.recall(past.replies, past.droppedKeys);
    this.rolledBack = past.rolledBack;
    this.recorded = past.recorded;
  }

  /** Bytes that it may still take. */
  get room(): number {
    return this.mostBytes - this.bytes;
  }

  /** Bytes that its replies may take. */
  get replyBytes(): number {
    return this.#account.replyBytesOfSession;
  }

  grow(bytes: number): void {
    this.bytes += bytes;
    if (!this.closed) this.#account.add(bytes);
  }

  /** @throws Problem `session_budget_exceeded`, `token_budget_exceeded`, `server_budget_exceeded` */
  requireRoom(bytes: number): void {
    if (bytes > this.room) throw sessionBudgetExceeded(this.id, this.bytes, bytes, this.mostBytes);
    this.#account.requireRoom(bytes);
  }

  /** The same for the growth that its episode needs. */
  requireRoomToPlay(bytes: number): void {
    if (bytes > this.room) throw sessionBudgetExceeded(this.id, this.bytes, bytes, this.mostBytes);
    this.#account.requireRoomToPlay(bytes);
  }

  release(log: ActionLog): void {
    const { image } = this;
    this.grow(-unneededBytes(log.position, this.snapshots, image && (chunk => image.forget(chunk))));
  }

  /** It has ended, so its memory no longer counts. */
  releaseAll(): void {
    this.#account.add(-this.bytes);
    this.bytes = 0;
  }

  /** The current episode. */
  get episode(): LiveEpisode {
    return this.#episode;
  }

  /** True if it has changed since it was last stored. */
  get changed(): boolean {
    return this.#changed || this.#episode.changed;
  }

  set changed(changed: boolean) {
    this.#changed = changed;
    this.#episode.changed = changed;
  }

  get seed(): number | null {
    return this.variant.seedable ? this.#episode.seed : null;
  }

  /** Expiry in milliseconds of the server's clock. It never moves to an earlier time: a busy session is in use. */
  get expiresAt(): number {
    const usedAt = this.busy || this.storing ? this.#now() : this.usedAt;
    return Math.min(usedAt + this.ttlMs, this.deadline);
  }

  /** Current state, within an operation or between two of them. */
  get status(): SessionStatus {
    const { failed, terminated, truncated } = this.#episode;
    if (this.busy) return 'busy';
    if (failed) return 'failed';
    if (terminated) return 'terminated';
    return truncated ? 'truncated' : 'playing';
  }

  get replies(): ReplyCache {
    this.#changed = true;
    this.#replies ??= new ReplyCache(this);
    return this.#replies;
  }

  /** Marks the content it was stored with as stored. */
  stored(content: SessionContent): void {
    this.image?.done();
    if (content.replies) this.#replies?.stored(content.replies);
    this.unsaved = undefined;
    this.unsavedUnreported = false;
  }

  /** Marks it as not storable: the next operation reports that before the session continues. */
  cannotBeStored(reason: string): void {
    this.unsavedUnreported ||= this.unsaved === undefined;
    this.unsaved = reason;
  }

  /** Key of the operation in progress, while no record has it. */
  get keyUnderWay(): Required<KeyFields> | undefined {
    return this.underKey && { key: this.underKey.key, asked: fingerprint(this.underKey.input) };
  }

  /**
   * Journals an operation; nothing for an environment that cannot be replayed. The first record under a request key has the
   * key.
   */
  record<K extends RecordKind>(kind: K, body: RecordBody<K>): void {
    const recorder = this.#recorder;
    if (!recorder || !this.variant.copyable) return;
    const { underKey } = this;
    if (!underKey || body === undefined) {
      recorder.append(this, kind, body);
      return;
    }
    if (kind === 'step') recorder.append(this, 'keyed', recordedStep(body as Json, underKey));
    else recorder.append(this, kind, { ...(body as object), ...this.keyUnderWay } as RecordBody<K>);
    this.underKey = undefined;
  }

  /** Its client has seen its state. */
  acknowledge(): void {
    this.unsavedUnreported = false;
    if (!this.rolledBack) return;
    this.rolledBack = false;
    this.#changed = true;
    this.record('acknowledge', undefined);
  }

  /** It may be behind what its client saw last. */
  rollBack(): void {
    this.rolledBack = true;
    this.#changed = true;
  }

  /** Adds a snapshot, ignoring limits. */
  keep(episode: EpisodeState): string {
    const snapshotId = `${this.id}.s${++this.#snapshotsTaken}`;
    this.#remember(snapshotId, episode);
    this.#changed = true;
    return snapshotId;
  }

  #remember(snapshotId: string, episode: EpisodeState): void {
    this.snapshots ??= new Snapshots();
    this.snapshots.add(snapshotId, episode);
    this.grow(snapshotSize(episode));
  }

  /**
   * @param dynamicsSeed seeds all randomness from there on; absent: random draws repeat
   * @throws Problem `unknown_snapshot`; `invalid_request` for a dynamics seed where the environment draws its own random
   * numbers
   */
  restore(snapshotId: string, dynamicsSeed?: number): void {
    if (dynamicsSeed !== undefined) requireReseedable(this.variant);
    const episode = this.snapshots?.get(snapshotId);
    if (!episode) {
      throw new Problem('unknown_snapshot', `session ${this.id} has no snapshot ${snapshotId}`);
    }
    this.begin(dynamicsSeed === undefined ? episode : withDynamics(episode, dynamicsSeed));
  }

  /** Fields fixed for the life of the session. */
  get settings(): StoredSettings {
    const { id, serial, owner, groupId, format, createdAt, ttlMs, deadline, variant } = this;
    const { config, wrappers } = variant;
    const envId = variant.base.spec.id;
    return { id, serial, owner, groupId, envId, config, wrappers, format, createdAt, ttlMs, deadline };
  }

  /** Fields that change; an operation in progress is not included. */
  content(): SessionContent {
    return {
      episode: this.#episode.capture(),
      episodes: this.#episodes,
      snapshotsTaken: this.#snapshotsTaken,
      snapshots: this.snapshots ? [...this.snapshots.entries()] : [],
      rolledBack: this.rolledBack,
      recorded: this.recorded,
      replies: this.#replies?.changes,
    };
  }

  /** Continues with another episode. */
  begin(episode: EpisodeState): void {
    this.#episodes++;
    if (episode.step === 0) this.variant.counters.episodes++;
    this.rolledBack = false;
    this.unsavedUnreported = false;
    this.#changed = true;
    const old = this.#episode;
    this.release(old.log);
    this.grow(-old.bytes);
    this.#episode = this.#adopted(episode);
  }

  #adopted(episode: EpisodeState): LiveEpisode {
    this.grow(episode.bytes + unneededBytes(episode.log, this.snapshots));
    return new LiveEpisode(`${this.id}.${this.#episodes}`, this, episode);
  }

  /** True while an operation runs. */
  get busy(): boolean {
    return this.#tail !== undefined;
  }

  /** Number of operations that wait for another one. */
  get waiting(): number {
    return this.#waiting;
  }

  /** Resolves when all operations present at the call are done; undefined where there are none. */
  get underWay(): Promise<void> | undefined {
    return this.#tail;
  }

  /** @throws Problem `session_closed` */
  requireOpen(): void {
    if (this.closed) throw new Problem('session_closed', `session ${this.id} was closed`);
  }

  /**
   * Runs a handler after all earlier operations; at once where none is running.
   * @throws Problem `too_many_requests` when the queue is full
   */
  exclusive<C, T>(handle: (session: this, context: C) => MaybePromise<T>, context: C): MaybePromise<T> {
    if (this.#tail) return this.#afterwards(this.#tail, handle, context);
    const result = handle(this, context);
    if (result instanceof Promise) this.#hold(result);
    return result;
  }

  #afterwards<C, T>(
    tail: Promise<void>,
    handle: (session: this, context: C) => MaybePromise<T>,
    context: C,
  ): Promise<T> {
    if (this.#waiting >= MAX_QUEUE_LENGTH) {
      throw new Problem(
        'too_many_requests',
        `session ${this.id} has ${MAX_QUEUE_LENGTH} operations waiting, the most it may have`,
      );
    }
    this.#waiting++;
    const turn = (): MaybePromise<T> => {
      this.#waiting--;
      this.requireOpen();
      return handle(this, context);
    };
    const result = tail.then(scheduler.keep(turn));
    this.#hold(result);
    return result;
  }

  #hold(result: Promise<unknown>): void {
    const done = () => {
      if (this.#tail !== settled) return;
      this.#tail = undefined;
      this.usedAt = this.#now();
    };
    const settled: Promise<void> = result.then(done, done);
    this.#tail = settled;
  }
}
