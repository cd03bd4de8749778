import type { Json, JsonObject } from '../../shared/json.ts';
import { namedAction } from './format.ts';
import type {
  Environment,
  Observation,
  PlayedStep,
  Reseed,
  Session,
  SessionDetail,
  StepResult,
  TrajectoryRecord,
  WrapperChoice,
} from './wire.ts';

/** Settings of an environment for playing. */
export interface PlaySetup {
  readonly config: JsonObject;
  readonly wrappers: readonly WrapperChoice[];
  readonly options: JsonObject;
  readonly format: string;
}

/** A start, and the actions from it to where the visitor continues. */
export interface PlayStart {
  readonly envId?: string;
  readonly preset?: string;
  readonly seed?: number;
  /** In addition to the preset. */
  readonly config?: JsonObject;
  readonly wrappers?: readonly Json[];
  readonly options?: JsonObject;
  readonly format?: string;
  /** Seed of the randomness after the start, where it differs from the seed's. */
  readonly dynamicsSeed?: number;
  readonly actions?: readonly Json[];
  /** Changes of the random stream before the action of a step, and after the last action. */
  readonly reseeds?: readonly Reseed[];
}

export const DEFAULT_SETUP: PlaySetup = { config: {}, wrappers: [], options: {}, format: 'text' };

/** A trajectory record as a taken step. */
export function moveOf(record: Pick<TrajectoryRecord, keyof PlayedStep>): PlayedStep {
  const { action, observation, reward = 0, terminated = false, truncated = false, info } = record;
  return { action: action as Json, observation, reward, terminated, truncated, info };
}

/** The visitor's episode, as far as the page knows it. */
export interface EpisodeState {
  readonly environment: Environment;
  readonly setup: PlaySetup;
  readonly session: Session;
  readonly moves: readonly PlayedStep[];
  /** The state as plain data. */
  readonly structured: unknown;
  /** By number of steps: true if the state after them can be restored. */
  readonly snapshots: readonly boolean[];
  /** The reason why Undo is impossible. */
  readonly undoProblem?: string;
  /** After a failure: the best player's action in place of the last one. */
  readonly better?: { readonly policy: string; readonly action: Json };
}

export type EpisodeEvent =
  | { readonly type: 'reset'; readonly session: Session }
  | { readonly type: 'stepped'; readonly action: Json; readonly result: StepResult }
  | { readonly type: 'restored'; readonly session: Session; readonly step: number }
  /** Somebody else acted in the session, by curl for example. */
  | {
      readonly type: 'reread';
      readonly session: SessionDetail;
      readonly records: readonly TrajectoryRecord[];
    }
  | { readonly type: 'seen'; readonly structured: unknown }
  /** A snapshot is pending; was rejected; was taken. */
  | { readonly type: 'remembering'; readonly step: number }
  | { readonly type: 'forgotten'; readonly step?: number; readonly problem: string }
  | { readonly type: 'remembered' }
  | { readonly type: 'explained'; readonly better: EpisodeState['better'] };

export function reduceEpisode(state: EpisodeState, event: EpisodeEvent): EpisodeState {
  switch (event.type) {
    case 'reset':
      return { ...state, session: event.session, moves: [], snapshots: [], better: undefined };
    case 'stepped':
      return { ...state, moves: [...state.moves, { ...event.result, action: event.action }] };
    case 'restored': {
      const { observation } = event.step === 0 ? event.session : state.session;
      return {
        ...state,
        session: { ...event.session, observation },
        moves: state.moves.slice(0, event.step),
        snapshots: state.snapshots.slice(0, event.step + 1),
        better: undefined,
      };
    }
    case 'reread': {
      const [first, ...steps] = event.records;
      const session = { ...event.session, observation: first.observation };
      return { ...state, session, moves: steps.map(moveOf), snapshots: [] };
    }
    case 'seen':
      return { ...state, structured: event.structured };
    case 'remembering':
      return { ...state, snapshots: withValue(state.snapshots, event.step, true) };
    case 'remembered':
      return { ...state, undoProblem: undefined };
    case 'explained':
      return { ...state, better: event.better };
    case 'forgotten': {
      const { step, problem } = event;
      const snapshots = step === undefined ? state.snapshots : withValue(state.snapshots, step, false);
      return { ...state, snapshots, undoProblem: problem };
    }
  }
}

function withValue(list: readonly boolean[], index: number, value: boolean): readonly boolean[] {
  return Array.from({ length: Math.max(list.length, index + 1) }, (_, at) =>
    at === index ? value : (list[at] ?? false),
  );
}

export const observationOf = ({ moves, session }: EpisodeState): Observation =>
  moves.at(-1)?.observation ?? session.observation;

/** Sum of the rewards so far. */
export const totalReward = ({ moves }: Pick<EpisodeState, 'moves'>): number =>
  moves.reduce((sum, { reward }) => sum + reward, 0);

export const canUndo = ({ moves, snapshots }: EpisodeState): boolean =>
  moves.length > 0 && snapshots[moves.length - 1] === true;

/** True if it accepts no more actions. With the wrapper `auto_reset` nothing ends. */
export function isOver({ moves, setup }: EpisodeState): boolean {
  const last = moves.at(-1);
  const isEnd = last !== undefined && (last.terminated || last.truncated);
  return isEnd && !setup.wrappers.some(({ name }) => name === 'auto_reset');
}

export const isEmpty = (object: object): boolean => Object.keys(object).length === 0;

/** True if every setting has its default, so that results are comparable. */
export const isDefault = ({ setup: { config, wrappers, options } }: EpisodeState): boolean =>
  isEmpty(config) && wrappers.length === 0 && isEmpty(options);

/** Pauses between two steps of a policy, in milliseconds. */
export const SPEEDS = { slow: 900, normal: 350, fast: 90 } as const;
export type Speed = keyof typeof SPEEDS;

/** State of the view in which an environment is played. */
export interface PlayState {
  /** The requested environment. */
  readonly envId?: string;
  /** Absent until the server has described it. */
  readonly environment?: Environment;
  readonly isOpening: boolean;
  /** The reason why nothing can be played. */
  readonly openProblem?: unknown;
  readonly episode?: EpisodeState;
  /** The session ended on the server; the next start opens another one. */
  readonly isGone: boolean;
  /** Error of the last action. */
  readonly problem?: unknown;
  /** Requested actions that are not yet sent, in order. */
  readonly waiting: readonly Json[];
  /** True if the server takes long. */
  readonly isSlow: boolean;
  /** The chosen reference policy, and whether it is playing. */
  readonly policy?: string;
  readonly speed: Speed;
  readonly isPolicyPlaying: boolean;
  /** Counts the requests to focus the board. */
  readonly focusRequests: number;
}

export const NOTHING_PLAYED: PlayState = {
  isOpening: false,
  isGone: false,
  waiting: [],
  isSlow: false,
  speed: 'normal',
  isPolicyPlaying: false,
  focusRequests: 0,
};

export type PlayEvent =
  | { readonly type: 'opening'; readonly envId: string }
  | { readonly type: 'described'; readonly environment: Environment }
  | { readonly type: 'opened' }
  | { readonly type: 'refused'; readonly problem: unknown }
  | { readonly type: 'starting over' }
  | { readonly type: 'begun'; readonly episode: EpisodeState }
  | { readonly type: 'changed'; readonly episode: EpisodeState }
  /** More is known of a state that is shown: whether it can be restored, or what would have been better. */
  | { readonly type: 'remembered'; readonly episode: EpisodeState }
  | { readonly type: 'failed'; readonly problem: unknown; readonly isGone: boolean }
  | { readonly type: 'closed' }
  | { readonly type: 'queued'; readonly action: Json }
  | { readonly type: 'taken' }
  | { readonly type: 'dropped' }
  | { readonly type: 'slow'; readonly isSlow: boolean }
  | {
      readonly type: 'policy';
      readonly policy?: string;
      readonly speed?: Speed;
      readonly isPolicyPlaying?: boolean;
    }
  | { readonly type: 'focus' };

export function reducePlay(state: PlayState, event: PlayEvent): PlayState {
  switch (event.type) {
    case 'opening': {
      const { speed, focusRequests } = state;
      return { ...NOTHING_PLAYED, speed, focusRequests, envId: event.envId, isOpening: true };
    }
    case 'described':
      return { ...state, environment: event.environment, policy: event.environment.references[0]?.name };
    case 'opened':
      return { ...state, isOpening: false };
    case 'refused':
      return { ...state, openProblem: event.problem };
    case 'starting over':
      return { ...state, openProblem: undefined };
    case 'begun': {
      const { episode } = event;
      return { ...state, environment: episode.environment, episode, isGone: false, problem: undefined };
    }
    case 'changed':
      return { ...state, episode: event.episode, problem: undefined };
    case 'remembered':
      return state.episode?.moves === event.episode.moves ? { ...state, episode: event.episode } : state;
    case 'failed':
      return { ...state, problem: event.problem, isGone: state.isGone || event.isGone };
    case 'closed':
      return { ...state, episode: undefined, isOpening: false, waiting: [], isPolicyPlaying: false };
    case 'queued':
      return { ...state, waiting: [...state.waiting, event.action] };
    case 'taken':
      return { ...state, waiting: state.waiting.slice(1) };
    case 'dropped':
      return state.waiting.length === 0 ? state : { ...state, waiting: [] };
    case 'slow':
      return state.isSlow === event.isSlow ? state : { ...state, isSlow: event.isSlow };
    case 'policy': {
      const { type: _type, ...choice } = event;
      return { ...state, ...choice };
    }
    case 'focus':
      return { ...state, focusRequests: state.focusRequests + 1 };
  }
}

/** Waiting actions that the page names. */
const MAX_NAMED = 8;

/** Names the waiting actions, or says that the server takes long; empty where nothing waits. */
export function pendingText({ environment, waiting, isSlow }: PlayState): string {
  const names = waiting.slice(0, MAX_NAMED).map(action => {
    const named = environment ? namedAction(environment, action) : action;
    return typeof named === 'string' ? named : JSON.stringify(named);
  });
  if (names.length === 0) return isSlow ? 'Waiting for the server …' : '';
  const more = waiting.length - names.length;
  return `Next: ${names.join(', ')}${more > 0 ? ` and ${more} more` : ''}`;
}

/** Most characters of actions in the address, with which a reload replays them; longer episodes begin again. */
const MAX_ADDRESS_LENGTH = 4000;

/** The start of an episode, and the actions since, as far as an address can hold them. */
export function playStartOf({ environment, setup, session, moves }: EpisodeState): PlayStart {
  const { preset, ...config } = setup.config;
  const past = {
    actions: moves.map(({ action }) => action),
    ...(session.reseeds && { reseeds: session.reseeds }),
  };
  return {
    envId: environment.env_id,
    preset: preset as string | undefined,
    seed: session.seed ?? undefined,
    config,
    wrappers: setup.wrappers as unknown as Json[],
    options: setup.options,
    format: setup.format === DEFAULT_SETUP.format ? undefined : setup.format,
    ...(session.dynamics_seed !== undefined && { dynamicsSeed: session.dynamics_seed }),
    ...(JSON.stringify(past).length <= MAX_ADDRESS_LENGTH ? past : { actions: [] }),
  };
}
