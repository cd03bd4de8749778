import { remembered } from '../../../shared/remembered.ts';
import type { Sliced } from '../../../shared/slices.ts';

/** Most states that the search visits. */
const MAX_STATES = 300_000;
/** Moves examined before other work gets its turn on the event loop: about a millisecond. */
const MOVES_AT_A_TIME = 5000;

/** Remaining states that all searches for one room may visit. */
export interface SearchBudget {
  states: number;
}
/** State spaces up to this size get a bitmap of that many bits; larger ones number the states they meet. */
const MAX_BITMAP_STATES = 1 << 22;

/** Contents of a cell: free ones first, boxes last. */
const FLOOR = 0;
const TARGET = 1;
const WALL = 2;
const BOX = 3;
const MOVED_BOX = 4;

/** No box has been pulled yet. */
const NONE = -1;

export interface SolvedRoom {
  readonly rows: number;
  readonly cols: number;
  /** 1 on floor, targets included; the outermost ring is wall. */
  readonly floor: Uint8Array;
  readonly player: number;
  /** Cells of the targets, each with a box. */
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
 * Plays a solved room backwards: a depth-first search over moves and pulls for the room with the highest score, box
 * swaps × Σ Manhattan distance, or 0 while a box or the player is on a target (gym-sokoban, `room_utils.py`). A swap is
 * a pull of another box than the last one pulled.
 * @param budget charged with the states visited
 * @returns undefined when no room scores above 0
 */
export function* pullApart(room: SolvedRoom, budget: SearchBudget): Sliced<PulledRoom | undefined> {
  const search = new ReverseSearch(room);
  while (!search.advance(MOVES_AT_A_TIME)) yield;
  budget.states -= search.explored;
  return search.best;
}

/** The states on the path from the solved room to the current one, `FRAME` numbers each. */
const PLAYER = 0;
/**
 * Number of moves examined: the four directions, pulling where there is a box; then again where there was one, without
 * pulling.
 */
const TRIED = 1;
const SWAPS = 2;
const LAST_PULLED = 3;
/** First bit of the current box arrangement. */
const BOXES = 4;
/** 1 if a box can be pulled from here. */
const PULLS = 5;
/** The box pulled on the way here, and its former state; `NONE` after a move without a pull. */
const PULLED = 6;
const PULLED_WAS = 7;
const FRAME = 8;

class ReverseSearch {
  best: PulledRoom | undefined;
  explored = 0;
  readonly #cols: number;
  readonly #deltas: Int32Array;
  readonly #targets: readonly number[];
  readonly #boxes: number[];
  /** The cells without boxes, and with them. */
  readonly #ground: Uint8Array;
  readonly #cells: Uint8Array;
  readonly #boxOf: Uint8Array;
  /** Floor cells, numbered. */
  readonly #rank: Uint16Array;
  readonly #area: number;
  readonly #numbers: BoxNumbers;
  readonly #frames: Int32Array;
  /** End of the frames. */
  readonly #limit: number;
  #top: number;
  /** One bit for each pair of box arrangement and player cell. */
  #seen: Uint32Array;
  #bestScore = 0;
  /** Targets under a box. */
  #covered: number;

  constructor({ cols, floor, targets, player, searchDepth }: SolvedRoom) {
    this.#cols = cols;
    this.#deltas = Int32Array.of(-cols, cols, -1, 1, -cols, cols, -1, 1);
    this.#targets = targets;
    this.#boxes = targets.slice();
    this.#covered = targets.length;
    this.#ground = new Uint8Array(floor.length);
    this.#rank = new Uint16Array(floor.length);
    let area = 0;
    for (let cell = 0; cell < floor.length; cell++) {
      this.#ground[cell] = floor[cell] ? FLOOR : WALL;
      if (floor[cell]) this.#rank[cell] = area++;
    }
    this.#area = area;
    for (const target of targets) this.#ground[target] = TARGET;
    this.#cells = this.#ground.slice();
    this.#boxOf = new Uint8Array(floor.length);
    for (let box = 0; box < targets.length; box++) {
      this.#cells[targets[box]] = BOX;
      this.#boxOf[targets[box]] = box;
    }
    this.#numbers = numberBoxes(area, targets.length);
    this.#seen = new Uint32Array(((this.#numbers.count * area) >>> 5) + 1);
    this.#limit = FRAME * (searchDepth - 1);
    this.#frames = new Int32Array(this.#limit);
    this.#top = -FRAME;
    this.#enter(player, 0, NONE, this.#numberOfBoxes());
  }

  /** Examines this many more moves; true when none is left. */
  advance(moves: number): boolean {
    const frames = this.#frames;
    const cells = this.#cells;
    const deltas = this.#deltas;
    for (let left = moves; this.#top >= 0; left--) {
      if (left === 0) return false;
      const top = this.#top;
      const tried = frames[top + TRIED]++;
      const isAgain = tried >= 4;
      if (tried === 8 || (isAgain && frames[top + PULLS] === 0)) {
        this.#leave();
        continue;
      }
      const player = frames[top + PLAYER];
      const next = player + deltas[tried];
      if (cells[next] > TARGET) continue;
      const isBoxBehind = cells[player - deltas[tried]] >= BOX;
      if (isBoxBehind && !isAgain) {
        frames[top + PULLS] = 1;
        this.#pull(player, deltas[tried]);
      } else if (isBoxBehind === isAgain) {
        this.#enter(next, frames[top + SWAPS], frames[top + LAST_PULLED], frames[top + BOXES]);
      }
    }
    return true;
  }

  /** Continues from a state; false when it was visited before, or the search is too deep or too long. */
  #enter(player: number, swaps: number, lastPulled: number, boxes: number): boolean {
    const top = this.#top + FRAME;
    if (top >= this.#limit || this.explored >= MAX_STATES) return false;
    const at = boxes + this.#rank[player];
    if (at >>> 5 >= this.#seen.length) this.#grow(at >>> 5);
    const bit = 1 << (at & 31);
    if (this.#seen[at >>> 5] & bit) return false;
    this.#seen[at >>> 5] |= bit;
    this.explored++;
    if (this.#covered === 0 && this.#cells[player] !== TARGET) this.#score(player, swaps);
    const frames = this.#frames;
    frames[top + PLAYER] = player;
    frames[top + TRIED] = 0;
    frames[top + SWAPS] = swaps;
    frames[top + LAST_PULLED] = lastPulled;
    frames[top + BOXES] = boxes;
    frames[top + PULLS] = 0;
    frames[top + PULLED] = NONE;
    this.#top = top;
    return true;
  }

  #pull(player: number, delta: number): void {
    const top = this.#top;
    if (top + FRAME >= this.#limit) return;
    const frames = this.#frames;
    const behind = player - delta;
    const box = this.#boxOf[behind];
    const was = this.#cells[behind];
    this.#put(box, behind, player, MOVED_BOX);
    const swaps = frames[top + SWAPS] + (box === frames[top + LAST_PULLED] ? 0 : 1);
    if (this.#enter(player + delta, swaps, box, this.#numberOfBoxes())) {
      frames[top + FRAME + PULLED] = box;
      frames[top + FRAME + PULLED_WAS] = was;
    } else {
      this.#put(box, player, behind, was);
    }
  }

  /** Returns to the previous state, with its box put back. */
  #leave(): void {
    const frames = this.#frames;
    const top = this.#top;
    const box = frames[top + PULLED];
    this.#top = top - FRAME;
    if (box === NONE) return;
    const from = this.#boxes[box];
    this.#put(box, from, 2 * from - frames[top + PLAYER], frames[top + PULLED_WAS]);
  }

  #put(box: number, from: number, to: number, kind: number): void {
    this.#cells[from] = this.#ground[from];
    this.#cells[to] = kind;
    this.#covered += this.#ground[to] - this.#ground[from];
    this.#boxes[box] = to;
    this.#boxOf[to] = box;
  }

  /** First bit of the current box arrangement. */
  #numberOfBoxes(): number {
    return this.#numbers.of(this.#boxes, this.#cells, this.#rank) * this.#area;
  }

  #grow(most: number): void {
    const larger = new Uint32Array(2 * most);
    larger.set(this.#seen);
    this.#seen = larger;
  }

  #score(player: number, swaps: number): void {
    const displacement = distance(this.#boxes, this.#targets, this.#cols);
    if (swaps * displacement <= this.#bestScore) return;
    this.#bestScore = swaps * displacement;
    this.best = { player, boxes: this.#boxes.slice(), displacement };
  }
}

function distance(boxes: readonly number[], targets: readonly number[], cols: number): number {
  let sum = 0;
  for (let i = 0; i < boxes.length; i++) {
    sum += Math.abs(Math.floor(boxes[i] / cols) - Math.floor(targets[i] / cols));
    sum += Math.abs((boxes[i] % cols) - (targets[i] % cols));
  }
  return sum;
}

/** A number for each box arrangement: the cell of each box, and whether it was ever pulled. */
interface BoxNumbers {
  /** Most arrangements for which bits are reserved in advance. */
  readonly count: number;
  of(boxes: readonly number[], cells: Uint8Array, rank: Uint16Array): number;
}

/**
 * Boxes are interchangeable, so their codes (two for each floor cell) form a set. Sets of one size are numbered by the
 * combinatorial number system where that is small, and in order of appearance where it is not.
 */
function numberBoxes(area: number, boxes: number): BoxNumbers {
  const codes = new Uint16Array(boxes);
  const sortCodes = (places: readonly number[], cells: Uint8Array, rank: Uint16Array): void => {
    for (let i = 0; i < places.length; i++) {
      const code = 2 * rank[places[i]] + (cells[places[i]] === MOVED_BOX ? 1 : 0);
      let j = i;
      for (; j > 0 && codes[j - 1] > code; j--) codes[j] = codes[j - 1];
      codes[j] = code;
    }
  };
  const count = choose(2 * area, boxes);
  if (count * area <= MAX_BITMAP_STATES) {
    const terms = binomials(2 * area, boxes);
    return {
      count,
      of(places, cells, rank) {
        sortCodes(places, cells, rank);
        let number = 0;
        for (let i = 0; i < codes.length; i++) number += terms[i * 2 * area + codes[i]];
        return number;
      },
    };
  }
  const known = new Map<string, number>();
  return {
    count: 0,
    of(places, cells, rank) {
      sortCodes(places, cells, rank);
      const key = String.fromCharCode(...codes);
      return remembered(known, key, () => known.size);
    },
  };
}

/** Binomial coefficient; approximate beyond 2^53. */
function choose(n: number, k: number): number {
  let product = 1;
  for (let i = 0; i < k; i++) product = (product * (n - i)) / (i + 1);
  return product;
}

/** Row i: n over i + 1, for each n below `most`. */
function binomials(most: number, rows: number): Int32Array {
  const table = new Int32Array(rows * most);
  for (let n = 0; n < most; n++) table[n] = n;
  for (let at = most; at < table.length; at++) {
    table[at] = at % most === 0 ? 0 : table[at - 1] + table[at - most - 1];
  }
  return table;
}
