import { randomInt } from 'node:crypto';
import { performance } from 'node:perf_hooks';
import type { Json, JsonObject } from '../../../shared/json.ts';
import type { ObservationPart } from '../../../shared/observation-parts.ts';
import { Random, type RandomState } from '../../../shared/random.ts';
import type { ObservationFormat } from '../../environments/core/environment.ts';
import { chain, type MaybePromise } from '../../environments/core/maybe-promise.ts';
import { invalidRequest, Problem } from '../../problems.ts';
import { background, nextTurn, SLICE_MS, scheduler } from '../../scheduling/fair-scheduler.ts';
import type { WrapperChoice } from '../../wrappers/wrap.ts';
import { sizeOf } from '../limits/budgets.ts';
import { actionsOf, bytesOf, type LogPosition } from './action-log.ts';
import { guarded, type Variant } from './variant.ts';

/** Seeds drawn by the server are below this, short enough to type. */
const DRAWN_SEEDS = 2 ** 32;

/** Bytes of an episode without its parts. */
const EPISODE_BYTES = 256;

/** Position where an automatic reset began an episode: everything before it is forgotten. */
export interface EpisodeRestart {
  readonly state: Json;
  readonly random: RandomState;
  /** Steps before the reset. */
  readonly step: number;
}

/** A new random stream in mid-episode. */
export interface Reseed {
  /** Steps before the change. */
  readonly step: number;
  readonly dynamicsSeed: number;
}

/** Most changes of the stream in one episode: each of up to thousands of clones has the list. */
const MAX_RESEEDS = 1024;
const RESEED_BYTES = 48;

/** An episode as immutable data: what snapshots, clones and the store hold. */
export interface EpisodeState {
  readonly seed: number;
  /** Seed of all randomness after the start; undefined: the generator of `seed` continues. */
  readonly dynamicsSeed?: number;
  /** Later changes of the stream, in step order; absent where there are none. */
  readonly reseeds?: readonly Reseed[];
  /** True if replies include the state's key. */
  readonly stateKeys?: true;
  readonly options: JsonObject;
  readonly state: Json;
  readonly random: RandomState;
  readonly step: number;
  readonly totalReward: number;
  readonly terminated: boolean;
  readonly truncated: boolean;
  /** An exception in the environment ended the episode. */
  readonly failed: boolean;
  readonly info: JsonObject;
  /** Undefined where the seed began it. */
  readonly restart: EpisodeRestart | undefined;
  /** The actions since its beginning. */
  readonly log: LogPosition | undefined;
  /** Estimated memory without the actions. */
  readonly bytes: number;
}

/** Estimated memory of an episode without its actions, in bytes. */
export function episodeSize(episode: Omit<EpisodeState, 'bytes'>): number {
  const { options, state, info, restart, reseeds = [] } = episode;
  return (
    EPISODE_BYTES +
    RESEED_BYTES * reseeds.length +
    sizeOf(options) +
    sizeOf(state) +
    sizeOf(info) +
    (restart ? sizeOf(restart.state) : 0)
  );
}

/** The episode with its estimated memory. */
export function weighed(episode: Omit<EpisodeState, 'bytes'>): EpisodeState {
  return Object.assign(episode, { bytes: episodeSize(episode) });
}

/** Estimated memory of an episode with its actions, in bytes. */
export const wholeSize = (episode: EpisodeState): number => episode.bytes + bytesOf(episode.log);

/** An observation in the session's format. */
export type SeenObservation = string | readonly ObservationPart[] | { [key: string]: unknown };

export interface StepResult {
  session_id: string;
  episode_id: string;
  step: number;
  observation: SeenObservation;
  reward: number;
  terminated: boolean;
  truncated: boolean;
  info: { [key: string]: unknown };
  state_key?: string;
}

export interface TrajectoryRecord {
  type: 'reset' | 'step';
  session_id?: string;
  episode_id?: string;
  env_id?: string;
  config?: JsonObject;
  wrappers?: WrapperChoice[];
  seed?: number | null;
  dynamics_seed?: number;
  reseeds?: { step: number; dynamics_seed: number }[];
  options?: JsonObject;
  step: number;
  action?: unknown;
  observation: SeenObservation;
  reward?: number;
  terminated?: boolean;
  truncated?: boolean;
  info: { [key: string]: unknown };
  structured?: Json;
}

/** Settings for the states of a replay. */
export interface ReplayView {
  readonly format: ObservationFormat;
  /** True if records also include the state as plain data. */
  readonly structured?: boolean;
}

/** Settings of a new episode. */
export interface EpisodeRequest {
  /** Drawn at random when absent. */
  readonly seed?: number;
  /** Seed of all randomness after the start; absent: the generator of `seed` continues. */
  readonly dynamicsSeed?: number;
  readonly options?: JsonObject;
  /** True if replies include the state's key. */
  readonly stateKeys?: boolean;
}

/**
 * Begins an episode.
 * @throws Problem when the environment rejects a seed, `environment_fault`; InvalidOptions
 */
export function beginEpisode(variant: Variant, request: EpisodeRequest): MaybePromise<EpisodeState> {
  const { seed, dynamicsSeed, stateKeys } = request;
  const { id } = variant.environment.spec;
  if (seed !== undefined && !variant.seedable) {
    throw invalidRequest('/seed', `${id} draws nothing at random and takes no seed`);
  }
  if (dynamicsSeed !== undefined) requireReseedable(variant);
  if (stateKeys && !variant.copyable) {
    throw invalidRequest('/state_key', `${id} holds more than its state, so its states have no key`);
  }
  const options = variant.options(request.options);
  const effective = seed ?? randomInt(DRAWN_SEEDS);
  const random = Random.fromSeed(effective);
  const reset = () => variant.environment.reset(variant.config, random, options);
  return chain(guarded(variant, 'to begin', reset), state => {
    const begun = weighed({
      seed: effective,
      ...(stateKeys && { stateKeys: true as const }),
      options,
      state,
      random: random.state,
      step: 0,
      totalReward: 0,
      terminated: false,
      truncated: false,
      failed: false,
      info: {},
      restart: undefined,
      log: undefined,
    });
    return dynamicsSeed === undefined ? begun : withDynamics(begun, dynamicsSeed);
  });
}

/**
 * The episode with another seed for everything after this step. The last of several at one step wins.
 * @throws Problem `invalid_request` where the episode has changed its stream too often
 */
export function withDynamics(episode: EpisodeState, dynamicsSeed: number): EpisodeState {
  const random = Random.fromSeed(dynamicsSeed).state;
  const { step } = episode;
  if (step === 0) return { ...episode, dynamicsSeed, random };
  const earlier = episode.reseeds?.filter(reseed => reseed.step < step) ?? [];
  if (earlier.length >= MAX_RESEEDS) {
    throw invalidRequest(
      '/dynamics_seed',
      `the episode has changed its dynamics seed at ${MAX_RESEEDS} steps, the most it may`,
    );
  }
  return weighed({ ...episode, random, reseeds: [...earlier, { step, dynamicsSeed }] });
}

/** The seed of the episode's current random stream; undefined: that of its seed. */
export const dynamicsSeedOf = ({ dynamicsSeed, reseeds }: EpisodeState): number | undefined =>
  reseeds?.at(-1)?.dynamicsSeed ?? dynamicsSeed;

/** @throws Problem `invalid_request` where a dynamics seed would change nothing */
export function requireReseedable(variant: Variant): void {
  if (variant.reseedable) return;
  const { id } = variant.environment.spec;
  throw invalidRequest(
    '/dynamics_seed',
    `${id} does not take its chance from this server, so it has no dynamics seed`,
  );
}

/** Estimated memory that a trajectory may take: it may have ten thousand large observations. */
const MAX_TRAJECTORY_BYTES = 32 * 1024 * 1024;

/**
 * Replays an episode from its beginning and actions, with pauses for other work.
 * @throws Problem `unsupported` when the replay differs, which means that the environment is not deterministic
 */
async function replay(
  variant: Variant,
  episode: EpisodeState,
  { format, structured = false }: ReplayView,
): Promise<TrajectoryRecord[]> {
  const { environment } = variant;
  const lane = scheduler.current ?? background;
  const { restart } = episode;
  let random = restart ? Random.fromState(restart.random) : Random.fromSeed(episode.seed);
  const observe = (state: Json) => ({
    observation: environment.observe(state, format) as TrajectoryRecord['observation'],
    ...(structured && { structured: environment.observe(state, 'structured') }),
  });
  let state = restart ? restart.state : await environment.reset(variant.config, random, episode.options);
  if (!restart && episode.dynamicsSeed !== undefined) random = Random.fromSeed(episode.dynamicsSeed);
  let step = restart?.step ?? 0;
  const streams = new Map(episode.reseeds?.map(reseed => [reseed.step, reseed.dynamicsSeed]));
  const first: TrajectoryRecord = { type: 'reset', step, ...observe(state), info: {} };
  const records = [first];
  let bytes = sizeOf(first);
  const actions = actionsOf(episode.log);
  let sliceEnd = performance.now() + SLICE_MS;
  for (const action of actions) {
    if (performance.now() >= sliceEnd) {
      await nextTurn(lane);
      sliceEnd = performance.now() + SLICE_MS;
    }
    const stream = streams.get(step);
    if (stream !== undefined) random = Random.fromSeed(stream);
    const transition = await environment.step(state, action, random);
    state = transition.state;
    const record: TrajectoryRecord = {
      type: 'step',
      step: ++step,
      action,
      ...observe(state),
      reward: transition.reward,
      terminated: transition.terminated,
      ...variant.limited(transition, step),
    };
    bytes += sizeOf(record);
    if (bytes > MAX_TRAJECTORY_BYTES) {
      throw new Problem(
        'unsupported',
        `the first ${records.length} of ${actions.length} steps take more than the ${MAX_TRAJECTORY_BYTES} bytes that a trajectory may have`,
      );
    }
    records.push(record);
  }
  if (JSON.stringify(state) !== JSON.stringify(episode.state)) {
    throw new Problem(
      'unsupported',
      `playing the ${actions.length} actions again gave another state: ${environment.spec.id} does not keep to its seed`,
    );
  }
  return records;
}

/**
 * The same for the session's owner.
 * @throws Problem `unsupported`, `environment_fault`
 */
export function replayFor(
  owner: string,
  variant: Variant,
  episode: EpisodeState,
  view: ReplayView,
): MaybePromise<TrajectoryRecord[]> {
  const { environment } = variant;
  const again = () => replay(variant, episode, view);
  return guarded(variant, 'to play its actions again', () =>
    environment.playFor ? environment.playFor(owner, again) : again(),
  );
}

/** A recorded episode, for environments that cannot be replayed. */
export function recorded(
  first: StepResult['observation'],
  results: readonly StepResult[],
  episode: EpisodeState,
): TrajectoryRecord[] {
  const actions = actionsOf(episode.log);
  const steps = results.map(
    (
      { session_id: _session, episode_id: _episode, state_key: _key, ...result },
      index,
    ): TrajectoryRecord => ({
      type: 'step',
      action: actions[index],
      ...result,
    }),
  );
  return [{ type: 'reset', step: episode.restart?.step ?? 0, observation: first, info: {} }, ...steps];
}
