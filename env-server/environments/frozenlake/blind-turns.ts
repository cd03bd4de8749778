import { ACTIONS, isOver, type Lake, outcomes } from './rules.ts';

/** Longer sequences add next to nothing: after three unseen moves the player hardly knows where it stands. */
const LONGEST_SEQUENCE = 3;

/** Just under 1, so that of two equally safe ways the one with fewer turns wins; of those, the shorter sequence. */
const DISCOUNT = 1 - 1e-6;

interface Turn {
  /** Chance to reach the goal from every cell. */
  readonly values: Float64Array;
  /** The directions of the best turn from every cell; none where the episode is over. */
  readonly choices: readonly (readonly number[])[];
}

/** Turns of a lake by most actions a turn, from the last one on. */
const turnsOf = new WeakMap<Lake, Map<number, Turn[]>>();

/**
 * The best actions of a turn that are carried out without looking in between, when `turns` turns of at most `count`
 * actions are left: value iteration over whole turns, exact for up to three actions.
 * @returns action names, empty where the episode is over
 */
export function bestTurn(lake: Lake, position: number, count: number, turns: number): string[] {
  const longest = Math.min(count, LONGEST_SEQUENCE);
  const ofLake = turnsOf.get(lake) ?? new Map<number, Turn[]>();
  turnsOf.set(lake, ofLake);
  const known = ofLake.get(longest) ?? [];
  ofLake.set(longest, known);
  while (known.length < turns) known.push(turnBefore(lake, known.at(-1)?.values ?? ends(lake), longest));
  return known[turns - 1].choices[position].map(direction => ACTIONS.names[direction]);
}

/** No turns left: 1 on the goal, 0 elsewhere. */
function ends(lake: Lake): Float64Array {
  const values = new Float64Array(lake.rows * lake.cols);
  values[lake.goal] = 1;
  return values;
}

function turnBefore(lake: Lake, after: Float64Array, longest: number): Turn {
  const values = after.slice();
  const choices: number[][] = [];
  for (let cell = 0; cell < after.length; cell++) {
    let best: { value: number; directions: number[] } = { value: -1, directions: [] };
    let sequences = isOver(lake, cell) ? [] : [{ directions: [] as number[], places: new Map([[cell, 1]]) }];
    for (let length = 1; length <= longest; length++) {
      sequences = sequences.flatMap(({ directions, places }) =>
        [0, 1, 2, 3].map(direction => ({
          directions: [...directions, direction],
          places: move(lake, places, direction),
        })),
      );
      for (const { directions, places } of sequences) {
        let value = 0;
        for (const [place, probability] of places) value += probability * after[place];
        if (value * DISCOUNT > best.value) best = { value: value * DISCOUNT, directions };
      }
    }
    if (!isOver(lake, cell)) values[cell] = best.value;
    choices.push(best.directions);
  }
  return { values, choices };
}

/** Where the player may stand after one more move, with probabilities; who has arrived or fallen in stays. */
function move(lake: Lake, places: ReadonlyMap<number, number>, direction: number): Map<number, number> {
  const moved = new Map<number, number>();
  for (const [place, share] of places) {
    for (const { probability, position } of outcomes(lake, place, direction)) {
      moved.set(position, (moved.get(position) ?? 0) + share * probability);
    }
  }
  return moved;
}
