import type { Json } from '../../../../shared/json.ts';
import type { Random } from '../../../../shared/random.ts';
import type { AnyEnvironment } from '../environment.ts';

/** Share of actions taken from reference policies, which may think for long. */
const POLICY_SHARE = 0.1;
const LONG_TEXT = 'x'.repeat(3000);

/** Things that are no action anywhere, and things that nearly are one. */
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

/** An action that the environment probably takes: a listed one, one of the space, or a reference policy's. */
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
