import type { Sliced } from '../core/slices.ts';
import type { SearchBudget } from './reverse.ts';
import { DIRECTIONS, isWall, neighbor, type Room, TARGET, WALL, withBoxMoved } from './rules.ts';

/** States a search visits before it gives up, where no budget is given. */
const MAX_STATES = 1_000_000;
/** States looked at before others have their turn on the event loop: some milliseconds. */
const STATES_AT_A_TIME = 500;

type RoomGround = Pick<Room, 'rows' | 'cols' | 'cells' | 'targets'>;

interface SearchNode {
  readonly player: number;
  readonly boxes: readonly number[];
  readonly parent: SearchNode | undefined;
  readonly direction: number;
}

/**
 * A shortest solution by breadth-first search: directions 0 Up, 1 Down, 2 Left, 3 Right; empty when
 * the room is solved already.
 * @returns undefined when there is none (or none within the budget, which is charged with the states visited)
 */
export function* solve(
  room: RoomGround,
  player: number,
  boxes: readonly number[],
  mostMoves = Number.POSITIVE_INFINITY,
  budget: SearchBudget = { states: MAX_STATES },
): Sliced<number[] | undefined> {
  const alive = liveCells(room);
  const solved = (cells: readonly number[]): boolean => {
    let count = 0;
    for (let i = 0; i < cells.length; i++) if (room.cells[cells[i]] === TARGET) count++;
    return count === room.targets;
  };
  if (solved(boxes)) return [];
  const spareBoxes = boxes.length - room.targets;
  const keyOf = stateKeys(room, boxes.length);
  const known = new Set<number | string>([keyOf(player, boxes)]);
  let frontier: SearchNode[] = [{ player, boxes, parent: undefined, direction: -1 }];
  for (let moves = 1; frontier.length > 0 && moves <= mostMoves; moves++) {
    const next: SearchNode[] = [];
    for (const [place, node] of frontier.entries()) {
      if (place % STATES_AT_A_TIME === STATES_AT_A_TIME - 1) yield;
      for (let direction = 0; direction < DIRECTIONS; direction++) {
        const at = neighbor(room, node.player, direction);
        if (isWall(room, at)) continue;
        let moved = node.boxes;
        const pushes = moved.includes(at);
        if (pushes) {
          const beyond = neighbor(room, at, direction);
          if (isWall(room, beyond) || moved.includes(beyond)) continue;
          if (spareBoxes <= 0 && !alive[beyond]) continue;
          moved = withBoxMoved(moved, at, beyond);
        }
        const size = known.size;
        if (known.add(keyOf(at, moved)).size === size) continue;
        const child = { player: at, boxes: moved, parent: node, direction };
        if (pushes && solved(moved)) return path(child);
        next.push(child);
      }
    }
    budget.states -= next.length;
    if (budget.states < 0) return undefined;
    frontier = next;
  }
  return undefined;
}

function path(end: SearchNode): number[] {
  const directions: number[] = [];
  for (let node = end; node.parent; node = node.parent) directions.push(node.direction);
  return directions.reverse();
}

const liveCellsOf = new WeakMap<RoomGround, Uint8Array>();

/** 1 where a box alone in the room could still be pushed to some target. */
export function liveCells(room: RoomGround): Uint8Array {
  const cached = liveCellsOf.get(room);
  if (cached) return cached;
  const alive = new Uint8Array(room.cells.length);
  const frontier: number[] = [];
  for (let cell = 0; cell < room.cells.length; cell++) {
    if (room.cells[cell] === TARGET) {
      alive[cell] = 1;
      frontier.push(cell);
    }
  }
  while (frontier.length > 0) {
    const cell = frontier.pop()!;
    for (let direction = 0; direction < DIRECTIONS; direction++) {
      const from = neighbor(room, cell, direction);
      if (isWall(room, from) || alive[from] || isWall(room, neighbor(room, from, direction))) continue;
      alive[from] = 1;
      frontier.push(from);
    }
  }
  liveCellsOf.set(room, alive);
  return alive;
}

/** One key for each player and set of boxes: a number while it is exact, a string beyond. */
function stateKeys(
  room: RoomGround,
  boxes: number,
): (player: number, boxes: readonly number[]) => number | string {
  const rank = new Int32Array(room.cells.length);
  let area = 0;
  for (let cell = 0; cell < room.cells.length; cell++) if (room.cells[cell] !== WALL) rank[cell] = area++;
  if (area ** (boxes + 1) > Number.MAX_SAFE_INTEGER) return (player, cells) => `${player} ${cells.join(' ')}`;
  return (player, cells) => {
    let key = rank[player];
    for (let i = 0; i < cells.length; i++) key = key * area + rank[cells[i]];
    return key;
  };
}
