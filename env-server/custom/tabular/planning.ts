import type { Sliced } from '../../../shared/slices.ts';
import type { Tables } from './tables.ts';

/** Just under 1, so that of two equally good ways the shorter one wins. */
const DISCOUNT = 1 - 1e-9;
/** States and outcomes that value iteration may look at in all: some ten milliseconds. */
const WORK = 4_000_000;
/** Actions that a plan may hold: 2 MB. */
const MAX_PLAN = 1_000_000;
const SETTLED = 1e-12;
const NOTHING_TO_DO = -1;
/** States looked at between two yields. */
const SLICE = 1000;

/** Plan with the highest expected return in the remaining steps. */
export interface TabularPlan {
  /** The best action; −1 where nothing can be done. */
  best(state: number, stepsToGo: number): number;
  /** Chance that an episode of so many steps ends in a success when it is followed. */
  readonly success: number;
}

/**
 * Value iteration over a finite horizon. Stops early where the values settle or the work becomes too much; with
 * more steps to go than stages the last stage decides.
 */
export function* planFor(tables: Tables, horizon: number): Sliced<TabularPlan> {
  const { states, start } = tables;
  const mostStages = Math.max(1, Math.min(horizon, Math.floor(WORK / (states.length + tables.to.length))));
  const stages: Int16Array[] = [];
  let planned = 0;
  let values = new Float64Array(states.length);
  let successes = Float64Array.from(states, state => (state.success ? 1 : 0));
  while (stages.length < mostStages && planned + states.length <= Math.max(MAX_PLAN, states.length)) {
    const nextValues = new Float64Array(states.length);
    const nextSuccesses = new Float64Array(states.length);
    const best = new Int16Array(states.length).fill(NOTHING_TO_DO);
    const before = stages.at(-1);
    let moved = 0;
    let changed = before === undefined;
    for (let index = 0; index < states.length; index++) {
      if (index % SLICE === 0) yield;
      const { valid, firstBranch } = states[index];
      if (valid.length === 0) {
        nextSuccesses[index] = successes[index];
        continue;
      }
      let most = Number.NEGATIVE_INFINITY;
      let taken = firstBranch;
      for (let branch = firstBranch; branch < firstBranch + valid.length; branch++) {
        const value = expected(tables, branch, values);
        if (value > most) {
          most = value;
          taken = branch;
        }
      }
      best[index] = valid[taken - firstBranch];
      changed ||= before?.[index] !== best[index];
      nextValues[index] = most * DISCOUNT;
      const success = successOf(tables, taken, successes);
      nextSuccesses[index] = success;
      moved = Math.max(
        moved,
        Math.abs(nextValues[index] - values[index]),
        Math.abs(success - successes[index]),
      );
    }
    stages.push(changed || !before ? best : before);
    if (changed) planned += states.length;
    values = nextValues;
    successes = nextSuccesses;
    if (moved < SETTLED) break;
  }
  let success = 0;
  start.states.forEach((state, index) => {
    success += start.probability[index] * successes[state];
  });
  return {
    best: (state, stepsToGo) => stages[Math.min(Math.max(stepsToGo, 1), stages.length) - 1][state],
    success: Math.min(1, success),
  };
}

function expected({ from, to, probability, reward }: Tables, branch: number, values: Float64Array): number {
  let value = 0;
  for (let i = from[branch]; i < from[branch + 1]; i++) value += probability[i] * (reward[i] + values[to[i]]);
  return value;
}

function successOf({ from, to, probability }: Tables, branch: number, successes: Float64Array): number {
  let success = 0;
  for (let i = from[branch]; i < from[branch + 1]; i++) success += probability[i] * successes[to[i]];
  return success;
}
