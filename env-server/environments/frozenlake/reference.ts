import type { Random } from '../../../shared/random.ts';
import { randomPolicy } from '../core/actions.ts';
import type { ReferencePolicy } from '../core/environment.ts';
import { inScheduledSlices, type Sliced } from '../core/slices.ts';
import { backedUp } from './backup.ts';
import { bestTurn } from './blind-turns.ts';
import { ACTIONS, DIRECTIONS, type FrozenLakeState, isOver, type Lake, neighbor, slipRate } from './rules.ts';

/** Just under 1, so that of two equally safe ways the shorter one wins. */
const DISCOUNT = 1 - 1e-6;

/** Values that change less than this with one more step have settled. */
const SETTLED = 1e-12;

/** Steps to go beyond which more make no difference worth the time. */
const MAX_STAGES = 1000;
/** Stages computed before others have their turn on the event loop: some milliseconds on a large lake. */
const STAGES_AT_A_TIME = 20;

const DIRECTION_IDS = [0, 1, 2, 3];

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
function* values(lake: Lake, stepsToGo: number): Sliced<Float64Array> {
  let stages = stagesOf.get(lake);
  if (!stages) {
    const last = new Float64Array(lake.rows * lake.cols);
    last[lake.goal] = 1;
    stages = { values: [last], settled: false };
    stagesOf.set(lake, stages);
  }
  while (!stages.settled && stages.values.length <= stepsToGo && stages.values.length <= MAX_STAGES) {
    const before = stages.values[stages.values.length - 1];
    const after = before.slice();
    const choices = DIRECTION_IDS.map(direction => backedUp(lake, before, direction));
    let change = 0;
    for (let cell = 0; cell < after.length; cell++) {
      if (isOver(lake, cell)) continue;
      after[cell] = DISCOUNT * Math.max(...choices.map(choice => choice[cell]));
      change = Math.max(change, Math.abs(after[cell] - before[cell]));
    }
    stages.values.push(after);
    stages.settled = change < SETTLED;
    if (stages.values.length % STAGES_AT_A_TIME === 0) yield;
  }
  return stages.values[Math.min(stepsToGo, stages.values.length - 1)];
}

/** The best direction with `stepsToGo` ≥ 1 steps left; the lowest id among equals. */
function* bestDirection(lake: Lake, position: number, stepsToGo: number): Sliced<number> {
  const after = yield* values(lake, stepsToGo - 1);
  const slip = slipRate(lake);
  const reached = DIRECTION_IDS.map(direction => after[neighbor(lake, position, direction)]);
  const choices = reached.map(
    (value, direction) =>
      lake.success_rate * value +
      slip * (reached[(direction + 3) % DIRECTIONS] + reached[(direction + 1) % DIRECTIONS]),
  );
  return choices.indexOf(Math.max(...choices));
}

export const optimal = {
  title: 'Value iteration with the slip probabilities and the steps or turns left',
  plan(state: FrozenLakeState, count: number, _rng?: Random, turns?: number) {
    return inScheduledSlices(bestPlan(state, count, turns));
  },
} satisfies ReferencePolicy<FrozenLakeState>;

/**
 * The best turn where few turns are left. Where turns of three moves are too short for the way to the goal it continues as if no
 * move slipped: exact on lakes where none does.
 */
function* bestPlan(state: FrozenLakeState, count: number, turns?: number): Sliced<string[]> {
  const { lake, position, steps } = state;
  const turn =
    turns !== undefined && turns < lake.max_steps
      ? yield* bestTurn(lake, position, Math.min(count, lake.max_steps - steps), turns)
      : undefined;
  return turn ?? (yield* bestActions(state, count));
}

function* bestActions({ lake, position, steps }: FrozenLakeState, count: number): Sliced<string[]> {
  const actions: string[] = [];
  let at = position;
  for (let taken = steps; actions.length < count && taken < lake.max_steps && !isOver(lake, at); taken++) {
    const direction = yield* bestDirection(lake, at, lake.max_steps - taken);
    actions.push(ACTIONS.names[direction]);
    at = neighbor(lake, at, direction);
  }
  return actions;
}

export const random = randomPolicy<FrozenLakeState>(ACTIONS);
