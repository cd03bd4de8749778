import { randomPolicy } from '../core/actions.ts';
import type { ReferencePolicy } from '../core/environment.ts';
import { inScheduledSlices } from '../core/slices.ts';
import { ACTIONS, isSolved, move, type Room, type SokobanState } from './rules.ts';
import { solve } from './solver.ts';

/** States whose answer is kept for each room; a room played at length starts over beyond it. */
const MAX_CACHED_STATES = 4096;
const DEAD = -1;

/** Of each room: the best direction of the states met so far. */
const directionsOf = new WeakMap<Room, Map<string, number>>();

/** The first move of a shortest solution; `undefined` when solved, −1 when there is no solution. */
async function bestDirection(state: SokobanState): Promise<number | undefined> {
  if (isSolved(state)) return undefined;
  let known = directionsOf.get(state.room);
  if (!known || known.size > MAX_CACHED_STATES) {
    known = new Map();
    directionsOf.set(state.room, known);
  }
  const cached = known.get(keyOf(state));
  if (cached !== undefined) return cached;
  const solution = await inScheduledSlices(solve(state.room, state.player, state.boxes));
  let at = state;
  for (const direction of solution ?? []) {
    known.set(keyOf(at), direction);
    at = move(at, direction);
  }
  if (!solution) known.set(keyOf(state), DEAD);
  return known.get(keyOf(state));
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
