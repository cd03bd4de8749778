import { faultsOf } from '../../../shared/faults.ts';
import { isObject, type Json, type JsonObject } from '../../../shared/json.ts';
import { RecentMap, remembered } from '../../../shared/remembered.ts';
import { compiled } from '../../../shared/schema/check.ts';
import { withParts } from '../../environments/core/drawing/png.ts';
import {
  type AnyEnvironment,
  InvalidConfig,
  InvalidOptions,
  type ObservationFormat,
  type StepInfo,
  type Transition,
  withTimeLimit,
} from '../../environments/core/environment.ts';
import type { MaybePromise } from '../../environments/core/maybe-promise.ts';
import { resolveConfig, resolveOptions, stepLimit } from '../../environments/core/settings.ts';
import { jsonSchema, type Space } from '../../environments/core/spaces.ts';
import type { Registry } from '../../environments/registry.ts';
import { Problem } from '../../problems.ts';
import { type WrapperChoice, wrap } from '../../wrappers/wrap.ts';
import { type ByteAccount, sizeOf } from '../limits/budgets.ts';

/** Bytes of a variant without its configuration: its parts and its action check. */
const VARIANT_BYTES = 4096;
const MAX_MESSAGE_LENGTH = 500;
const NO_OPTIONS: JsonObject = Object.freeze({});

/** An environment with one effective configuration and wrappers, shared by all its sessions. */
export class Variant {
  /** The environment without wrappers. */
  readonly base: AnyEnvironment;
  readonly environment: AnyEnvironment;
  readonly config: JsonObject;
  readonly wrappers: readonly WrapperChoice[];
  readonly counters: EnvironmentCounters;
  /** Steps after which a session truncates the episode. */
  readonly maxSteps: number;
  /** True if the session continues after the end of an episode. */
  readonly autoReset: boolean;
  readonly formats: ObservationFormat[];
  readonly seedable: boolean;
  /** True if states are complete, so that they can be stored, copied and replayed. */
  readonly copyable: boolean;
  /** True if an episode can continue with a new random stream. */
  readonly reseedable: boolean;
  readonly checkAction: ActionCheck;
  /** Estimated memory, in bytes. */
  readonly bytes: number;
  /** Number of its open sessions. */
  #sessions = 0;
  /** The account charged for its memory: the client that opened the first of these sessions. */
  #account: ByteAccount | undefined;
  #defaultOptions: JsonObject | undefined;

  /** @throws InvalidConfig, Problem for an unknown wrapper */
  constructor(
    base: AnyEnvironment,
    config: JsonObject,
    wrappers: readonly WrapperChoice[],
    counters: EnvironmentCounters,
  ) {
    this.base = base;
    this.environment = withParts(wrap(base, wrappers));
    this.config = resolveConfig(this.environment, config);
    this.wrappers = wrappers;
    this.counters = counters;
    const { spec } = this.environment;
    this.maxSteps = stepLimit(spec, this.config);
    this.autoReset = spec.autoReset === true;
    this.formats = [
      ...new Set<ObservationFormat>(['text', ...spec.observationFormats, 'structured', 'parts']),
    ];
    this.seedable = spec.seedable !== false;
    this.copyable = this.environment.dispose === undefined;
    this.reseedable = this.seedable && this.copyable;
    this.checkAction = actionCheck(spec.actionSpace);
    this.bytes = VARIANT_BYTES + sizeOf(config) + sizeOf(this.config) + sizeOf(wrappers);
  }

  /** Steps after which an episode in this state is truncated. */
  stepsOf(state: Json): number {
    return Math.min(this.maxSteps, this.environment.episodeSteps?.(state) ?? this.maxSteps);
  }

  /** `truncated` and `info` of a step; the session's step limit is one of the reasons for an end. */
  limited(
    { terminated, truncated = false, info }: Pick<Transition<Json>, 'terminated' | 'truncated' | 'info'>,
    step: number,
  ): { readonly truncated: boolean; readonly info: StepInfo } {
    if (terminated || truncated || this.autoReset || step < this.maxSteps) return { truncated, info };
    return { truncated: true, info: withTimeLimit(info) };
  }

  /** @throws Problem `unsupported` where states are incomplete */
  requireCopyable(): void {
    if (this.copyable) return;
    throw new Problem(
      'unsupported',
      `${this.environment.spec.id} holds more than its state and cannot be copied`,
    );
  }

  /** Bytes that opening a session of this client would add besides the session itself. */
  get openingBytes(): number {
    return this.#account ? 0 : this.bytes;
  }

  /** A session is opened under it. */
  opened(account: ByteAccount): void {
    this.#sessions++;
    if (this.#account) return;
    this.#account = account;
    account.add(this.bytes);
  }

  /** One of its sessions ended. */
  ended(): void {
    if (--this.#sessions > 0) return;
    this.#account?.add(-this.bytes);
    this.#account = undefined;
  }

  /**
   * Lets the environment release what it holds outside a state. Nobody waits for it; anything the environment throws,
   * at once or later, is counted as its fault.
   */
  releaseState(state: Json): void {
    if (this.copyable) return;
    const release = async () => this.environment.dispose!(state);
    release().catch(() => {
      this.counters.faults++;
    });
  }

  /** @throws InvalidOptions */
  options(given: JsonObject = NO_OPTIONS): JsonObject {
    if (Object.keys(given).length > 0) return resolveOptions(this.environment, given);
    this.#defaultOptions ??= resolveOptions(this.environment);
    return this.#defaultOptions;
  }
}

/**
 * An error of the environment as clients may see it: the first line of its message, never its stack. The cause is kept
 * for the log. Problems, and faults of the client's settings, are returned unchanged.
 * @param doing the operation, e.g. `at step 3`
 */
export function environmentFault(variant: Variant, doing: string, error: unknown): Error {
  if (error instanceof Problem || error instanceof InvalidConfig || error instanceof InvalidOptions)
    return error;
  const message = error instanceof Error ? error.message : String(error);
  const [line] = message.slice(0, MAX_MESSAGE_LENGTH).split('\n', 1);
  return new Problem('environment_fault', `${variant.environment.spec.id} failed ${doing}: ${line}`, {
    cause: error,
  });
}

/** Calls an environment for anything but a step, and counts its faults. */
export function guarded<T>(variant: Variant, doing: string, work: () => MaybePromise<T>): MaybePromise<T> {
  const refuse = (error: unknown): never => {
    const fault = environmentFault(variant, doing, error);
    if (fault !== error) variant.counters.faults++;
    throw fault;
  };
  try {
    const result = work();
    return result instanceof Promise ? result.catch(refuse) : result;
  } catch (error) {
    return refuse(error);
  }
}

/** The type fault of an action, or undefined. Whether a value of the right type is legal is up to the environment. */
export type ActionCheck = (action: Json) => string | undefined;

/** The compiled check of a space. */
export function actionCheck(space: Space): ActionCheck {
  switch (space.type) {
    case 'Discrete':
      return action =>
        typeof action === 'string' || typeof action === 'number'
          ? undefined
          : `the action must be an integer id or a name, got ${kind(action)}`;
    case 'Text':
      return action =>
        typeof action === 'string' ? undefined : `the action must be a string, got ${kind(action)}`;
    case 'Dict': {
      const checks = Object.entries(space.spaces).map(([name, inner]) => [name, actionCheck(inner)] as const);
      const names = new Set(checks.map(([name]) => name));
      return action => {
        if (!isObject(action)) {
          return `the action must be an object with ${[...names].join(', ')}, got ${kind(action)}`;
        }
        const fields = action as JsonObject;
        const unknown = Object.keys(fields).find(name => !names.has(name));
        if (unknown !== undefined) {
          return `the action has the unknown field "${unknown}"; it takes ${[...names].join(', ')}`;
        }
        for (const [name, check] of checks) {
          if (!Object.hasOwn(fields, name)) return `the action lacks the field "${name}"`;
          const fault = check(fields[name]);
          if (fault) return `field "${name}": ${fault}`;
        }
        return undefined;
      };
    }
    default: {
      const schema = jsonSchema(space);
      const { check, errors } = compiled(schema);
      return action => {
        if (check(action)) return undefined;
        const [{ pointer, message, key }] = faultsOf(schema, action, errors(action));
        return key ? `the action: ${message}` : `the action ${pointer || 'itself'} ${message}`;
      };
    }
  }
}

function kind(value: Json): string {
  if (value === null) return 'null';
  return Array.isArray(value) ? 'an array' : `a value of type ${typeof value}`;
}

/** Upper bounds of the latency buckets, in seconds. */
export const LATENCY_BOUNDS_S = [
  0.000_005, 0.000_01, 0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025,
  0.05, 0.1, 0.25, 1, 5,
] as const;

/** Counts of durations by bucket; the last bucket is unbounded. */
export class LatencyHistogram {
  readonly counts = new Float64Array(LATENCY_BOUNDS_S.length + 1);
  sum = 0;

  record(seconds: number): void {
    let bucket = 0;
    while (bucket < LATENCY_BOUNDS_S.length && seconds > LATENCY_BOUNDS_S[bucket]) bucket++;
    this.counts[bucket]++;
    this.sum += seconds;
  }
}

/** Counters of one environment id, over all configurations. */
export class EnvironmentCounters {
  readonly envId: string;
  sessions = 0;
  episodes = 0;
  faults = 0;
  readonly latencies = new Map<string, LatencyHistogram>();

  constructor(envId: string) {
    this.envId = envId;
  }

  record(operation: string, seconds: number): void {
    let histogram = this.latencies.get(operation);
    if (!histogram) {
      histogram = new LatencyHistogram();
      this.latencies.set(operation, histogram);
    }
    histogram.record(seconds);
  }
}

/** Variants kept for later sessions with the same settings; open sessions keep their own alive. */
const MAX_VARIANTS = 1000;
/** Longest description of a variant that is kept; larger ones are used once. */
const MAX_KEPT_LENGTH = 16 * 1024;

/** The registered environments and their variants, each made once. */
export class VariantCatalog {
  readonly #registry: Registry;
  readonly #variants = new RecentMap<string, Variant>(MAX_VARIANTS);
  readonly #counters = new Map<string, EnvironmentCounters>();

  constructor(registry: Registry) {
    this.#registry = registry;
  }

  /** @param after only those after this id in the order of the list */
  list(after?: string): readonly AnyEnvironment[] {
    return this.#registry.list(after);
  }

  /** True if this very environment is registered under its id, and has not been replaced. */
  offers(environment: AnyEnvironment): boolean {
    return this.#registry.find(environment.spec.id) === environment;
  }

  allCounters(): Iterable<EnvironmentCounters> {
    return this.#counters.values();
  }

  /** Number of open sessions of an environment, over all configurations. */
  sessionsOf(envId: string): number {
    return this.#counters.get(envId)?.sessions ?? 0;
  }

  /** @throws UnknownEnvironment, InvalidConfig, Problem for an unknown wrapper */
  variant(envId: string, config: JsonObject = {}, wrappers: readonly WrapperChoice[] = []): Variant {
    const base = this.#registry.get(envId);
    const key = JSON.stringify([envId, config, wrappers]);
    const known = this.#variants.get(key);
    if (known && known.base === base) return known;
    const variant = new Variant(base, config, wrappers, this.#countersOf(envId));
    if (key.length > MAX_KEPT_LENGTH) return variant;
    this.#variants.set(key, variant);
    return variant;
  }

  #countersOf(envId: string): EnvironmentCounters {
    return remembered(this.#counters, envId, () => new EnvironmentCounters(envId));
  }
}
