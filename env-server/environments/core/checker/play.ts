import { isDeepStrictEqual } from 'node:util';
import type { Json } from '../../../../shared/json.ts';
import type { Random } from '../../../../shared/random.ts';
import type { AnyEnvironment } from '../environment.ts';

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
