import type { Json, JsonObject } from '../../shared/json.ts';
import { chain, type MaybePromise } from '../../shared/maybe-promise.ts';
import { PROBLEMS, Problem } from '../../shared/problems.ts';
import { Random, type RandomState } from '../../shared/random.ts';
import type { ObservationFormat, Picture, Transition } from '../environments/environment.ts';
import { environmentFault, guarded } from './environment-fault.ts';
import {
  beginEpisode,
  type EpisodeState,
  isTruncated,
  recorded,
  replay,
  type StepResult,
  type TrajectoryRecord,
} from './episode.ts';
import type { Expiring } from './expiry.ts';
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

/** One episode after another in one environment. Owns the episode's state and the order of operations on it. */
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
  /** It is not as it was last stored. */
  changed = true;

  episodeId = '';
  seedUsed = 0;
  options: JsonObject = {};
  stepCount = 0;
  totalReward = 0;
  terminated = false;
  truncated = false;
  failed = false;
  info: JsonObject = {};
  #state: Json = null;
  #random: Random;
  /** The generator as it was before the step that is under way. */
  #randomBefore: RandomState | undefined;
  #actions: Json[] | undefined;
  /** Results as they were, for environments that cannot be replayed. */
  #results: StepResult[] | undefined;
  #firstObservation: StepResult['observation'] | undefined;

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
    this.#random = Random.fromState(episode.random);
    if (past) this.#recall(past);
    else this.#episodes = 1;
    this.#adopt(episode);
    if (!past && episode.step === 0) this.variant.tally.episodes++;
  }

  #recall(past: SessionPast): void {
    this.#episodes = past.episodes;
    this.#snapshotsTaken = past.snapshotsTaken;
    if (past.snapshots.length > 0) this.#snapshots = new Map(past.snapshots);
    if (past.replies.length > 0) this.#replies = new ReplyMemory(REPLIES_KEPT, past.replies);
    this.#rolledBack = past.rolledBack;
  }

  get seed(): number | null {
    return this.variant.seedable ? this.seedUsed : null;
  }

  get expiresAt(): number {
    return this.#tail ? this.deadline : Math.min(this.usedAt + this.ttlMs, this.deadline);
  }

  get busy(): boolean {
    return this.#tail !== undefined;
  }

  /** What it is at: an operation, or between two of them. */
  get standing(): Standing {
    if (this.busy) return 'busy';
    if (this.failed) return 'failed';
    if (this.terminated) return 'terminated';
    return this.truncated ? 'truncated' : 'playing';
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
    this.changed = true;
    this.#replies ??= new ReplyMemory(REPLIES_KEPT);
    return this.#replies;
  }

  /**
   * Runs work when everything that came before it is done; at once where nothing is running.
   * @throws Problem `too_many_requests` when the queue is full
   */
  exclusive<T>(work: () => MaybePromise<T>): MaybePromise<T> {
    if (!this.#tail) {
      const result = work();
      if (result instanceof Promise) this.#hold(result);
      return result;
    }
    if (this.#waiting >= LONGEST_QUEUE) {
      throw new Problem(
        'too_many_requests',
        `session ${this.id} has ${LONGEST_QUEUE} operations waiting, the most it may have`,
        { retryAfterSeconds: RETRY_AFTER_SECONDS },
      );
    }
    this.#waiting++;
    const result = this.#tail.then(() => {
      this.#waiting--;
      if (this.closed) throw new Problem('session_closed', `session ${this.id} was closed`);
      return work();
    });
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
      this.dispose();
      this.#begin(episode);
    });
  }

  /** Its client has seen where it stands. */
  acknowledge(): void {
    if (!this.#rolledBack) return;
    this.#rolledBack = false;
    this.changed = true;
  }

  /**
   * @throws Problem `wrong_step`, `episode_over`, `invalid_action`, `session_rolled_back`; `environment_fault` when the environment
   * throws, which ends the episode
   */
  step(action: Json, expectedStep: number | undefined): MaybePromise<StepResult> {
    if (this.#rolledBack) {
      throw new Problem(
        'session_rolled_back',
        `the server ended without warning; session ${this.id} was resumed at step ${this.stepCount} of ${this.episodeId}, where it stood at the last checkpoint`,
      );
    }
    if (expectedStep !== undefined && expectedStep !== this.stepCount + 1) {
      throw new Problem(
        'wrong_step',
        `session ${this.id} is at step ${this.stepCount}, so its next step is ${this.stepCount + 1}; expected_step is ${expectedStep}`,
      );
    }
    if (this.#isOver()) throw this.#over();
    const fault = this.variant.checkAction(action);
    if (fault !== undefined) {
      throw new Problem('invalid_action', fault, { violations: [{ pointer: '/action', detail: fault }] });
    }
    let transition: MaybePromise<Transition<Json>>;
    const randomBefore = this.#random.state;
    try {
      transition = this.variant.environment.step(this.#state, action, this.#random);
    } catch (error) {
      throw this.#fault(error);
    }
    if (transition instanceof Promise) {
      this.#randomBefore = randomBefore;
      return transition.then(
        value => {
          this.#randomBefore = undefined;
          return this.#commit(action, value);
        },
        error => {
          this.#randomBefore = undefined;
          throw this.#fault(error);
        },
      );
    }
    return this.#commit(action, transition);
  }

  #commit(action: Json, transition: Transition<Json>): StepResult {
    const { reward, info } = transition;
    let observation: StepResult['observation'];
    try {
      if (!Number.isFinite(reward)) throw new Error(`the reward is ${reward}, not a finite number`);
      observation = this.variant.environment.observe(
        transition.state,
        this.format,
      ) as StepResult['observation'];
    } catch (error) {
      throw this.#fault(error);
    }
    this.changed = true;
    this.#state = transition.state;
    this.stepCount++;
    this.totalReward += reward;
    this.terminated = transition.terminated;
    this.truncated = isTruncated(this.variant, transition, this.stepCount);
    this.info = info;
    if (this.#actions) this.#actions.push(action);
    else this.#actions = [action];
    const result: StepResult = {
      session_id: this.id,
      episode_id: this.episodeId,
      step: this.stepCount,
      observation,
      reward,
      terminated: this.terminated,
      truncated: this.truncated,
      info,
    };
    this.#results?.push(result);
    return result;
  }

  #isOver(): boolean {
    return this.failed || ((this.terminated || this.truncated) && !this.variant.autoReset);
  }

  #over(): Problem {
    const how = this.failed ? 'failed' : this.terminated ? 'terminated' : 'was truncated';
    return new Problem(
      'episode_over',
      `episode ${this.episodeId} ${how} at step ${this.stepCount}; reset the session to begin a new one`,
    );
  }

  /** What the environment threw; ends the episode unless it is a problem that says that nothing was done and it may be tried again. */
  #fault(error: unknown): Error {
    if (error instanceof Problem && PROBLEMS[error.code].retryable) return error;
    this.failed = true;
    this.changed = true;
    this.variant.tally.faults++;
    return environmentFault(this.variant, `at step ${this.stepCount + 1}`, error);
  }

  /** @throws Problem `environment_fault` */
  observe(format: ObservationFormat): Json {
    const { variant } = this;
    return guarded(variant, `to show step ${this.stepCount}`, () =>
      variant.environment.observe(this.#state, format),
    ) as Json;
  }

  /** @throws Problem `unsupported` for an environment without pictures, `environment_fault` */
  picture(): Picture {
    const { environment } = this.variant;
    const picture = guarded(this.variant, `to paint step ${this.stepCount}`, () =>
      environment.render?.(this.#state),
    ) as Picture | undefined;
    if (!picture) throw new Problem('unsupported', `${environment.spec.id} has no pictures`);
    return picture;
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
    this.changed = true;
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
    return {
      seed: this.seedUsed,
      options: this.options,
      state: this.#state,
      random: this.#randomBefore ?? this.#random.state,
      step: this.stepCount,
      totalReward: this.totalReward,
      terminated: this.terminated,
      truncated: this.truncated,
      failed: this.failed,
      info: this.info,
      actions: this.#actions ? this.#actions.slice() : [],
    };
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
    this.changed = true;
    this.#adopt(episode);
  }

  #adopt(episode: EpisodeState): void {
    this.episodeId = `${this.id}.${this.#episodes}`;
    this.seedUsed = episode.seed;
    this.options = episode.options;
    this.#state = episode.state;
    this.#random = Random.fromState(episode.random);
    this.stepCount = episode.step;
    this.totalReward = episode.totalReward;
    this.terminated = episode.terminated;
    this.truncated = episode.truncated;
    this.failed = episode.failed;
    this.info = episode.info;
    this.#actions = episode.actions.length > 0 ? episode.actions.slice() : undefined;
    if (this.variant.copyable) return;
    this.#results = [];
    this.#firstObservation = this.observe(this.format) as StepResult['observation'];
  }

  /** The reset and every step of this episode. */
  trajectory(): MaybePromise<TrajectoryRecord[]> {
    return chain(
      this.#results
        ? recorded(this.#firstObservation!, this.#results, this.#actions ?? [])
        : guarded(this.variant, 'to play its actions again', () =>
            replay(this.variant, this.capture(), this.format),
          ),
      records => {
        const [first, ...steps] = records;
        const { variant } = this;
        return [
          {
            type: 'reset',
            session_id: this.id,
            episode_id: this.episodeId,
            env_id: variant.environment.spec.id,
            config: variant.config,
            wrappers: [...variant.wrappers],
            seed: this.seed,
            options: this.options,
            step: 0,
            observation: first.observation,
            info: first.info,
          },
          ...steps,
        ];
      },
    );
  }

  /**
   * The next actions of a reference policy; draws come from the step, not from the episode's generator.
   * @throws Problem `unknown_reference` naming those there are, `environment_fault`
   */
  plan(policy: string, count: number, turns?: number): MaybePromise<readonly Json[]> {
    const references = this.variant.environment.references ?? {};
    if (!Object.hasOwn(references, policy)) {
      const names = Object.keys(references).join(', ') || 'none';
      throw new Problem(
        'unknown_reference',
        `${this.variant.environment.spec.id} has no reference policy "${policy}"; it has ${names}`,
      );
    }
    if (this.#isOver()) return [];
    const [a, b, c, d] = this.#random.state;
    const random = Random.fromState([~a >>> 0, b, c, (d ^ 1) >>> 0 || 1]);
    return guarded(this.variant, `to plan with ${policy}`, () =>
      references[policy].plan(this.#state, count, random, turns),
    );
  }

  /** Lets the environment release what it holds outside the state. */
  dispose(): void {
    const { environment, tally } = this.variant;
    const released = environment.dispose?.(this.#state);
    if (released instanceof Promise) {
      released.catch(() => {
        tally.faults++;
      });
    }
  }
}
