import type { Sliced } from '../../../shared/slices.ts';
import type { SearchBudget } from './reverse.ts';
import { DIRECTIONS, isWall, neighbor, type Room, TARGET } from './rules.ts';

/** Bytes of states allocated at a time, or one state where it is larger. */
const CHUNK_BYTES = 32_768;
const MAX_CHUNK_STATES_LOG2 = 12;
const FIRST_SLOTS = 2048;
/** Number of cells that fit two bytes. */
const SHORT_CELLS = 2 ** 16;

type Numbers = Uint16Array | Uint32Array;

/**
 * The states found by a search, each once, in order of discovery. They are stored in typed arrays of bounded size: the
 * player's cell, the boxes' cells in ascending order, and the index of the parent state.
 */
export class KnownStates {
  /** The state to be added, or the one just read. */
  readonly scratch: Numbers;
  readonly #width: number;
  readonly #shift: number;
  readonly #states: Numbers[] = [];
  readonly #parents: Int32Array[] = [];
  /** Hash table of state indices, from 1; 0 is free. At most half of it is used. */
  #slots = new Int32Array(FIRST_SLOTS);
  #count = 0;
  #bytesLeft: number;

  /** @param bytes limit of all arrays together */
  constructor(cells: number, boxes: number, bytes: number) {
    this.#width = boxes + 1;
    this.scratch = cells <= SHORT_CELLS ? new Uint16Array(this.#width) : new Uint32Array(this.#width);
    const states = CHUNK_BYTES / (this.scratch.byteLength + Int32Array.BYTES_PER_ELEMENT);
    this.#shift = Math.min(Math.max(Math.floor(Math.log2(states)), 0), MAX_CHUNK_STATES_LOG2);
    this.#bytesLeft = bytes - this.#slots.byteLength;
  }

  get count(): number {
    return this.#count;
  }

  /**
   * Adds the state in `scratch`, unless it is known.
   * @param parent index of the previous state, −1 for the first one
   * @returns false where memory is used up
   */
  add(parent: number): boolean {
    const slot = this.#slotOf(this.scratch);
    if (this.#slots[slot] !== 0) return true;
    const at = this.#count & this.#mask;
    if (at === 0 && !this.#grow()) return false;
    const chunk = this.#count >> this.#shift;
    this.#states[chunk].set(this.scratch, at * this.#width);
    this.#parents[chunk][at] = parent;
    this.#slots[slot] = ++this.#count;
    return 2 * this.#count <= this.#slots.length || this.#spread();
  }

  /** Copies a state into `scratch`. */
  read(number: number): void {
    const begin = (number & this.#mask) * this.#width;
    const chunk = this.#states[number >> this.#shift];
    for (let i = 0; i < this.#width; i++) this.scratch[i] = chunk[begin + i];
  }

  playerOf(number: number): number {
    return this.#states[number >> this.#shift][(number & this.#mask) * this.#width];
  }

  parentOf(number: number): number {
    return this.#parents[number >> this.#shift][number & this.#mask];
  }

  get #mask(): number {
    return (1 << this.#shift) - 1;
  }

  /** Allocates another chunk. */
  #grow(): boolean {
    const states = 1 << this.#shift;
    this.#bytesLeft -= states * (this.scratch.byteLength + Int32Array.BYTES_PER_ELEMENT);
    if (this.#bytesLeft < 0) return false;
    const Form = this.scratch instanceof Uint16Array ? Uint16Array : Uint32Array;
    this.#states.push(new Form(states * this.#width));
    this.#parents.push(new Int32Array(states));
    return true;
  }

  /** Doubles the table; the old one is released first. */
  #spread(): boolean {
    this.#bytesLeft -= this.#slots.byteLength;
    if (this.#bytesLeft < 0) return false;
    const size = 2 * this.#slots.length;
    this.#slots = new Int32Array(0);
    this.#slots = new Int32Array(size);
    const state = this.scratch.slice();
    for (let number = 0; number < this.#count; number++) {
      this.read(number);
      let slot = hash(this.scratch) & (size - 1);
      while (this.#slots[slot] !== 0) slot = (slot + 1) & (size - 1);
      this.#slots[slot] = number + 1;
    }
    this.scratch.set(state);
    return true;
  }

  /** The slot of a state, or the free slot for it. */
  #slotOf(state: Numbers): number {
    const last = this.#slots.length - 1;
    let slot = hash(state) & last;
    for (let number = this.#slots[slot]; number !== 0; number = this.#slots[slot]) {
      if (this.#holds(number - 1, state)) return slot;
      slot = (slot + 1) & last;
    }
    return slot;
  }

  #holds(number: number, state: Numbers): boolean {
    const begin = (number & this.#mask) * this.#width;
    const chunk = this.#states[number >> this.#shift];
    for (let i = 0; i < state.length; i++) if (chunk[begin + i] !== state[i]) return false;
    return true;
  }
}

/** FNV-1a over the numbers, with MurmurHash3's final mix. */
function hash(state: Numbers): number {
  let value = 0x811c9dc5;
  for (let i = 0; i < state.length; i++) value = Math.imul(value ^ state[i], 0x01000193);
  value = Math.imul(value ^ (value >>> 16), 0x85ebca6b);
  value = Math.imul(value ^ (value >>> 13), 0xc2b2ae35);
  return (value ^ (value >>> 16)) >>> 0;
}

/** States expanded before other work gets its turn on the event loop: a few milliseconds. */
const STATES_AT_A_TIME = 500;

type RoomGround = Pick<Room, 'rows' | 'cols' | 'cells' | 'targets'>;

export interface SearchLimits {
  /** Longest solution to look for. */
  readonly moves?: number;
  /** Charged with the visited states; the search ends without a solution when it is used up. */
  readonly budget?: SearchBudget;
  /** Memory of the visited states. */
  readonly bytes: number;
}

/** The search exceeded its memory: whether there is a solution is unknown. */
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

/** Moves a box in a state: the player, then the boxes, ascending. */
function moveBox(state: Uint16Array | Uint32Array, from: number, to: number): void {
  let at = state.indexOf(from, 1);
  for (; at > 1 && state[at - 1] > to; at--) state[at] = state[at - 1];
  for (; at < state.length - 1 && state[at + 1] < to; at++) state[at] = state[at + 1];
  state[at] = to;
}

/** The directions that lead to the last added state. */
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
  /** By cell and direction: the next cell, or −1 at a wall or the board's edge. */
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
