/** States the search visits at most. */
const MOST_STATES = 300_000;

/** States that may still be visited, by all searches for one room together. */
export interface SearchBudget {
  states: number;
}
/** State spaces up to this size get a bitmap instead of a hash set. */
const MOST_BITMAP_STATES = 1 << 25;

const WALL = 0;
const FLOOR = 1;
const TARGET = 2;
const MOVED_BOX = 3;
const BOX = 4;

/** No box has been pulled yet. */
const NONE = -1;

export interface SolvedRoom {
  readonly rows: number;
  readonly cols: number;
  /** 1 on floor, targets included; the outermost ring is wall. */
  readonly floor: Uint8Array;
  readonly player: number;
  /** Each holds a box. */
  readonly targets: readonly number[];
  readonly searchDepth: number;
}

export interface PulledRoom {
  readonly player: number;
  readonly boxes: readonly number[];
  /** Σ Manhattan distance of the boxes from their targets. */
  readonly displacement: number;
}

/**
 * Plays a solved room backwards: a depth-first search over moves and pulls for the room of the highest
 * score, box swaps × Σ Manhattan distance, or 0 while a box or the player stands on a target
 * (gym-sokoban, `room_utils.py`). A swap is a pull of another box than the last one pulled.
 * @param budget is charged with the states visited
 * @returns undefined when no room scores above 0
 */
export function pullApart(room: SolvedRoom, budget: SearchBudget): PulledRoom | undefined {
  const { cols, floor, targets } = room;
  const deltas = [-cols, cols, -1, 1];
  const ground = floor.map((isFloor, cell) => (targets.includes(cell) ? TARGET : isFloor ? FLOOR : WALL));
  const cells = ground.slice();
  for (const target of targets) cells[target] = BOX;
  const boxes = targets.slice();
  const explored = exploredStates(floor, boxes, cells);
  /** Targets under a box. */
  let covered = targets.length;
  const isFree = (cell: number): boolean => cells[cell] === FLOOR || cells[cell] === TARGET;
  const isBox = (cell: number): boolean => cells[cell] === BOX || cells[cell] === MOVED_BOX;
  let best: PulledRoom | undefined;
  let bestScore = 0;

  const visit = (player: number, depthLeft: number, swaps: number, lastPulled: number): void => {
    if (depthLeft <= 1 || explored.size >= MOST_STATES || !explored.add(player)) return;
    if (covered === 0 && cells[player] !== TARGET) {
      const displacement = distance(boxes, targets, cols);
      if (swaps * displacement > bestScore) {
        bestScore = swaps * displacement;
        best = { player, boxes: boxes.slice(), displacement };
      }
    }
    for (const delta of deltas) {
      const next = player + delta;
      if (!isFree(next)) continue;
      const behind = player - delta;
      if (!isBox(behind)) {
        visit(next, depthLeft - 1, swaps, lastPulled);
        continue;
      }
      const occupant = cells[behind];
      const box = boxes.indexOf(behind);
      const change = (ground[player] === TARGET ? 1 : 0) - (ground[behind] === TARGET ? 1 : 0);
      boxes[box] = player;
      cells[player] = MOVED_BOX;
      cells[behind] = ground[behind];
      covered += change;
      visit(next, depthLeft - 1, box === lastPulled ? swaps : swaps + 1, box);
      boxes[box] = behind;
      cells[player] = ground[player];
      cells[behind] = occupant;
      covered -= change;
    }
    for (const delta of deltas) {
      if (isFree(player + delta) && isBox(player - delta))
        visit(player + delta, depthLeft - 1, swaps, lastPulled);
    }
  };
  visit(room.player, room.searchDepth, 0, NONE);
  budget.states -= explored.size;
  return best;
}

function distance(boxes: readonly number[], targets: readonly number[], cols: number): number {
  let sum = 0;
  for (let i = 0; i < boxes.length; i++) {
    sum += Math.abs(Math.floor(boxes[i] / cols) - Math.floor(targets[i] / cols));
    sum += Math.abs((boxes[i] % cols) - (targets[i] % cols));
  }
  return sum;
}

/** The set of visited states: the player's cell, and of each box its cell and whether it was ever pulled. */
function exploredStates(floor: Uint8Array, boxes: readonly number[], cells: Uint8Array) {
  const rank = new Int32Array(floor.length);
  let area = 0;
  for (let cell = 0; cell < floor.length; cell++) if (floor[cell]) rank[cell] = area++;
  const codes = new Int32Array(boxes.length);
  const base = 2 * area;

  /** Boxes are alike: their codes enter in ascending order. */
  const sortCodes = (): void => {
    for (let i = 0; i < boxes.length; i++) {
      const code = 2 * rank[boxes[i]] + (cells[boxes[i]] === MOVED_BOX ? 1 : 0);
      let j = i;
      for (; j > 0 && codes[j - 1] > code; j--) codes[j] = codes[j - 1];
      codes[j] = code;
    }
  };
  const numericKey = (player: number): number => {
    sortCodes();
    let key = rank[player];
    for (let i = 0; i < codes.length; i++) key = key * base + codes[i];
    return key;
  };
  const textKey = (player: number): string => {
    sortCodes();
    return `${rank[player]} ${codes.join(' ')}`;
  };

  const keys = area * base ** boxes.length;
  if (keys <= MOST_BITMAP_STATES) {
    const bitmap = new Int32Array(Math.ceil(keys / 32));
    return {
      size: 0,
      /** False when the state was there before. */
      add(player: number): boolean {
        const key = numericKey(player);
        const bit = 1 << (key & 31);
        if (bitmap[key >>> 5] & bit) return false;
        bitmap[key >>> 5] |= bit;
        this.size++;
        return true;
      },
    };
  }
  const known = new Set<number | string>();
  const keyOf = keys <= Number.MAX_SAFE_INTEGER ? numericKey : textKey;
  return {
    get size() {
      return known.size;
    },
    add(player: number): boolean {
      const before = known.size;
      return known.add(keyOf(player)).size > before;
    },
  };
}
