import type { Random } from '../../../shared/random.ts';
import { randomPolicy } from '../actions.ts';
import type { ReferencePolicy } from '../environment.ts';
import { bestTurn } from './blind-turns.ts';
import {
  ACTIONS,
  DIRECTIONS,
  type FrozenLakeState,
  isOver,
  type Lake,
  neighbour,
  slipRate,
} from './rules.ts';

/** Just under 1, so that of two equally safe ways the shorter one wins. */
const DISCOUNT = 1 - 1e-6;

/** Values that change less than this with one more step have settled. */
const SETTLED = 1e-12;

interface Stages {
  /** The value of every cell with 0, 1, 2… steps to go, as far as they have been needed. */
  readonly values: Float64Array[];
  settled: boolean;
}

const stagesOf = new WeakMap<Lake, Stages>();

/**
 * The chance to reach the goal from every cell when `stepsToGo` steps are left and each is the best one:
 * value iteration over a finite horizon, until the values have settled.
 */
export function values(lake: Lake, stepsToGo: number): Float64Array {
  let stages = stagesOf.get(lake);
  if (!stages) {
    const last = new Float64Array(lake.rows * lake.cols);
    last[lake.goal] = 1;
    stages = { values: [last], settled: false };
    stagesOf.set(lake, stages);
  }
  while (!stages.settled && stages.values.length <= stepsToGo) {
    const before = stages.values[stages.values.length - 1];
    let change = 0;
    const after = before.map((value, cell) => {
      if (isOver(lake, cell)) return value;
      const better = Math.max(...actionValues(lake, before, cell)) * DISCOUNT;
      change = Math.max(change, Math.abs(better - value));
      return better;
    });
    stages.values.push(after);
    stages.settled = change < SETTLED;
  }
  return stages.values[Math.min(stepsToGo, stages.values.length - 1)];
}

function actionValues(lake: Lake, after: Float64Array, cell: number): number[] {
  const slip = slipRate(lake);
  const reached = [0, 1, 2, 3].map(direction => after[neighbour(lake, cell, direction)]);
  return reached.map(
    (value, direction) =>
      lake.success_rate * value +
      slip * (reached[(direction + 3) % DIRECTIONS] + reached[(direction + 1) % DIRECTIONS]),
  );
}

/** The best direction with `stepsToGo` ≥ 1 steps left; the lowest id among equals. */
export function bestDirection(lake: Lake, position: number, stepsToGo: number): number {
  const choices = actionValues(lake, values(lake, stepsToGo - 1), position);
  return choices.indexOf(Math.max(...choices));
}

export const optimal = {
  title: 'Value iteration with the slip probabilities and the steps or turns left',
  plan({ lake, position, steps }: FrozenLakeState, count: number, _rng?: Random, turns?: number) {
    if (turns !== undefined && turns < lake.max_steps) {
      return bestTurn(lake, position, Math.min(count, lake.max_steps - steps), turns);
    }
    const actions: string[] = [];
    let at = position;
    for (let taken = steps; actions.length < count && taken < lake.max_steps && !isOver(lake, at); taken++) {
      const direction = bestDirection(lake, at, lake.max_steps - taken);
      actions.push(ACTIONS.names[direction]);
      at = neighbour(lake, at, direction);
    }
    return actions;
  },
} satisfies ReferencePolicy<FrozenLakeState>;

export const random = randomPolicy<FrozenLakeState>(ACTIONS);
