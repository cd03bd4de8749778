import { Random } from '../../../shared/random.ts';

/**
 * Source text that runs inside the sandbox. `Random` is the very class of the server, so a script draws what any
 * other environment would draw from the same state. Functions that are given as text here must not use anything
 * from this module.
 */
export const PRELUDE = `'use strict';
const TWO_POW_32 = ${2 ** 32};
${Random.toString()}
(${bridge.toString()})(Random);`;

/** Gives the functions that a script has declared, so that `const step = …` counts as well as `function step`. */
export const EXPORTS = `({
  reset: typeof reset === 'function' ? reset : undefined,
  step: typeof step === 'function' ? step : undefined,
  observe: typeof observe === 'function' ? observe : undefined,
  validActions: typeof validActions === 'function' ? validActions : undefined,
})`;

/** Functions that a script must declare. */
export const REQUIRED_FUNCTIONS = ['reset', 'step', 'observe'] as const;

interface Script {
  reset(config: unknown, rng: Random, options: unknown): unknown;
  step(state: unknown, action: unknown, rng: Random): unknown;
  observe(state: unknown): unknown;
  validActions?(state: unknown): unknown;
}

/**
 * Makes the function that the host calls with a request as JSON. It answers with the script's state as JSON, a line
 * break, and the rest as JSON: the state is handed back as it is, so the host need not look into it.
 */
function bridge(random: typeof Random): unknown {
  const { parse, stringify } = JSON;
  const promise = Promise;
  const unavailable = (name: string, instead: string) =>
    // An arrow function could not be called with `new`.
    function unavailable(): never {
      throw new Error(`${name} is not available: ${instead}`);
    };
  Math.random = unavailable('Math.random', 'draw from rng') as typeof Math.random;
  globalThis.Date = unavailable(
    'Date',
    'an episode must not depend on the clock',
  ) as unknown as DateConstructor;
  // Clocks, and objects that show when memory is collected or when the engine runs its queue.
  for (const name of ['performance', 'queueMicrotask', 'WeakRef', 'FinalizationRegistry', 'Atomics']) {
    Reflect.deleteProperty(globalThis, name);
  }

  const text = (what: string, value: unknown): string => {
    if (value instanceof promise)
      throw new Error(`${what} is a promise; scripts answer at once, without async`);
    const json = stringify(value);
    if (json === undefined) throw new Error(`${what} is ${typeof value}, not plain JSON`);
    return json;
  };

  return (script: Script, request: string): string => {
    const { op, config, options, state, action, rng: drawn } = parse(request);
    const rng = random.fromState(drawn);
    let after: unknown;
    let result: { [key: string]: unknown } = {};
    if (op === 'reset') {
      after = script.reset(config, rng, options);
    } else {
      const returned = script.step(state, action, rng);
      if (typeof returned !== 'object' || returned === null || !('state' in returned)) {
        throw new Error('step must return { state, reward, terminated }');
      }
      const { state: next, reward, terminated, truncated, info } = returned as { [key: string]: unknown };
      after = next;
      result = { reward, terminated, truncated, info };
    }
    const json = text(`the state that ${op} gives`, after);
    // The script sees what a restored state would show it: JSON may have left something out.
    const plain = parse(json);
    result.seen = script.observe(plain);
    if (script.validActions) result.valid = script.validActions(parse(json));
    result.rng = rng.state;
    return `${json}\n${text('the result', result)}`;
  };
}
