import type { Branch, Tables } from './tables.ts';

/** Just under 1, so that of two equally good ways the shorter one wins. */
const DISCOUNT = 1 - 1e-9;
/** Outcomes that value iteration may look at in all: some ten milliseconds. */
const WORK = 4_000_000;
const SETTLED = 1e-12;
const NOTHING_TO_DO = -1;

/** What to do to earn the most within the steps that are left. */
export interface Plan {
  /** The best action; −1 where nothing can be done. */
  best(state: number, stepsToGo: number): number;
  /** Chance that an episode of so many steps ends in a success when it is followed. */
  readonly success: number;
}

/**
 * Value iteration over a finite horizon. Stops early where the values settle or the work becomes too much; with
 * more steps to go than stages the last stage decides.
 */
export function planFor(tables: Tables, horizon: number): Plan {
  const { states } = tables;
  const mostStages = Math.max(1, Math.min(horizon, Math.floor(WORK / Math.max(1, tables.outcomes))));
  const stages: Int16Array[] = [];
  let values = new Float64Array(states.length);
  let successes = Float64Array.from(states, state => (state.success ? 1 : 0));
  for (let stage = 0; stage < mostStages; stage++) {
    const nextValues = new Float64Array(states.length);
    const nextSuccesses = new Float64Array(states.length);
    const best = new Int16Array(states.length).fill(NOTHING_TO_DO);
    let moved = 0;
    states.forEach(({ valid, branches }, index) => {
      if (valid.length === 0) {
        nextSuccesses[index] = successes[index];
        return;
      }
      let most = Number.NEGATIVE_INFINITY;
      for (const action of valid) {
        const value = expected(branches[action] as Branch, values);
        if (value > most) {
          most = value;
          best[index] = action;
        }
      }
      nextValues[index] = most * DISCOUNT;
      const { to, probability } = branches[best[index]] as Branch;
      let success = 0;
      for (let i = 0; i < to.length; i++) success += probability[i] * successes[to[i]];
      nextSuccesses[index] = success;
      moved = Math.max(
        moved,
        Math.abs(nextValues[index] - values[index]),
        Math.abs(success - successes[index]),
      );
    });
    stages.push(best);
    values = nextValues;
    successes = nextSuccesses;
    if (moved < SETTLED) break;
  }
  const { start } = tables;
  let success = 0;
  start.states.forEach((state, index) => {
    success += start.probability[index] * successes[state];
  });
  return {
    best: (state, stepsToGo) => stages[Math.min(Math.max(stepsToGo, 1), stages.length) - 1][state],
    success: Math.min(1, success),
  };
}

function expected({ to, probability, reward }: Branch, values: Float64Array): number {
  let value = 0;
  for (let i = 0; i < to.length; i++) value += probability[i] * (reward[i] + values[to[i]]);
  return value;
}
