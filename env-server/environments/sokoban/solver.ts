import type { Sliced } from '../core/slices.ts';
import type { SearchBudget } from './reverse.ts';
import { DIRECTIONS, isWall, neighbor, type Room, TARGET } from './rules.ts';
import { KnownStates } from './states.ts';

/** States looked at before others have their turn on the event loop: some milliseconds. */
const STATES_AT_A_TIME = 500;

type RoomGround = Pick<Room, 'rows' | 'cols' | 'cells' | 'targets'>;

export interface SearchLimits {
  /** Longest solution that is looked for. */
  readonly moves?: number;
  /** Charged with the states visited; the search ends without a solution where none are left. */
  readonly budget?: SearchBudget;
  /** Memory of the states visited. */
  readonly bytes: number;
}

/** The search would take more memory than it may: whether there is a solution is not known. */
export class SearchTooLarge extends Error {
  constructor(bytes: number) {
    super(`the search for a shortest solution needs more than ${bytes / 2 ** 20} MiB`);
    this.name = 'SearchTooLarge';
  }
}

/**
 * A shortest solution by breadth-first search: directions 0 Up, 1 Down, 2 Left, 3 Right; empty when the room is solved
 * already.
 * @returns undefined when there is none, or none within the moves and the budget
 * @throws SearchTooLarge
 */
export function* solve(
  room: RoomGround,
  player: number,
  boxes: readonly number[],
  { moves: mostMoves = Number.POSITIVE_INFINITY, budget, bytes }: SearchLimits,
): Sliced<number[] | undefined> {
  const { next: neighbors, isTarget, alive } = groundOf(room);
  let onTarget = boxes.reduce((count, box) => count + isTarget[box], 0);
  if (onTarget === room.targets) return [];
  const mayStrand = boxes.length > room.targets;
  const isBox = new Uint8Array(room.cells.length);
  const known = new KnownStates(room.cells.length, boxes.length, bytes);
  const state = known.scratch;
  state[0] = player;
  state.set(boxes, 1);
  if (!known.add(-1)) throw new SearchTooLarge(bytes);
  let at = 0;
  for (let moves = 1; at < known.count && moves <= mostMoves; moves++) {
    const end = known.count;
    for (; at < end; at++) {
      if (at % STATES_AT_A_TIME === STATES_AT_A_TIME - 1) yield;
      known.read(at);
      const from = state[0];
      onTarget = 0;
      for (let i = 1; i < state.length; i++) {
        isBox[state[i]] = 1;
        onTarget += isTarget[state[i]];
      }
      for (let direction = 0; direction < DIRECTIONS; direction++) {
        const to = neighbors[from * DIRECTIONS + direction];
        if (to < 0) continue;
        const beyond = isBox[to] === 1 ? neighbors[to * DIRECTIONS + direction] : to;
        if (beyond !== to && (beyond < 0 || isBox[beyond] === 1 || !(mayStrand || alive[beyond]))) continue;
        state[0] = to;
        if (beyond !== to) moveBox(state, to, beyond);
        const added = known.add(at);
        if (!added) throw new SearchTooLarge(bytes);
        const isSolved = beyond !== to && onTarget - isTarget[to] + isTarget[beyond] === room.targets;
        if (isSolved) return path(known, neighbors);
        if (beyond !== to) moveBox(state, beyond, to);
      }
      for (let i = 1; i < state.length; i++) isBox[state[i]] = 0;
    }
    if (budget) {
      budget.states -= known.count - end;
      if (budget.states < 0) return undefined;
    }
  }
  return undefined;
}

/** Puts a box elsewhere in a state: the player, then the boxes, ascending. */
function moveBox(state: Uint16Array | Uint32Array, from: number, to: number): void {
  let at = state.indexOf(from, 1);
  for (; at > 1 && state[at - 1] > to; at--) state[at] = state[at - 1];
  for (; at < state.length - 1 && state[at + 1] < to; at++) state[at] = state[at + 1];
  state[at] = to;
}

/** The directions that lead to the state added last. */
function path(known: KnownStates, neighbors: Int32Array): number[] {
  const directions: number[] = [];
  let at = known.count - 1;
  for (let to = known.playerOf(at), parent = known.parentOf(at); parent >= 0; parent = known.parentOf(at)) {
    const from = known.playerOf(parent);
    directions.push(neighbors.subarray(from * DIRECTIONS, (from + 1) * DIRECTIONS).indexOf(to));
    at = parent;
    to = from;
  }
  return directions.reverse();
}

interface Ground {
  /** By cell and direction: the next cell, or −1 where there is a wall or the board ends. */
  readonly next: Int32Array;
  readonly isTarget: Uint8Array;
  /** 1 where a box alone in the room could still be pushed to some target. */
  readonly alive: Uint8Array;
}

const grounds = new WeakMap<RoomGround, Ground>();

function groundOf(room: RoomGround): Ground {
  const cached = grounds.get(room);
  if (cached) return cached;
  const { length } = room.cells;
  const next = new Int32Array(length * DIRECTIONS);
  const isTarget = new Uint8Array(length);
  for (let cell = 0; cell < length; cell++) {
    isTarget[cell] = Number(room.cells[cell] === TARGET);
    for (let direction = 0; direction < DIRECTIONS; direction++) {
      const to = neighbor(room, cell, direction);
      next[cell * DIRECTIONS + direction] = isWall(room, to) ? -1 : to;
    }
  }
  const ground = { next, isTarget, alive: liveCells(next, isTarget) };
  grounds.set(room, ground);
  return ground;
}

function liveCells(next: Int32Array, isTarget: Uint8Array): Uint8Array {
  const alive = isTarget.slice();
  const frontier = [...isTarget.keys()].filter(cell => isTarget[cell] === 1);
  while (frontier.length > 0) {
    const cell = frontier.pop()!;
    for (let direction = 0; direction < DIRECTIONS; direction++) {
      const from = next[cell * DIRECTIONS + direction];
      if (from < 0 || alive[from] || next[from * DIRECTIONS + direction] < 0) continue;
      alive[from] = 1;
      frontier.push(from);
    }
  }
  return alive;
}
