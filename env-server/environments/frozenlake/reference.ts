import type { Random } from '../../../shared/random.ts';
import { remembered } from '../../../shared/remembered.ts';
import type { Sliced } from '../../../shared/slices.ts';
import { randomPolicy } from '../core/actions.ts';
import type { ReferencePolicy } from '../core/environment.ts';
import { inScheduledSlices } from '../core/slices.ts';
import { ACTIONS, DIRECTIONS, type FrozenLakeState, isOver, type Lake, neighbor, slipRate } from './rules.ts';

/** Just under 1, so that the shorter of two equally safe ways wins. */
const DISCOUNT = 1 - 1e-6;
/** Values that change by less in one more step have converged. */
const SETTLED = 1e-12;

const reachedOf = new WeakMap<Lake, Int32Array>();

/** Destination of each direction from each cell where the episode continues, four numbers a cell. */
function reached(lake: Lake): Int32Array {
  return remembered(reachedOf, lake, () =>
    Int32Array.from({ length: DIRECTIONS * lake.rows * lake.cols }, (_, at) => {
      const cell = Math.floor(at / DIRECTIONS);
      return isOver(lake, cell) ? cell : neighbor(lake, cell, at % DIRECTIONS);
    }),
  );
}

/**
 * The value of a move in one direction from every cell.
 * @param after the value of every cell after the move
 */
function backedUp(lake: Lake, after: Float64Array, direction: number): Float64Array {
  const cells = reached(lake);
  const rate = lake.success_rate;
  const slip = slipRate(lake);
  const left = (direction + 3) % DIRECTIONS;
  const right = (direction + 1) % DIRECTIONS;
  const before = new Float64Array(after.length);
  for (let cell = 0; cell < before.length; cell++) {
    const at = DIRECTIONS * cell;
    before[cell] = isOver(lake, cell)
      ? after[cell]
      : rate * after[cells[at + direction]] + slip * (after[cells[at + left]] + after[cells[at + right]]);
  }
  return before;
}

/** Longer sequences add almost nothing: after three unseen moves the position is very uncertain. */
const MAX_SEQUENCE_LENGTH = 3;

/** Turns computed before other work gets its turn on the event loop: a few milliseconds on a large lake. */
const TURNS_AT_A_TIME = 4;

interface Turn {
  /** Probability of reaching the goal from every cell. */
  readonly values: Float64Array;
  /** Directions of the best turn from every cell; none where the episode is over. */
  readonly choices: readonly (readonly number[])[];
  /** True if one more turn makes no difference. */
  readonly settled: boolean;
}

/** Turns of a lake by maximum actions a turn, from the last turn backwards. */
const turnsOf = new WeakMap<Lake, Map<number, Turn[]>>();

/**
 * The best actions for one turn, carried out without observations in between, when `turns` turns of at most `count`
 * actions are left: value iteration over whole turns, exact for up to three actions.
 * @returns action names, empty on the goal; undefined where no turns of up to three actions reach the goal
 */
export function* bestTurn(
  lake: Lake,
  position: number,
  count: number,
  turns: number,
): Sliced<string[] | undefined> {
  const longest = Math.min(count, MAX_SEQUENCE_LENGTH);
  const ofLake = turnsOf.get(lake) ?? new Map<number, Turn[]>();
  turnsOf.set(lake, ofLake);
  const known = ofLake.get(longest) ?? [];
  ofLake.set(longest, known);
  while (known.length < turns && !known.at(-1)?.settled) {
    known.push(turnBefore(lake, known.at(-1)?.values ?? ends(lake), longest));
    if (known.length % TURNS_AT_A_TIME === 0) yield;
  }
  const { values, choices } = known[Math.min(turns, known.length) - 1];
  if (values[position] === 0) return undefined;
  return choices[position].map(direction => ACTIONS.names[direction]);
}

/** No turns left: 1 on the goal, 0 elsewhere. */
function ends(lake: Lake): Float64Array {
  const values = new Float64Array(lake.rows * lake.cols);
  values[lake.goal] = 1;
  return values;
}

interface Sequence {
  readonly directions: readonly number[];
  /** Expected return from every cell. */
  readonly values: Float64Array;
}

function turnBefore(lake: Lake, after: Float64Array, longest: number): Turn {
  const best = new Float64Array(after.length).fill(-1);
  const choices: (readonly number[])[] = Array.from(after, () => []);
  let sequences: Sequence[] = [{ directions: [], values: after }];
  for (let length = 1; length <= longest; length++) {
    sequences = [0, 1, 2, 3].flatMap(first =>
      sequences.map(({ directions, values }) => ({
        directions: [first, ...directions],
        values: backedUp(lake, values, first),
      })),
    );
    for (const { directions, values } of sequences) {
      for (let cell = 0; cell < best.length; cell++) {
        if (values[cell] * DISCOUNT <= best[cell]) continue;
        best[cell] = values[cell] * DISCOUNT;
        choices[cell] = directions;
      }
    }
  }
  let change = 0;
  for (let cell = 0; cell < best.length; cell++) {
    if (isOver(lake, cell)) {
      best[cell] = after[cell];
      choices[cell] = [];
    }
    change = Math.max(change, Math.abs(best[cell] - after[cell]));
  }
  return { values: best, choices, settled: change < SETTLED };
}

/** Horizon beyond which more steps make no difference worth the time. */
const MAX_STAGES = 1000;
/** Stages computed before other work gets its turn on the event loop: a few milliseconds on a large lake. */
const STAGES_AT_A_TIME = 20;

const DIRECTION_IDS = [0, 1, 2, 3];

interface Stages {
  /** The value of every cell with 0, 1, 2… steps to go, extended as needed. */
  readonly values: Float64Array[];
  settled: boolean;
}

const stagesOf = new WeakMap<Lake, Stages>();

/**
 * The probability of reaching the goal from every cell in `stepsToGo` optimal steps: value iteration over a finite
 * horizon, until the values converge.
 */
function* values(lake: Lake, stepsToGo: number): Sliced<Float64Array> {
  const stages = remembered(stagesOf, lake, () => {
    const last = new Float64Array(lake.rows * lake.cols);
    last[lake.goal] = 1;
    return { values: [last], settled: false };
  });
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

/** The best direction with `stepsToGo` ≥ 1 steps left; the lowest id on a tie. */
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
 * The best turn when few turns are left. Where turns of three moves are too short to reach the goal it continues as if
 * no move slipped: exact on lakes without slipping.
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
