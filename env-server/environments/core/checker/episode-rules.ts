import { webcrypto } from 'node:crypto';
import { setImmediate as othersFirst } from 'node:timers/promises';
import type { Json } from '../../../../shared/json.ts';
import { Random } from '../../../../shared/random.ts';
import {
  type AnyEnvironment,
  endsOf,
  type ObservationFormat,
  observationSpaces,
  type StepInfo,
  type Transition,
} from '../environment.ts';
import { charactersOf, type ObservationSpaces, type Space, whyOutside } from '../spaces.ts';
import type { Findings, Rule } from './play.ts';
import {
  checkReplay,
  deepFreeze,
  type EpisodeSettings,
  isCopyable,
  isPlainJson,
  junkAction,
  sameJson,
  sensibleAction,
  shown,
  throughJson,
} from './play.ts';

/** Clocks and random sources that an environment must not read, each as owner and method name. */
const FORBIDDEN: readonly (readonly [owner: object, name: string, title: string])[] = [
  [Math, 'random', 'Math.random'],
  [Date, 'now', 'Date.now'],
  [performance, 'now', 'performance.now'],
  [webcrypto, 'getRandomValues', 'crypto.getRandomValues'],
  [webcrypto, 'randomUUID', 'crypto.randomUUID'],
];

/**
 * Runs a function and returns the clocks and random sources it read. Reads after an asynchronous function's first wait
 * are not detected, because other code also runs then.
 */
function trapping<T>(run: () => T, onRead: (title: string) => void): T {
  const originals = FORBIDDEN.map(([owner, name]) => Object.getOwnPropertyDescriptor(owner, name));
  const OriginalDate = globalThis.Date;
  for (const [owner, name, title] of FORBIDDEN) {
    const original = (owner as Record<string, (...args: unknown[]) => unknown>)[name];
    Object.defineProperty(owner, name, {
      configurable: true,
      writable: true,
      value(...args: unknown[]) {
        onRead(title);
        return original.apply(owner, args);
      },
    });
  }
  globalThis.Date = new Proxy(OriginalDate, {
    construct(target, args, newTarget) {
      if (args.length === 0) onRead('new Date()');
      return Reflect.construct(target, args, newTarget);
    },
  });
  try {
    return run();
  } finally {
    globalThis.Date = OriginalDate;
    FORBIDDEN.forEach(([owner, name], index) => {
      const original = originals[index];
      if (original) Object.defineProperty(owner, name, original);
      else Reflect.deleteProperty(owner, name);
    });
  }
}

/** Shares of the actions played; the remaining ones come from the environment's own lists. */
const JUNK_SHARE = 0.15;
const REWARD_TOLERANCE = 1e-9;
const PLANNED_ACTIONS = 4;
const MAX_LISTED_TRIED = 4;

/** Plays one episode under observation, then replays it from its seed. Returns the number of steps. */
export async function checkEpisode(
  environment: AnyEnvironment,
  settings: EpisodeSettings,
  findings: Findings,
  where: string,
): Promise<number> {
  const watch = new Watch(environment, observationSpaces(environment, settings.config), findings);
  findings.at(`${where}, reset`);
  const rng = Random.fromSeed(settings.seed);
  const start = await watch.call(
    'no_exceptions',
    'reset',
    () => environment.reset(settings.config, rng, settings.options),
    'reset',
  );
  if (start === undefined) return 0;
  const pick = Random.fromSeed(settings.seed + 1);
  const { until = Number.POSITIVE_INFINITY } = settings;
  const copyable = isCopyable(environment);
  if (copyable) await watch.references(start, pick);
  const actions: Json[] = [];
  const results: Transition<Json>[] = [];
  let state = start;
  for (let step = 1; step <= settings.steps && performance.now() < until; step++) {
    await othersFirst();
    findings.at(`${where}, step ${step}`);
    watch.looks(state, step === 1);
    if (copyable) {
      await watch.listedActions(state, pick);
      await watch.unknownAction(state, pick);
    }
    const action = pick.chance(JUNK_SHARE)
      ? junkAction(pick)
      : await sensibleAction(environment, state, pick);
    const result = await watch.step(state, action, rng);
    if (!result) {
      await watch.call('no_exceptions', 'dispose', () => environment.dispose?.(state), 'dispose');
      return step;
    }
    actions.push(action);
    results.push(result);
    state = result.state;
    if (result.terminated || result.truncated) {
      checkEnd(environment, result.info, findings);
      break;
    }
  }
  findings.at(`${where}, last state`);
  watch.looks(state, true);
  findings.at(where);
  if (environment.spec.seedable !== false) {
    const played = { start, actions, results };
    const repeats = await checkReplay(environment, settings, played, findings);
    if (repeats && settings.rivals) await checkReplay(environment, settings, played, findings, true);
  }
  await watch.call('no_exceptions', 'dispose', () => environment.dispose?.(state), 'dispose');
  return actions.length;
}

/** Warns about an unnamed end, which nobody can count: Gymnasium environments name none. */
function checkEnd({ spec }: AnyEnvironment, { ended_by: end }: StepInfo, findings: Findings): void {
  const known = endsOf(spec);
  if (end === undefined) {
    findings.warn('a step that ends an episode has no info.ended_by, a short name of why it ended');
  } else if (typeof end !== 'string' || !Object.hasOwn(known, end)) {
    findings.warn(
      `info.ended_by is ${shown(end)}, which is not among the ends ${Object.keys(known).join(', ')}`,
    );
  }
}

/** An action as an environment may quote it. */
function echoes(action: Json): string {
  const written = typeof action === 'string' ? action : JSON.stringify(action);
  return written + written.toLowerCase() + written.toUpperCase();
}

/** Calls an environment and records the faults of its answers. */
class Watch {
  readonly #environment: AnyEnvironment;
  readonly #spaces: ObservationSpaces;
  /** Characters of the actions so far, which an environment may quote. */
  #given = '';
  readonly #findings: Findings;

  constructor(environment: AnyEnvironment, spaces: ObservationSpaces, findings: Findings) {
    this.#environment = environment;
    this.#spaces = spaces;
    this.#findings = findings;
  }

  /** Undefined when it threw. */
  async call<T>(
    rule: Rule,
    what: string,
    run: () => T | Promise<T>,
    method = 'step',
  ): Promise<T | undefined> {
    try {
      return await this.#trapped(method, run);
    } catch (error) {
      this.#findings.add(rule, `${what} threw ${error instanceof Error ? error.message : String(error)}`);
      return undefined;
    }
  }

  #trapped<T>(what: string, run: () => T): T {
    return trapping(run, title => this.#findings.add('global_randomness', `${what} read ${title}`));
  }

  /** Compares a step from a frozen state with one from a copy. */
  async step(state: Json, action: Json, rng: Random): Promise<Transition<Json> | undefined> {
    const copy = throughJson(state);
    const twin = Random.fromState(rng.state);
    deepFreeze(state);
    const environment = this.#environment;
    const what = `step with ${shown(action)}`;
    this.#given = charactersOf(this.#given, echoes(action));
    let result: Transition<Json> | undefined;
    try {
      result = await this.#trapped('step', () => environment.step(state, action, rng));
    } catch (error) {
      const message = `${what} threw ${error instanceof Error ? error.message : String(error)}`;
      const altering =
        error instanceof TypeError && /read only|not extensible|Cannot delete/.test(error.message);
      this.#findings.add(altering ? 'immutability' : 'no_exceptions', message);
      return undefined;
    }
    if (!sameJson(copy, state)) this.#findings.add('immutability', `${what} altered the state it was given`);
    this.#judge(what, result);
    if (!isCopyable(environment)) return result;
    const again = await this.call('snapshot', `${what}, from a copy,`, () =>
      environment.step(copy, action, twin),
    );
    if (again && !sameJson(again, result)) {
      this.#findings.add(
        'snapshot',
        `${what} came out differently from a copy of the state, which must hold all that an episode needs`,
      );
    }
    return result;
  }

  #judge(what: string, { state, reward, terminated, truncated, info }: Transition<Json>): void {
    const findings = this.#findings;
    const [least, most] = this.#environment.spec.rewardRange;
    if (!Number.isFinite(reward)) findings.add('reward_range', `${what} paid ${reward}`);
    else if (reward < least - REWARD_TOLERANCE || reward > most + REWARD_TOLERANCE) {
      findings.add('reward_range', `${what} paid ${reward}, outside [${least}, ${most}]`);
    }
    for (const key of ['success', 'action_is_valid', 'action_is_effective']) {
      if (typeof info?.[key] !== 'boolean')
        findings.add('info', `info.${key} is ${shown(info?.[key])}, no boolean`);
    }
    for (const [name, value] of Object.entries(info?.rewards ?? {})) {
      if (!Number.isFinite(value))
        findings.add('info', `info.rewards.${name} is ${shown(value)}, no finite number`);
    }
    if (typeof terminated !== 'boolean')
      findings.add('info', `terminated is ${shown(terminated)}, no boolean`);
    if (truncated !== undefined && typeof truncated !== 'boolean') {
      findings.add('info', `truncated is ${shown(truncated)}, no boolean`);
    }
    if (!isPlainJson(state)) findings.add('plain_state', `the state after ${what} is not plain JSON`);
    if (!isPlainJson(info)) findings.add('plain_state', `the info of ${what} is not plain JSON`);
  }

  /**
   * Checks every observation and the picture of a state.
   * @param packed true to check the picture inside an observation too, which takes longest
   */
  looks(state: Json, packed: boolean): void {
    const { spec, render } = this.#environment;
    if (!isPlainJson(state)) this.#findings.add('plain_state', `the state ${shown(state)} is not plain JSON`);
    for (const format of new Set([...spec.observationFormats, 'structured' as const])) {
      if (format === 'image' && !packed) continue;
      let seen: Json;
      try {
        seen = this.#trapped('observe', () => this.#environment.observe(state, format));
      } catch (error) {
        this.#findings.add('no_exceptions', `observe as ${format} threw ${(error as Error).message}`);
        continue;
      }
      const wrong = (message: string) =>
        this.#findings.add('observation_space', `the ${format} form ${message}`);
      const space = this.#spaceOf(format);
      if (!isPlainJson(seen) || (space.type === 'Json' && typeof seen !== 'object')) {
        wrong(`is not a JSON object: ${shown(seen)}`);
        continue;
      }
      const outside = whyOutside(space, seen, this.#given);
      if (outside !== undefined) wrong(outside);
    }
    if (!render) return;
    try {
      const { width, height, data } = this.#trapped('render', () => this.#environment.render!(state));
      const sizes = Number.isInteger(width) && width > 0 && Number.isInteger(height) && height > 0;
      if (!sizes || data.length !== 4 * width * height) {
        this.#findings.add('rendering', `a picture of ${width} × ${height} has ${data.length} bytes`);
      }
    } catch (error) {
      this.#findings.add('rendering', `render threw ${(error as Error).message}`);
    }
  }

  /** A wrapper may make the form `text` an object, and keep the other forms. */
  #spaceOf(format: ObservationFormat): Space {
    const { text, structured } = this.#spaces;
    if (format === 'structured') return structured;
    return format === 'text' || text.type === 'Text' ? text : this.#environment.spec.observationSpace;
  }

  /** Tries some of the actions listed as valid, each from the same state. */
  async listedActions(state: Json, pick: Random): Promise<void> {
    const listed = this.#environment.validActions?.(state);
    if (!listed) return;
    for (const action of pick.shuffle(listed).slice(0, MAX_LISTED_TRIED)) {
      const result = await this.call('valid_actions', `${shown(action)}, listed as valid,`, () =>
        this.#environment.step(state, action, Random.fromState(pick.state)),
      );
      if (result && result.info.action_is_valid !== true) {
        this.#findings.add('valid_actions', `${shown(action)} is listed as valid and called invalid`);
      }
    }
  }

  /** An action outside a discrete space is invalid and changes nothing. */
  async unknownAction(state: Json, pick: Random): Promise<void> {
    const space = this.#environment.spec.actionSpace;
    if (space.type !== 'Discrete') return;
    const start = space.start ?? 0;
    const action = pick.choice<Json>([start - 1, start + space.n, 0.5, 'no such action']);
    const result = await this.call('no_exceptions', `step with ${shown(action)}`, () =>
      this.#environment.step(state, action, Random.fromState(pick.state)),
    );
    if (!result) return;
    if (result.info.action_is_valid !== false) {
      this.#findings.add('action_space', `${shown(action)} is outside the space and not called invalid`);
    } else if (!sameJson(this.#seen(result.state), this.#seen(state)) && !this.#environment.spec.autoReset) {
      this.#findings.add('action_space', `${shown(action)} is invalid and changed the state`);
    }
  }

  /** The player's view of a state; wrappers may count attempts in their part of the state. */
  #seen(state: Json): Json {
    return this.#environment.observe(state, 'structured');
  }

  /**
   * Steps that reference policies plan from the start must be valid; random policies may try moves that are not
   * allowed.
   */
  async references(state: Json, pick: Random): Promise<void> {
    for (const [name, policy] of Object.entries(this.#environment.references ?? {})) {
      const planned = await this.call(
        'references',
        `${name}.plan`,
        () => policy.plan(state, PLANNED_ACTIONS, pick),
        'plan',
      );
      if (!planned) continue;
      if (planned.length > PLANNED_ACTIONS) {
        this.#findings.add(
          'references',
          `${name} planned ${planned.length} actions when asked for ${PLANNED_ACTIONS}`,
        );
      }
      if (planned.length === 0 || name === 'random') continue;
      const result = await this.call('references', `${shown(planned[0])}, planned by ${name},`, () =>
        this.#environment.step(state, planned[0], Random.fromState(pick.state)),
      );
      if (result && result.info.action_is_valid !== true) {
        this.#findings.add('references', `${name} planned ${shown(planned[0])}, which is called invalid`);
      }
    }
  }
}
