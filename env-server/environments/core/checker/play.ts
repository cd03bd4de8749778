import { setImmediate as othersFirst } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import type { Json, JsonObject } from '../../../../shared/json.ts';
import { Random } from '../../../../shared/random.ts';
import { counted } from '../../../../shared/text.ts';
import type { AnyEnvironment, Transition } from '../environment.ts';

/** True if a value survives a round trip through JSON. */
export function isPlainJson(value: unknown): boolean {
  const text = JSON.stringify(value);
  return text !== undefined && isDeepStrictEqual(unsigned(JSON.parse(text)), unsigned(value));
}

/** True if two values are the same JSON. */
export function sameJson(a: unknown, b: unknown): boolean {
  const left = JSON.stringify(a);
  const right = JSON.stringify(b);
  return (
    left === right ||
    (left !== undefined && right !== undefined && isDeepStrictEqual(JSON.parse(left), JSON.parse(right)))
  );
}

export function throughJson<T>(value: T): T {
  return JSON.parse(JSON.stringify(value)) as T;
}

/** Freezes a value and all its parts. */
export function deepFreeze<T>(value: T): T {
  if (typeof value === 'object' && value !== null && !Object.isFrozen(value)) {
    Object.freeze(value);
    for (const part of Object.values(value)) deepFreeze(part);
  }
  return value;
}

/** A short text of a value for a message. */
export function shown(value: unknown): string {
  const text = JSON.stringify(value) ?? String(value);
  return text.length > MAX_SHOWN_LENGTH ? `${text.slice(0, MAX_SHOWN_LENGTH)}…` : text;
}

const MAX_SHOWN_LENGTH = 120;

/** −0 as 0, because JSON has only one zero. */
function unsigned(value: unknown): unknown {
  if (typeof value === 'number') return value === 0 ? 0 : value;
  if (Array.isArray(value)) return value.map(unsigned);
  if (typeof value !== 'object' || value === null || Object.getPrototypeOf(value) !== Object.prototype)
    return value;
  return Object.fromEntries(Object.entries(value).map(([key, part]) => [key, unsigned(part)]));
}

/** Share of actions taken from reference policies, which may be slow. */
const POLICY_SHARE = 0.1;
const LONG_TEXT = 'x'.repeat(3000);

/** Values that are never actions, or nearly are. */
const JUNK: readonly Json[] = [
  '',
  ' ',
  '\u0000',
  'hello',
  '(((((((((1',
  'search[',
  '<answer>Up</answer>',
  '__proto__',
  'constructor',
  '🧊🧊',
  LONG_TEXT,
  -1,
  0,
  1.5,
  1e308,
  -0,
  true,
  null,
  [],
  {},
  [1, [2, [3]]],
  { action: 'Up' },
  { length: 3 },
];

export function junkAction(rng: Random): Json {
  return rng.chance(0.8) ? rng.choice(JUNK) : randomText(rng);
}

function randomText(rng: Random): string {
  const length = rng.integer(40);
  return String.fromCharCode(
    ...Array.from({ length }, () => (rng.chance(0.9) ? 32 + rng.integer(95) : rng.integer(65_536))),
  );
}

/** A probably valid action: a listed one, one of the space, or a reference policy's. */
export async function sensibleAction(environment: AnyEnvironment, state: Json, rng: Random): Promise<Json> {
  const { spec, references = {} } = environment;
  const policies = Object.values(references);
  if (policies.length > 0 && rng.chance(POLICY_SHARE)) {
    const [planned] = await rng.choice(policies).plan(state, 1, rng);
    if (planned !== undefined) return planned;
  }
  const listed = environment.validActions?.(state);
  if (listed && listed.length > 0) return rng.choice(listed);
  const space = spec.actionSpace;
  if (space.type === 'Discrete') {
    const index = rng.integer(space.n);
    return space.names && rng.chance(0.5) ? space.names[index] : (space.start ?? 0) + index;
  }
  const [planned] = (await references.random?.plan(state, 1, rng)) ?? [];
  return planned ?? spec.exampleAction;
}

/** Steps of a replay among other episodes. */
const RIVAL_STEPS = 6;

export interface EpisodeSettings {
  readonly config: JsonObject;
  readonly options: JsonObject;
  readonly seed: number;
  readonly steps: number;
  /** Time by `performance.now` after which no step begins. Default: no limit. */
  readonly until?: number;
  /** Replays the first steps once more, with other episodes at the same time. */
  readonly rivals?: boolean;
}

/** True if states are complete, so a state can be stepped from twice. */
export function isCopyable(environment: AnyEnvironment): boolean {
  return environment.dispose === undefined;
}

/**
 * Part of a state that two plays of an episode must share: the whole state, or the observation where the state names
 * something outside.
 */
function shownState(environment: AnyEnvironment, state: Json): Json {
  return isCopyable(environment)
    ? state
    : [environment.observe(state, 'text'), environment.observe(state, 'structured')];
}

/** An episode as it was first played. */
interface PlayedEpisode {
  readonly start: Json;
  readonly actions: readonly Json[];
  readonly results: readonly Transition<Json>[];
}

/**
 * Repeats the actions from the seed. False where the episode came out differently.
 * @param rivals before each step another episode begins and takes a step
 */
export async function checkReplay(
  environment: AnyEnvironment,
  settings: EpisodeSettings,
  { start, actions, results }: PlayedEpisode,
  findings: Findings,
  rivals = false,
): Promise<boolean> {
  const { config, options, seed, until = Number.POSITIVE_INFINITY } = settings;
  const rng = Random.fromSeed(seed);
  let state = await environment.reset(config, rng, options);
  try {
    const shownStart = shownState(environment, start);
    const shownAgain = shownState(environment, state);
    if (!sameJson(shownAgain, shownStart)) {
      findings.add(
        'determinism',
        `seed ${seed} began with ${shown(shownStart)} and then with ${shown(shownAgain)}`,
      );
      return false;
    }
    for (const [index, action] of actions.slice(0, rivals ? RIVAL_STEPS : undefined).entries()) {
      if (performance.now() >= until) return true;
      await othersFirst();
      if (rivals) await playRival(environment, settings, index + 1, action);
      const result = await environment.step(state, action, rng);
      state = result.state;
      const [now, before] = [result, results[index]].map(transition => ({
        ...transition,
        state: shownState(environment, transition.state),
      }));
      if (!sameJson(now, before)) {
        const when = rivals
          ? `when other episodes were played at the same time: ${OWN_STATE}`
          : 'the second time';
        findings.add('determinism', `step ${index + 1} (${shown(action)}) came out differently ${when}`);
        return false;
      }
    }
    return true;
  } finally {
    await environment.dispose?.(state);
  }
}

const OWN_STATE =
  'keep what an episode needs in its state (a service: under its session_id), not in variables that all episodes share';

/** Begins another episode and takes one step. Its faults are ignored: they show where such an episode is checked. */
async function playRival(
  environment: AnyEnvironment,
  { config, options, seed }: EpisodeSettings,
  number: number,
  action: Json,
): Promise<void> {
  const rng = Random.fromSeed(seed + number);
  try {
    let state = await environment.reset(config, rng, options);
    try {
      state = (await environment.step(state, action, rng)).state;
    } finally {
      await environment.dispose?.(state);
    }
  } catch {}
}

/** Rules of the checker, in report order. */
export const RULES = {
  spec: 'the specification is complete and its defaults, presets and example action are valid',
  description: 'the description says what to do and how to act, under every configuration',
  no_exceptions: 'reset, step and observe never throw, for any action',
  plain_state: 'states and infos are plain JSON',
  immutability: 'a step never alters the state it was given',
  observation_space: 'observations are of the right type and within the observation space',
  action_space: 'actions of the space are taken, others are called invalid and change nothing',
  valid_actions: 'the actions that are listed as valid are',
  reward_range: 'rewards are finite and within the range that the specification names',
  info: 'every step reports success, action_is_valid and action_is_effective',
  determinism: 'the same seed and actions give the same episode',
  snapshot: 'a state that went through JSON, with its generator, has the same future',
  global_randomness: 'no clock and no random numbers but those of the generator handed over',
  references: 'reference policies plan actions that the environment takes',
  rendering: 'pictures have as many bytes as their size asks for',
} as const;

export type Rule = keyof typeof RULES;

interface Finding {
  readonly rule: Rule;
  readonly message: string;
  /** Configuration, seed and step of the finding, where they matter. */
  readonly where?: string;
}

export interface CheckReport {
  readonly env_id: string;
  readonly passed: boolean;
  /** Number of configurations and episodes played. */
  readonly configurations: number;
  readonly episodes: number;
  readonly steps: number;
  /** A few for each rule. */
  readonly findings: Finding[];
  /** Oddities that may be intended; they fail no rule. */
  readonly warnings?: string[];
}

/** Most findings kept for each rule. */
const MAX_FINDINGS_PER_RULE = 3;
const MAX_WARNINGS = 3;

/** Findings in order of arrival. */
export class Findings {
  readonly list: Finding[] = [];
  readonly #warnings = new Set<string>();
  #where = '';

  /** Sets the place of the following findings. */
  at(where: string): void {
    this.#where = where;
  }

  get warnings(): string[] {
    return [...this.#warnings];
  }

  /** Records an oddity that may be intended and fails no rule. */
  warn(message: string): void {
    if (this.#warnings.size < MAX_WARNINGS) this.#warnings.add(message);
  }

  add(rule: Rule, message: string): void {
    const known = this.list.filter(finding => finding.rule === rule);
    if (known.length >= MAX_FINDINGS_PER_RULE || known.some(finding => finding.message === message)) return;
    this.list.push({ rule, message, ...(this.#where && { where: this.#where }) });
  }
}

/** The report for people: one line a rule, with its findings below. */
export function formatReport(report: CheckReport): string {
  const lines = [
    `${report.env_id}: ${report.passed ? 'passed' : 'FAILED'} (${counted(report.configurations, 'configuration')}, ${counted(report.episodes, 'episode')}, ${counted(report.steps, 'step')})`,
  ];
  for (const [rule, title] of Object.entries(RULES)) {
    const findings = report.findings.filter(finding => finding.rule === rule);
    lines.push(`  ${findings.length === 0 ? 'ok  ' : 'FAIL'} ${rule}: ${title}`);
    for (const { message, where } of findings) lines.push(`         ${message}${where ? ` (${where})` : ''}`);
  }
  for (const warning of report.warnings ?? []) lines.push(`  hint ${warning}`);
  return lines.join('\n');
}
