import type { Json, JsonObject } from '../../../shared/json.ts';
import type { AnyEnvironment, ObservationFormat } from '../../environments/core/environment.ts';
import { withParts } from '../../environments/core/parts.ts';
import { resolveConfig, resolveOptions, stepLimit } from '../../environments/core/settings.ts';
import { Problem } from '../../problems.ts';
import { type WrapperChoice, wrap } from '../../wrappers/wrap.ts';
import type { ByteAccount } from '../limits/budgets.ts';
import { sizeOf } from '../limits/size.ts';
import { type ActionCheck, actionCheck } from './action-check.ts';
import type { EnvironmentCounters } from './environment-counters.ts';

/** Bytes of a variant without its configuration: its parts and its check of actions. */
const VARIANT_BYTES = 4096;
const NO_OPTIONS: JsonObject = Object.freeze({});

/** An environment under one effective configuration and wrappers: what all its sessions share. */
export class Variant {
  /** The environment without wrappers. */
  readonly base: AnyEnvironment;
  readonly environment: AnyEnvironment;
  readonly config: JsonObject;
  readonly wrappers: readonly WrapperChoice[];
  readonly counters: EnvironmentCounters;
  /** Steps after which a session truncates the episode. */
  readonly maxSteps: number;
  /** The session goes on after the end of an episode. */
  readonly autoReset: boolean;
  readonly formats: ObservationFormat[];
  readonly seedable: boolean;
  /** States hold everything, so they can be remembered, copied and replayed. */
  readonly copyable: boolean;
  /** An episode can go on with a fresh stream of chance. */
  readonly reseedable: boolean;
  readonly checkAction: ActionCheck;
  /** Estimated memory, in bytes. */
  readonly bytes: number;
  /** Sessions that are open under it. */
  #sessions = 0;
  /** The account that pays for its memory: that of the client who opened the first of these sessions. */
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

  /** Steps after which an episode in this state is cut. */
  stepsOf(state: Json): number {
    return Math.min(this.maxSteps, this.environment.episodeSteps?.(state) ?? this.maxSteps);
  }

  /** @throws Problem `unsupported` where states do not hold everything */
  requireCopyable(): void {
    if (this.copyable) return;
    throw new Problem(
      'unsupported',
      `${this.environment.spec.id} holds more than its state and cannot be copied`,
    );
  }

  /** Bytes that a session of this client would need besides itself. */
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
   * Lets the environment release what it holds outside a state. Nobody waits for it: what the environment throws, at once
   * or later, is counted as its fault.
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
