import type { Static, TObject } from 'typebox';
import type { Json, JsonObject } from '../../shared/json.ts';
import type { Random } from '../../shared/random.ts';
import type {
  AnyEnvironment,
  EnvironmentSpec,
  ObservationFormat,
  ReferencePolicy,
  StepInfo,
  Transition,
} from '../environments/core/environment.ts';
import { chain, type MaybePromise } from '../environments/core/maybe-promise.ts';

/** Turns an environment into another one. */
export interface Wrapper {
  readonly name: string;
  /** One sentence: what it changes. */
  readonly title: string;
  readonly optionsSchema: TObject;
  /**
   * @param options checked against `optionsSchema`, defaults filled in
   * @throws UnfitWrapper when the environment cannot be wrapped so
   */
  wrap(environment: AnyEnvironment, options: JsonObject): AnyEnvironment;
}

/** A wrapper with the type of its options, which the schema gives. */
export function wrapper<S extends TObject>(
  parts: Omit<Wrapper, 'wrap' | 'optionsSchema'> & {
    readonly optionsSchema: S;
    wrap(environment: AnyEnvironment, options: Static<S>): AnyEnvironment;
  },
): Wrapper {
  return parts as unknown as Wrapper;
}

/** The wrapper does not fit the environment, or its options do not. `pointer` is a JSON pointer into the options. */
export class UnfitWrapper extends Error {
  readonly pointer: string;
  constructor(pointer: string, message: string) {
    super(message);
    this.name = 'UnfitWrapper';
    this.pointer = pointer;
  }
}

/** The same environment, save for what is given; its states stay as they are. */
export function altered(environment: AnyEnvironment, changes: Partial<AnyEnvironment>): AnyEnvironment {
  return { ...forwarding(environment, state => state), ...changes };
}

/** A layer's own part of the state next to the state of the environment that it wraps. */
export type NestedState<Own> = Own & { readonly inner: Json };

export interface NestedParts<Own> {
  readonly spec?: Partial<EnvironmentSpec>;
  /** The layer's own part of the first state of an episode. */
  begin(config: JsonObject, options: JsonObject): Own;
  /** The same for an episode that a wrapped `auto_reset` begins; absent where no part of it depends on the episode. */
  again?(state: NestedState<Own>): Own;
  step(state: NestedState<Own>, action: Json, rng: Random): MaybePromise<Transition<NestedState<Own>>>;
  readonly describe?: AnyEnvironment['describe'];
  observe?(state: NestedState<Own>, format: ObservationFormat): Json;
  readonly observationSpaces?: AnyEnvironment['observationSpaces'];
  readonly references?: { readonly [name: string]: ReferencePolicy<Json> };
  /** Another list of valid actions, from a state of the wrapped environment; null takes the list away. */
  readonly validActions?: ((inner: Json) => readonly Json[]) | null;
}

/** An environment around another one, with a state that holds the inner one's; snapshots and clones go through it. */
export function nested<Own extends JsonObject>(
  environment: AnyEnvironment,
  parts: NestedParts<Own>,
): AnyEnvironment {
  const base = forwarding(environment, state => (state as NestedState<Own>).inner);
  const { observe, validActions } = parts;
  return {
    ...base,
    ...(parts.spec && { spec: { ...environment.spec, ...parts.spec } }),
    // Tools are for the actions of the wrapped environment.
    ...(parts.spec?.actionSpace && { tools: undefined }),
    ...(parts.describe && { describe: parts.describe }),
    ...(parts.observationSpaces && { observationSpaces: parts.observationSpaces }),
    ...(parts.references && { references: parts.references }),
    ...(validActions === null && { validActions: undefined }),
    ...(validActions && { validActions: state => validActions((state as NestedState<Own>).inner) }),
    ...(observe && { observe: (state, format) => observe(state as NestedState<Own>, format) }),
    reset: (config, rng, options) =>
      chain(environment.reset(config, rng, options), inner => ({ ...parts.begin(config, options), inner })),
    step: (state, action, rng) =>
      chain(parts.step(state as NestedState<Own>, action, rng), transition =>
        transition.restarted && parts.again
          ? { ...transition, state: { ...parts.again(transition.state), inner: transition.state.inner } }
          : transition,
      ) as MaybePromise<Transition<Json>>,
  };
}

/** Arguments of the reset that began an episode. */
export type ResetArguments = { readonly config: JsonObject; readonly options: JsonObject };

/** Ends an episode with a transition and begins the next one; the last observation and info go into the new info. */
export function restart(
  environment: AnyEnvironment,
  { state, reward, terminated, truncated, info }: Transition<Json>,
  { config, options }: ResetArguments,
  rng: Random,
): MaybePromise<Transition<Json>> {
  const last = environment.observe(state, 'text');
  return chain(environment.dispose?.(state), () =>
    chain(environment.reset(config, rng, options), next => ({
      state: next,
      reward,
      terminated,
      truncated,
      info: { ...info, final_observation: last, final_info: info },
      restarted: true,
    })),
  );
}

/** All members of an environment as functions of a layer's state, found in a larger one by `unwrap`. */
function forwarding(environment: AnyEnvironment, unwrap: (state: Json) => Json): AnyEnvironment {
  const { references } = environment;
  return {
    spec: environment.spec,
    describe: config => environment.describe(config),
    reset: (config, rng, options) => environment.reset(config, rng, options),
    step: (state, action, rng) => environment.step(unwrap(state), action, rng),
    observe: (state, format) => environment.observe(unwrap(state), format),
    ...(environment.episodeSteps && { episodeSteps: state => environment.episodeSteps!(unwrap(state)) }),
    ...(environment.levelKey && { levelKey: state => environment.levelKey!(unwrap(state)) }),
    ...(environment.observationSpaces && {
      observationSpaces: config => environment.observationSpaces!(config),
    }),
    ...(environment.checkConfig && { checkConfig: config => environment.checkConfig?.(config) }),
    ...(environment.validActions && {
      validActions: state => environment.validActions?.(unwrap(state)) ?? [],
    }),
    ...(environment.tools && { tools: environment.tools }),
    ...(environment.render && { render: state => environment.render!(unwrap(state)) }),
    ...(environment.condition && { condition: () => environment.condition!() }),
    ...(environment.playFor && { playFor: (owner, play) => environment.playFor!(owner, play) }),
    ...(environment.dispose && { dispose: state => environment.dispose?.(unwrap(state)) }),
    ...(references && {
      references: Object.fromEntries(
        Object.entries(references).map(([name, policy]) => [
          name,
          {
            title: policy.title,
            plan: (state: Json, count: number, rng: Random, turns?: number) =>
              policy.plan(unwrap(state), count, rng, turns),
          },
        ]),
      ),
    }),
  };
}

/**
 * `reward` after a change that keeps the order of rewards, for step results and for the spec alike.
 * @param isLinear the named parts in `info.rewards` are changed, too, so that they still add up to the reward
 */
export function withReward(
  environment: AnyEnvironment,
  change: (reward: number) => number,
  isLinear = false,
): AnyEnvironment {
  const [least, most] = environment.spec.rewardRange;
  const { rewardThreshold: _threshold, ...spec } = environment.spec;
  const bounds = [change(least), change(most)];
  return altered(environment, {
    spec: { ...spec, rewardRange: [Math.min(...bounds), Math.max(...bounds)] },
    step: (state, action, rng) =>
      chain(environment.step(state, action, rng), transition => ({
        ...transition,
        reward: change(transition.reward),
        info: isLinear ? withParts(transition.info, change) : transition.info,
      })),
  });
}

/** `info` with its named rewards changed; itself where it has none. */
function withParts(info: StepInfo, change: (reward: number) => number): StepInfo {
  if (info.rewards === undefined) return info;
  const parts = Object.entries(info.rewards as { readonly [name: string]: number });
  return { ...info, rewards: Object.fromEntries(parts.map(([name, part]) => [name, change(part)])) };
}

/** The names of a discrete action space, or ids as text where it has none; undefined for other spaces. */
function actionNames(environment: AnyEnvironment): readonly string[] | undefined {
  const space = environment.spec.actionSpace;
  if (space.type !== 'Discrete') return undefined;
  return space.names ?? Array.from({ length: space.n }, (_, i) => String((space.start ?? 0) + i));
}

/** An action as a player would write it: JSON but for the names of a discrete space and texts. */
export function writtenAction(environment: AnyEnvironment, action: Json): string {
  const space = environment.spec.actionSpace;
  if (space.type === 'Discrete' && typeof action === 'number') {
    return space.names?.[action - (space.start ?? 0)] ?? String(action);
  }
  const isPlain = space.type === 'Discrete' || space.type === 'Text';
  return typeof action === 'string' && isPlain ? action : JSON.stringify(action);
}

/**
 * The actions that are valid now, as a player would write them: all names of a discrete space where no more is known;
 * undefined for an environment that cannot list them.
 */
export function writtenValidActions(
  environment: AnyEnvironment,
): ((state: Json) => readonly string[]) | undefined {
  if (environment.validActions) {
    return state => environment.validActions?.(state).map(action => writtenAction(environment, action)) ?? [];
  }
  const names = actionNames(environment);
  return names && (() => names);
}

/** Description of an environment with one more sentence in the instruction. */
export function describeWith(environment: AnyEnvironment, sentence: string): AnyEnvironment['describe'] {
  return config => {
    const description = environment.describe(config);
    return { ...description, instruction: `${description.instruction} ${sentence}` };
  };
}
