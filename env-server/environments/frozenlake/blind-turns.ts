import type { Sliced } from '../core/slices.ts';
import { backedUp } from './backup.ts';
import { ACTIONS, isOver, type Lake } from './rules.ts';

/** Longer sequences add next to nothing: after three unseen moves the player hardly knows where it stands. */
const MAX_SEQUENCE_LENGTH = 3;

/** Just under 1, so that of two equally safe ways the one with fewer turns wins; of those, the shorter sequence. */
const DISCOUNT = 1 - 1e-6;

/** Values that change less than this with one more turn have settled. */
const SETTLED = 1e-12;
/** Turns computed before others have their turn on the event loop: some milliseconds on a large lake. */
const TURNS_AT_A_TIME = 4;

interface Turn {
  /** Chance to reach the goal from every cell. */
  readonly values: Float64Array;
  /** The directions of the best turn from every cell; none where the episode is over. */
  readonly choices: readonly (readonly number[])[];
  /** One more turn makes no difference. */
  readonly settled: boolean;
}

/** Turns of a lake by most actions a turn, from the last one on. */
const turnsOf = new WeakMap<Lake, Map<number, Turn[]>>();

/**
 * The best actions of a turn that are carried out without looking in between, when `turns` turns of at most `count`
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
