import type { Json, JsonObject } from '../../shared/json.ts';
import type { MaybePromise } from '../../shared/maybe-promise.ts';
import { PROBLEMS, Problem } from '../../shared/problems.ts';
import { Random, type RandomState } from '../../shared/random.ts';
import type { ObservationFormat, Picture, Transition } from '../environments/environment.ts';
import { environmentFault, guarded } from './environment-fault.ts';
import {
  type EpisodeState,
  isTruncated,
  recorded,
  replay,
  type StepResult,
  type TrajectoryRecord,
} from './episode.ts';
import { headOfText, LiveResult } from './live-result.ts';
import type { Variant } from './variant.ts';

/** The generator of the episode that takes a step, as it was before; of no account between steps. */
const before = Random.fromSeed(0);

/** The session that an episode is played in. */
export interface Stage {
  /** Its id. */
  readonly id: string;
  readonly variant: Variant;
  /** Name of the principal it belongs to. */
  readonly owner: string;
  /** Of observations. */
  readonly format: ObservationFormat;
}

/** An episode that is being played: its state, its generator, and what has been done in it. */
export class LiveEpisode {
  readonly id: string;
  readonly seed: number;
  readonly options: JsonObject;
  /** It is not as it was last stored. */
  changed = true;
  stepCount: number;
  totalReward: number;
  terminated: boolean;
  truncated: boolean;
  /** An exception in the environment ended it. */
  failed: boolean;
  info: JsonObject;
  readonly #stage: Stage;
  /** How the text of every result begins. */
  #head: string | undefined;
  readonly #random: Random;
  #state: Json;
  /** The generator as it was before the step that is under way. */
  #randomBefore: RandomState | undefined;
  #actions: Json[] | undefined;
  /** Results as they were, for environments that cannot be replayed. */
  readonly #results: StepResult[] | undefined;
  readonly #firstObservation: StepResult['observation'] | undefined;

  constructor(id: string, stage: Stage, episode: EpisodeState) {
    this.id = id;
    this.#stage = stage;
    this.seed = episode.seed;
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
    if (stage.variant.copyable) return;
    this.#results = [];
    this.#firstObservation = this.observe(stage.format) as StepResult['observation'];
  }

  /** Whether it takes no more steps. */
  get isOver(): boolean {
    return this.failed || ((this.terminated || this.truncated) && !this.#stage.variant.autoReset);
  }

  /**
   * @throws Problem `episode_over`, `invalid_action`; `environment_fault` when the environment throws, which ends the episode
   */
  step(action: Json): MaybePromise<StepResult> {
    if (this.isOver) throw this.#over();
    const { variant } = this.#stage;
    const fault = variant.checkAction(action);
    if (fault !== undefined) {
      throw new Problem('invalid_action', fault, { violations: [{ pointer: '/action', detail: fault }] });
    }
    let transition: MaybePromise<Transition<Json>>;
    before.follow(this.#random);
    try {
      transition = variant.environment.playFor
        ? this.#stepForOwner(action)
        : variant.environment.step(this.#state, action, this.#random);
    } catch (error) {
      throw this.#fault(error);
    }
    return transition instanceof Promise
      ? this.#commitLater(action, transition, before.state)
      : this.#commit(action, transition);
  }

  #stepForOwner(action: Json): MaybePromise<Transition<Json>> {
    const { owner, variant } = this.#stage;
    const { environment } = variant;
    return environment.playFor!(owner, () => environment.step(this.#state, action, this.#random));
  }

  #commitLater(
    action: Json,
    transition: Promise<Transition<Json>>,
    randomBefore: RandomState,
  ): Promise<StepResult> {
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

  #commit(action: Json, transition: Transition<Json>): StepResult {
    const { id, variant, format } = this.#stage;
    const { reward, info } = transition;
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
    this.truncated = isTruncated(variant, transition, this.stepCount);
    this.info = info;
    if (this.#actions) this.#actions.push(action);
    else this.#actions = [action];
    this.#head ??= headOfText(id, this.id);
    const { stepCount, terminated, truncated } = this;
    const result = new LiveResult(
      this.#head,
      id,
      this.id,
      stepCount,
      observation,
      reward,
      terminated,
      truncated,
      info,
    );
    this.#results?.push(result);
    return result;
  }

  #over(): Problem {
    const how = this.failed ? 'failed' : this.terminated ? 'terminated' : 'was truncated';
    return new Problem(
      'episode_over',
      `episode ${this.id} ${how} at step ${this.stepCount}; reset the session to begin a new one`,
    );
  }

  /** What the environment threw; ends the episode unless it is a problem that says that nothing was done and it may be tried again. */
  #fault(error: unknown): Error {
    if (error instanceof Problem && PROBLEMS[error.code].retryable) return error;
    const { variant } = this.#stage;
    this.failed = true;
    this.changed = true;
    variant.tally.faults++;
    return environmentFault(variant, `at step ${this.stepCount + 1}`, error);
  }

  /** @throws Problem `environment_fault` */
  observe(format: ObservationFormat): Json {
    const { variant } = this.#stage;
    return guarded(variant, `to show step ${this.stepCount}`, () =>
      variant.environment.observe(this.#state, format),
    ) as Json;
  }

  /** @throws Problem `unsupported` for an environment without pictures, `environment_fault` */
  picture(): Picture {
    const { variant } = this.#stage;
    const picture = guarded(variant, `to paint step ${this.stepCount}`, () =>
      variant.environment.render?.(this.#state),
    ) as Picture | undefined;
    if (!picture) throw new Problem('unsupported', `${variant.environment.spec.id} has no pictures`);
    return picture;
  }

  /** The episode as plain data; of an environment that holds more than its state this is not all. */
  capture(): EpisodeState {
    return {
      seed: this.seed,
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

  /** The reset and every step, as far as they are the episode's own; the first record is the reset's. */
  records(): MaybePromise<TrajectoryRecord[]> {
    const { owner, variant, format } = this.#stage;
    if (this.#results) return recorded(this.#firstObservation!, this.#results, this.#actions ?? []);
    const { environment } = variant;
    const again = () => replay(variant, this.capture(), format);
    return guarded(variant, 'to play its actions again', () =>
      environment.playFor ? environment.playFor(owner, again) : again(),
    );
  }

  /**
   * The next actions of a reference policy; draws come from the step, not from the episode's generator.
   * @throws Problem `unknown_reference` naming those there are, `environment_fault`
   */
  plan(policy: string, count: number, turns?: number): MaybePromise<readonly Json[]> {
    const { variant } = this.#stage;
    const references = variant.environment.references ?? {};
    if (!Object.hasOwn(references, policy)) {
      const names = Object.keys(references).join(', ') || 'none';
      throw new Problem(
        'unknown_reference',
        `${variant.environment.spec.id} has no reference policy "${policy}"; it has ${names}`,
      );
    }
    if (this.isOver) return [];
    const [a, b, c, d] = this.#random.state;
    const random = Random.fromState([~a >>> 0, b, c, (d ^ 1) >>> 0 || 1]);
    return guarded(variant, `to plan with ${policy}`, () =>
      references[policy].plan(this.#state, count, random, turns),
    );
  }

  /** Lets the environment release what it holds outside the state. */
  dispose(): void {
    const { environment, tally } = this.#stage.variant;
    const released = environment.dispose?.(this.#state);
    if (released instanceof Promise) {
      released.catch(() => {
        tally.faults++;
      });
    }
  }
}
