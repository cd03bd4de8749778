import type { Json, JsonObject } from '../../../shared/json.ts';
import { Random, type RandomState } from '../../../shared/random.ts';
import type { ObservationFormat, Transition } from '../../environments/core/environment.ts';
import { chain, type MaybePromise } from '../../environments/core/maybe-promise.ts';
import type { RecordBody } from '../../persistence/journal/records.ts';
import { PROBLEMS, Problem, type ProblemCode } from '../../problems.ts';
import { sizeOf } from '../limits/budgets.ts';
import { ActionLog, actionSize, lastOf } from './action-log.ts';
import {
  type EpisodeRestart,
  type EpisodeState,
  episodeSize,
  type Reseed,
  recorded,
  replayFor,
  type StepResult,
  type TrajectoryRecord,
} from './episode.ts';
import { stateKeyOf } from './state-queries.ts';
import { environmentFault, guarded, type Variant } from './variant.ts';

/** The generator before the step in progress; unused between steps. */
const before = Random.fromSeed(0);

/** Step of the first measured state; states of custom environments are always measured. */
const FIRST_MEASURED_STEP = 8;
/** Bytes of actions after which the state is measured again, because an environment may remember them. */
const MEASURE_AFTER_BYTES = 4096;

/** Problems of a step in custom code, which does not know its number. */
const STEP_FAULTS: ReadonlySet<string> = new Set<ProblemCode>(['environment_fault', 'remote_failed']);

/** The session of an episode. */
export interface EpisodeSession {
  /** Session id. */
  readonly id: string;
  readonly variant: Variant;
  /** Name of the owning principal. */
  readonly owner: string;
  readonly format: ObservationFormat;
  /** True once it has ended. */
  readonly closed: boolean;
  /** Bytes that it may still take. */
  readonly room: number;
  /** Changes its estimated memory by this many bytes. */
  grow(bytes: number): void;
  /** @throws Problem `session_budget_exceeded`, `token_budget_exceeded`, `server_budget_exceeded` */
  requireRoomToPlay(bytes: number): void;
  /** Journals a step, with its outcome where repeating the step would not reproduce it. */
  record<K extends 'step' | 'transition' | 'fault'>(kind: K, body: RecordBody<K>): void;
  /** Called on an automatic reset: the log's content is no longer needed, except by snapshots. */
  release(log: ActionLog): void;
}

/** An episode in play: its state, its generator, and its history. */
export class LiveEpisode {
  readonly id: string;
  readonly seed: number;
  readonly dynamicsSeed: number | undefined;
  /** Changes of the stream since the beginning, or since the last automatic reset. */
  reseeds: readonly Reseed[] | undefined;
  /** True if replies include the state's key. */
  readonly stateKeys: true | undefined;
  readonly options: JsonObject;
  /** True if it has changed since it was last stored. */
  changed = true;
  stepCount: number;
  totalReward: number;
  terminated: boolean;
  truncated: boolean;
  /** True if an exception in the environment ended it. */
  failed: boolean;
  info: JsonObject;
  readonly #session: EpisodeSession;
  readonly #random: Random;
  #state: Json;
  /** The generator before the step in progress. */
  #randomBefore: RandomState | undefined;
  #restart: EpisodeRestart | undefined;
  log: ActionLog;
  /** Recorded results, for environments that cannot be replayed. */
  #results: StepResult[] | undefined;
  #resultBytes = 0;
  #firstObservation: StepResult['observation'] | undefined;
  /** Estimated memory without actions and results, as last measured. */
  #bytes: number;
  /** Step of the next measurement. States of built-in environments grow with steps and actions, if at all. */
  #measureAt: number;
  /** Bytes of actions since the last measurement. */
  #unmeasured = 0;

  constructor(id: string, session: EpisodeSession, episode: EpisodeState) {
    this.id = id;
    this.#session = session;
    this.seed = episode.seed;
    this.dynamicsSeed = episode.dynamicsSeed;
    this.reseeds = episode.reseeds;
    this.stateKeys = episode.stateKeys;
    this.options = episode.options;
    this.#state = episode.state;
    this.#random = Random.fromState(episode.random);
    this.stepCount = episode.step;
    this.totalReward = episode.totalReward;
    this.terminated = episode.terminated;
    this.truncated = episode.truncated;
    this.failed = episode.failed;
    this.info = episode.info;
    this.#restart = episode.restart;
    this.log = new ActionLog(episode.log);
    this.#bytes = episode.bytes;
    this.#measureAt = episode.step + FIRST_MEASURED_STEP;
    if (session.variant.copyable) return;
    this.#results = [];
    this.#firstObservation = this.observe(session.format) as StepResult['observation'];
  }

  /** State of the environment. */
  get state(): Json {
    return this.#state;
  }

  /** State of the generator. */
  get random(): RandomState {
    return this.#random.state;
  }

  /** Steps after which it is truncated. */
  get maxSteps(): number {
    return this.#session.variant.stepsOf(this.#state);
  }

  /** True if it accepts no more steps. */
  get isOver(): boolean {
    return this.failed || ((this.terminated || this.truncated) && !this.#session.variant.autoReset);
  }

  /** Estimated memory without its actions, in bytes, as last measured. */
  get bytes(): number {
    return this.#bytes + this.#resultBytes;
  }

  /**
   * @throws Problem `episode_over`, `invalid_action`, `session_budget_exceeded` and the like, with no effect;
   * `environment_fault` when the environment throws, which ends the episode
   */
  step(action: Json): MaybePromise<StepResult> {
    if (this.isOver) throw this.#over();
    const { variant } = this.#session;
    const fault = variant.checkAction(action);
    if (fault !== undefined) {
      throw new Problem('invalid_action', fault, { violations: [{ pointer: '/action', detail: fault }] });
    }
    const actionBytes = actionSize(action);
    this.#session.requireRoomToPlay(actionBytes);
    let transition: MaybePromise<Transition<Json>>;
    before.follow(this.#random);
    try {
      transition = variant.environment.playFor
        ? this.#stepForOwner(action)
        : variant.environment.step(this.#state, action, this.#random);
    } catch (error) {
      throw this.#fault(error, before.state);
    }
    if (transition instanceof Promise) {
      return this.#commitLater(action, actionBytes, transition, before.state);
    }
    const result = this.#commit(action, actionBytes, transition);
    this.#session.record('step', action);
    return result;
  }

  /** Repeats a recorded step, ignoring present limits. */
  redo(action: Json): MaybePromise<StepResult> {
    const { environment } = this.#session.variant;
    const transition = environment.playFor
      ? this.#stepForOwner(action)
      : environment.step(this.#state, action, this.#random);
    return chain(transition, value => this.#commit(action, actionSize(action), value));
  }

  /** Applies a recorded step with its outcome. */
  follow(action: Json, transition: Transition<Json>, random: RandomState): StepResult {
    this.#random.moveTo(random);
    return this.#commit(action, actionSize(action), transition);
  }

  /** Ends as failed. */
  fail(): void {
    this.failed = true;
    this.changed = true;
  }

  #stepForOwner(action: Json): MaybePromise<Transition<Json>> {
    const { owner, variant } = this.#session;
    const { environment } = variant;
    return environment.playFor!(owner, () => environment.step(this.#state, action, this.#random));
  }

  #commitLater(
    action: Json,
    actionBytes: number,
    transition: Promise<Transition<Json>>,
    randomBefore: RandomState,
  ): Promise<StepResult> {
    this.#randomBefore = randomBefore;
    return transition.then(
      value => {
        this.#randomBefore = undefined;
        // Custom code: its next state may be of any size.
        this.#requireRoomFor(value, actionBytes, randomBefore);
        const { closed, variant } = this.#session;
        // An automatic reset began an episode that only this code can release.
        if (closed && value.restarted) variant.releaseState(value.state);
        this.#measureAt = this.stepCount;
        const result = this.#commit(action, actionBytes, value);
        const { state, reward, terminated, info, restarted } = value;
        this.#session.record('transition', {
          action,
          state,
          random: this.#random.state,
          reward,
          terminated,
          truncated: this.truncated,
          info,
          ...(restarted && { restarted }),
        });
        return result;
      },
      error => {
        this.#randomBefore = undefined;
        throw this.#fault(error, randomBefore);
      },
    );
  }

  /** Undoes a step with too large an outcome; where that is impossible, the episode ends. */
  #requireRoomFor(transition: Transition<Json>, actionBytes: number, randomBefore: RandomState): void {
    const { state, info, restarted } = transition;
    const { variant, room } = this.#session;
    const most = Math.max(0, room) + this.#bytes;
    const grown = sizeOf(state, most + 1) + sizeOf(info, most + 1) + actionBytes - this.#bytes;
    try {
      this.#session.requireRoomToPlay(Math.max(0, grown));
    } catch (error) {
      if (variant.copyable) this.#random.moveTo(randomBefore);
      else {
        this.fail();
        if (restarted) variant.releaseState(state);
      }
      throw error;
    }
  }

  #commit(action: Json, actionBytes: number, transition: Transition<Json>): StepResult {
    const { id, variant, format } = this.#session;
    const { reward } = transition;
    let observation: StepResult['observation'];
    try {
      if (!Number.isFinite(reward)) throw new Error(`the reward is ${reward}, not a finite number`);
      observation = variant.environment.observe(transition.state, format) as StepResult['observation'];
    } catch (error) {
      throw this.#fault(error);
    }
    this.changed = true;
    this.#state = transition.state;
    this.stepCount++;
    this.totalReward += reward;
    this.terminated = transition.terminated;
    const { truncated, info } = variant.limited(transition, this.stepCount);
    this.truncated = truncated;
    this.info = info;
    const logged = this.log.append(action, actionBytes);
    if (logged > 0) this.#session.grow(logged);
    const { stepCount, terminated } = this;
    const result: StepResult = {
      session_id: id,
      episode_id: this.id,
      step: stepCount,
      observation,
      ...(this.stateKeys && { state_key: stateKeyOf(variant, transition.state) }),
      reward,
      terminated,
      truncated,
      info,
    };
    this.#results?.push(result);
    if (transition.restarted) this.#forgetPast(observation);
    this.#unmeasured += actionBytes;
    if (stepCount >= this.#measureAt || this.#unmeasured > MEASURE_AFTER_BYTES || this.#results) {
      this.#measure(result);
    }
    return result;
  }

  /** An automatic reset has begun another episode, from which everything can be replayed. */
  #forgetPast(observation: StepResult['observation']): void {
    this.#session.release(this.log);
    this.log = new ActionLog();
    this.reseeds = undefined;
    this.#restart = { state: this.#state, random: this.#random.state, step: this.stepCount };
    this.#measureAt = this.stepCount;
    if (!this.#results) return;
    this.#results = [];
    this.#firstObservation = observation;
    this.#session.grow(-this.#resultBytes);
    this.#resultBytes = 0;
  }

  /** Measures the size again. The next measurement comes at twice as many steps. */
  #measure(result: StepResult): void {
    const begun = this.#restart?.step ?? 0;
    this.#measureAt = begun + Math.max(FIRST_MEASURED_STEP, 2 * (this.stepCount - begun));
    this.weigh();
    if (!this.#results || this.#results.length === 0) return;
    const resultBytes = sizeOf(result);
    this.#resultBytes += resultBytes;
    this.#session.grow(resultBytes);
  }

  /** Estimates the current size of the state. */
  weigh(): void {
    this.#unmeasured = 0;
    const bytes = episodeSize(this.capture());
    this.#session.grow(bytes - this.#bytes);
    this.#bytes = bytes;
  }

  #over(): Problem {
    const how = this.failed ? 'failed' : this.terminated ? 'terminated' : 'was truncated';
    return new Problem(
      'episode_over',
      `episode ${this.id} ${how} at step ${this.stepCount}; reset the session to begin a new one`,
    );
  }

  /**
   * The error that the environment threw. It ends the episode, unless it is a problem that says the step had no effect
   * and may be tried again.
   */
  #fault(error: unknown, randomBefore?: RandomState): Error {
    if (error instanceof Problem && PROBLEMS[error.code].retryable) {
      if (randomBefore) this.#random.moveTo(randomBefore);
      return error;
    }
    const { variant } = this.#session;
    this.fail();
    this.#session.record('fault', undefined);
    variant.counters.faults++;
    const step = this.stepCount + 1;
    if (error instanceof Problem && STEP_FAULTS.has(error.code))
      return new Problem(error.code, `${error.message} (step ${step} of the episode)`, {
        cause: error.cause,
      });
    return environmentFault(variant, `at step ${step}`, error);
  }

  /** @throws Problem `environment_fault` */
  observe(format: ObservationFormat): Json {
    const { variant } = this.#session;
    return guarded(variant, `to show step ${this.stepCount}`, () =>
      variant.environment.observe(this.#state, format),
    ) as Json;
  }

  /** The episode as plain data; incomplete for an environment that holds more than its state. */
  capture(): EpisodeState {
    return {
      seed: this.seed,
      ...(this.dynamicsSeed !== undefined && { dynamicsSeed: this.dynamicsSeed }),
      ...(this.reseeds && { reseeds: this.reseeds }),
      ...(this.stateKeys && { stateKeys: this.stateKeys }),
      options: this.options,
      state: this.#state,
      random: this.#randomBefore ?? this.#random.state,
      step: this.stepCount,
      totalReward: this.totalReward,
      terminated: this.terminated,
      truncated: this.truncated,
      failed: this.failed,
      info: this.info,
      restart: this.#restart,
      log: this.log.position,
      bytes: this.#bytes,
    };
  }

  /** The same for another session: from here on the two share no further actions. */
  share(): EpisodeState {
    this.log.seal();
    return this.capture();
  }

  /** The reset and every step of the episode; the first record is the reset. */
  records(): MaybePromise<TrajectoryRecord[]> {
    const { owner, variant, format } = this.#session;
    return this.ownRecords ?? replayFor(owner, variant, this.capture(), { format });
  }

  /** Records of an environment that cannot be replayed; undefined for others, which need only their actions. */
  get ownRecords(): TrajectoryRecord[] | undefined {
    return this.#results && recorded(this.#firstObservation!, this.#results, this.capture());
  }

  /** Last action of the episode; undefined before the first. */
  get lastAction(): Json | undefined {
    return lastOf(this.log.position);
  }

  /** Lets the environment release what it holds outside the state. */
  dispose(): void {
    this.#session.variant.releaseState(this.#state);
  }
}
