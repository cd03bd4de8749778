import { Problem } from '../../problems.ts';
import { background, scheduler } from '../../scheduling/fair-scheduler.ts';
import { Slots } from '../../scheduling/slots.ts';
import { randomPolicy } from '../core/actions.ts';
import type { ReferencePolicy } from '../core/environment.ts';
import { inScheduledSlices } from '../core/slices.ts';
import { ACTIONS, isSolved, move, type Room, type SokobanState } from './rules.ts';
import { SearchTooLarge, solve } from './solver.ts';

/** Number of states with a kept answer per room; the map is cleared when a room needs more. */
const MAX_CACHED_STATES = 4096;
const DEAD = -1;
const TOO_LARGE = -2;
/** Memory of a search that nothing waits for. */
const SMALL_BYTES = 2 ** 20;
/** Memory of a search that is larger: a million states of twenty boxes. */
const LARGE_BYTES = 64 * 2 ** 20;
/** Large searches under way, of all clients together; clients take turns with those that wait. */
const largeSearches = new Slots({ most: 2 });

/** Best direction in the states met so far, by room. */
const directionsOf = new WeakMap<Room, Map<string, number>>();

/**
 * The first move of a shortest solution; `undefined` when solved, −1 when there is no solution.
 * @throws Problem `unsupported` for a room that is too large to be solved
 */
async function bestDirection(state: SokobanState): Promise<number | undefined> {
  if (isSolved(state)) return undefined;
  let known = directionsOf.get(state.room);
  if (!known || known.size > MAX_CACHED_STATES) {
    known = new Map();
    directionsOf.set(state.room, known);
  }
  const cached = known.get(keyOf(state));
  if (cached === TOO_LARGE) throw tooLarge();
  if (cached !== undefined) return cached;
  let solution: number[] | undefined;
  try {
    solution = await solutionOf(state);
  } catch (error) {
    if (!(error instanceof SearchTooLarge)) throw error;
    known.set(keyOf(state), TOO_LARGE);
    throw tooLarge(error);
  }
  let at = state;
  for (const direction of solution ?? []) {
    known.set(keyOf(at), direction);
    at = move(at, direction);
  }
  if (!solution) known.set(keyOf(state), DEAD);
  return known.get(keyOf(state));
}

/** Searches that turn out large begin again when their turn has come. @throws SearchTooLarge */
async function solutionOf({ room, player, boxes }: SokobanState): Promise<number[] | undefined> {
  const lane = scheduler.current ?? background;
  try {
    return await inScheduledSlices(solve(room, player, boxes, { bytes: SMALL_BYTES }));
  } catch (error) {
    if (!(error instanceof SearchTooLarge)) throw error;
  }
  const turn = largeSearches.group(lane.client);
  await turn.take();
  try {
    return await inScheduledSlices(solve(room, player, boxes, { bytes: LARGE_BYTES }), lane);
  } finally {
    turn.release();
  }
}

function tooLarge(cause?: SearchTooLarge): Problem {
  const limit = `${LARGE_BYTES / 2 ** 20} MiB`;
  return new Problem(
    'unsupported',
    `optimal does not solve this room: its search takes more than ${limit}; ask for it in smaller rooms or with fewer boxes`,
    { cause },
  );
}

function keyOf({ player, boxes }: SokobanState): string {
  return `${player} ${boxes.join(' ')}`;
}

export const optimal = {
  title: 'A shortest solution by breadth-first search; no actions once a box is stuck for good',
  async plan(state: SokobanState, count: number) {
    const actions: string[] = [];
    let at = state;
    while (actions.length < count) {
      const direction = await bestDirection(at);
      if (direction === undefined || direction === DEAD) break;
      actions.push(ACTIONS.names[direction]);
      at = move(at, direction);
    }
    return actions;
  },
} satisfies ReferencePolicy<SokobanState>;

export const random = randomPolicy<SokobanState>(ACTIONS);
