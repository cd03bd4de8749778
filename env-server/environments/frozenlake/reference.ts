import { randomPolicy } from '../actions.ts';
import type { ReferencePolicy } from '../environment.ts';
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

/** Of each lake: the value of every cell with 0, 1, 2… steps to go, as far as they have been needed. */
const valuesOf = new WeakMap<Lake, Float64Array[]>();

/**
 * The chance to reach the goal from every cell when `stepsToGo` steps are left and each is the best one:
 * value iteration over a finite horizon.
 */
export function values(lake: Lake, stepsToGo: number): Float64Array {
  let stages = valuesOf.get(lake);
  if (!stages) {
    const last = new Float64Array(lake.rows * lake.cols);
    last[lake.goal] = 1;
    stages = [last];
    valuesOf.set(lake, stages);
  }
  while (stages.length <= stepsToGo) {
    const before = stages[stages.length - 1];
    stages.push(
      before.map((value, cell) =>
        isOver(lake, cell) ? value : Math.max(...actionValues(lake, before, cell)) * DISCOUNT,
      ),
    );
  }
  return stages[stepsToGo];
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
  title: 'Value iteration with the slip probabilities and the steps left until max_steps',
  plan({ lake, position, steps }: FrozenLakeState, count: number) {
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
