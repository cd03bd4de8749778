import type { Json, JsonObject } from '../../shared/json.ts';
import { chain, type MaybePromise } from '../../shared/maybe-promise.ts';
import { Problem } from '../../shared/problems.ts';
import type { ObservationFormat } from '../environments/environment.ts';
import { turns } from '../scheduling/turns.ts';
import { beginEpisode, type EpisodeState, type StepResult, type TrajectoryRecord } from './episode.ts';
import type { Expiring } from './expiry.ts';
import { LiveEpisode } from './live-episode.ts';
import { ReplyMemory } from './replies.ts';
import type { SessionPast, StoredSession } from './stored-session.ts';
import type { Variant } from './variant.ts';

/** Replies remembered by request key. */
const REPLIES_KEPT = 16;
/** Operations that may wait for the one that runs. */
const LONGEST_QUEUE = 256;
const MOST_SNAPSHOTS = 1024;
const RETRY_AFTER_SECONDS = 1;

export const STANDINGS = ['playing', 'terminated', 'truncated', 'failed', 'busy'] as const;
export type Standing = (typeof STANDINGS)[number];

export interface SessionSettings {
  readonly id: string;
  /** Grows with every session of the server. */
  readonly serial: number;
  readonly variant: Variant;
  /** Name of the principal it belongs to. */
  readonly owner: string;
  readonly groupId: string | null;
  readonly format: ObservationFormat;
  readonly now: () => number;
  /** Absent: now. */
  readonly createdAt?: number;
  readonly ttlMs: number;
  /** When it ends however busy it is, in milliseconds since the epoch. */
  readonly deadline: number;
}

/** Does something with a session. */
type Handler<C, I, T> = (context: C, session: Session, input: I) => MaybePromise<T>;

/** One episode after another in one environment. Owns the order of operations on them, and their snapshots. */
export class Session implements Expiring {
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
  usedAt: number;
  slot = 0;
  closed = false;
  #episode: LiveEpisode;
  /** What is not the episode's is not as it was last stored. */
  #changed = true;
  #episodes = 0;
  #snapshots: Map<string, EpisodeState> | undefined;
  #snapshotsTaken = 0;
  #replies: ReplyMemory | undefined;
  #tail: Promise<void> | undefined;
  #waiting = 0;
  #rolledBack = false;

  /** @param past of a session that was stored; absent for a new one */
  constructor(settings: SessionSettings, episode: EpisodeState, past?: SessionPast) {
    this.id = settings.id;
    this.serial = settings.serial;
    this.variant = settings.variant;
    this.owner = settings.owner;
    this.groupId = settings.groupId;
    this.format = settings.format;
    this.#now = settings.now;
    this.usedAt = settings.now();
    this.createdAt = settings.createdAt ?? this.usedAt;
    this.ttlMs = settings.ttlMs;
    this.deadline = settings.deadline;
    if (past) this.#recall(past);
    else this.#episodes = 1;
    this.#episode = this.#adopted(episode);
    if (!past && episode.step === 0) this.variant.tally.episodes++;
  }

  #recall(past: SessionPast): void {
    this.#episodes = past.episodes;
    this.#snapshotsTaken = past.snapshotsTaken;
    if (past.snapshots.length > 0) this.#snapshots = new Map(past.snapshots);
    if (past.replies.length > 0) this.#replies = new ReplyMemory(REPLIES_KEPT, past.replies);
    this.#rolledBack = past.rolledBack;
  }

  /** The one that is played. */
  get episode(): LiveEpisode {
    return this.#episode;
  }

  /** It is not as it was last stored. */
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

  get expiresAt(): number {
    return this.#tail ? this.deadline : Math.min(this.usedAt + this.ttlMs, this.deadline);
  }

  get busy(): boolean {
    return this.#tail !== undefined;
  }

  /** What it is at: an operation, or between two of them. */
  get standing(): Standing {
    const { failed, terminated, truncated } = this.#episode;
    if (this.busy) return 'busy';
    if (failed) return 'failed';
    if (terminated) return 'terminated';
    return truncated ? 'truncated' : 'playing';
  }

  /** Operations that wait for another one. */
  get waiting(): number {
    return this.#waiting;
  }

  /** Resolves when nothing runs or waits any more of what was there when it was called; undefined where nothing does. */
  get underWay(): Promise<void> | undefined {
    return this.#tail;
  }

  get replies(): ReplyMemory {
    this.#changed = true;
    this.#replies ??= new ReplyMemory(REPLIES_KEPT);
    return this.#replies;
  }

  /**
   * Runs a handler when everything that came before it is done; at once where nothing is running.
   * @throws Problem `too_many_requests` when the queue is full
   */
  exclusive<C, I, T>(handle: Handler<C, I, T>, context: C, input: I): MaybePromise<T> {
    if (this.#tail) return this.#afterwards(this.#tail, handle, context, input);
    const result = handle(context, this, input);
    if (result instanceof Promise) this.#hold(result);
    return result;
  }

  #afterwards<C, I, T>(tail: Promise<void>, handle: Handler<C, I, T>, context: C, input: I): Promise<T> {
    if (this.#waiting >= LONGEST_QUEUE) {
      throw new Problem(
        'too_many_requests',
        `session ${this.id} has ${LONGEST_QUEUE} operations waiting, the most it may have`,
        { retryAfterSeconds: RETRY_AFTER_SECONDS },
      );
    }
    this.#waiting++;
    const turn = (): MaybePromise<T> => {
      this.#waiting--;
      if (this.closed) throw new Problem('session_closed', `session ${this.id} was closed`);
      return handle(context, this, input);
    };
    const result = tail.then(turns.keep(turn));
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

  /** @throws InvalidOptions; Problem when the environment refuses a seed */
  reset(seed: number | undefined, options: JsonObject | undefined): MaybePromise<void> {
    return chain(beginEpisode(this.variant, seed, options), episode => {
      this.#episode.dispose();
      this.#begin(episode);
    });
  }

  /** Its client has seen where it stands. */
  acknowledge(): void {
    if (!this.#rolledBack) return;
    this.#rolledBack = false;
    this.#changed = true;
  }

  /**
   * @throws Problem `wrong_step`, `episode_over`, `invalid_action`, `session_rolled_back`; `environment_fault` when the environment
   * throws, which ends the episode
   */
  step(action: Json, expectedStep: number | undefined): MaybePromise<StepResult> {
    const episode = this.#episode;
    if (this.#rolledBack) {
      throw new Problem(
        'session_rolled_back',
        `the server ended without warning; session ${this.id} was resumed at step ${episode.stepCount} of ${episode.id}, where it stood at the last checkpoint`,
      );
    }
    if (expectedStep !== undefined && expectedStep !== episode.stepCount + 1) {
      throw new Problem(
        'wrong_step',
        `session ${this.id} is at step ${episode.stepCount}, so its next step is ${episode.stepCount + 1}; expected_step is ${expectedStep}`,
      );
    }
    return episode.step(action);
  }

  /** @throws Problem `unsupported`, `too_many_snapshots` */
  snapshot(): string {
    this.#requireCopyable();
    this.#snapshots ??= new Map();
    if (this.#snapshots.size >= MOST_SNAPSHOTS) {
      throw new Problem(
        'too_many_snapshots',
        `session ${this.id} has ${MOST_SNAPSHOTS} snapshots, the most it may have`,
        { retryAfterSeconds: RETRY_AFTER_SECONDS },
      );
    }
    const snapshotId = `${this.id}.s${++this.#snapshotsTaken}`;
    this.#snapshots.set(snapshotId, this.capture());
    this.#changed = true;
    return snapshotId;
  }

  /** @throws Problem `unknown_snapshot` */
  restore(snapshotId: string): void {
    const episode = this.#snapshots?.get(snapshotId);
    if (!episode) {
      throw new Problem('unknown_snapshot', `session ${this.id} has no snapshot ${snapshotId}`);
    }
    this.#begin(episode);
  }

  /**
   * The episode as plain data.
   * @throws Problem `unsupported` when the environment holds more than its state
   */
  capture(): EpisodeState {
    this.#requireCopyable();
    return this.#episode.capture();
  }

  /**
   * The whole session as plain data; what is under way is not in it.
   * @throws Problem `unsupported` when the environment holds more than its state
   */
  stored(): StoredSession {
    return {
      id: this.id,
      serial: this.serial,
      owner: this.owner,
      groupId: this.groupId,
      envId: this.variant.base.spec.id,
      config: this.variant.config,
      wrappers: this.variant.wrappers,
      format: this.format,
      createdAt: this.createdAt,
      ttlMs: this.ttlMs,
      deadline: this.deadline,
      episode: this.capture(),
      past: {
        episodes: this.#episodes,
        snapshotsTaken: this.#snapshotsTaken,
        snapshots: this.#snapshots ? [...this.#snapshots] : [],
        replies: this.#replies ? this.#replies.stored() : [],
        rolledBack: this.#rolledBack,
      },
    };
  }

  #requireCopyable(): void {
    if (this.variant.copyable) return;
    throw new Problem(
      'unsupported',
      `${this.variant.environment.spec.id} holds more than its state and cannot be copied`,
    );
  }

  #begin(episode: EpisodeState): void {
    this.#episodes++;
    if (episode.step === 0) this.variant.tally.episodes++;
    this.#rolledBack = false;
    this.#changed = true;
    this.#episode = this.#adopted(episode);
  }

  #adopted(episode: EpisodeState): LiveEpisode {
    return new LiveEpisode(`${this.id}.${this.#episodes}`, this, episode);
  }

  /** The reset and every step of this episode. */
  trajectory(): MaybePromise<TrajectoryRecord[]> {
    return chain(this.#episode.records(), ([first, ...steps]) => {
      const { variant } = this;
      return [
        {
          type: 'reset',
          session_id: this.id,
          episode_id: this.#episode.id,
          env_id: variant.environment.spec.id,
          config: variant.config,
          wrappers: [...variant.wrappers],
          seed: this.seed,
          options: this.#episode.options,
          step: 0,
          observation: first.observation,
          info: first.info,
        },
        ...steps,
      ];
    });
  }
}
