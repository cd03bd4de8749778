/** States the search visits at most. */
const MOST_STATES = 300_000;

/** States that may still be visited, by all searches for one room together. */
export interface SearchBudget {
  states: number;
}
/** State spaces up to this size get a bitmap as large as they are, in bits; larger ones number what they meet. */
const MOST_BITMAP_STATES = 1 << 25;

/** What stands in a cell: free ones first, boxes last. */
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
  const search = new ReverseSearch(room);
  search.run(room);
  budget.states -= search.explored;
  return search.best;
}

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
  /** A bit for each number of the boxes and cell of the player. */
  #seen: Uint32Array;
  #bestScore = 0;
  /** Targets under a box. */
  #covered: number;

  constructor({ cols, floor, targets }: SolvedRoom) {
    this.#cols = cols;
    this.#deltas = Int32Array.of(-cols, cols, -1, 1);
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
  }

  run({ player, searchDepth }: SolvedRoom): void {
    this.#visit(player, searchDepth, 0, NONE, this.#numberOfBoxes() * this.#area);
  }

  /** @param base the first bit of the boxes as they stand */
  #visit(player: number, depthLeft: number, swaps: number, lastPulled: number, base: number): void {
    if (depthLeft <= 1 || this.explored >= MOST_STATES) return;
    const at = base + this.#rank[player];
    if (at >>> 5 >= this.#seen.length) this.#grow(at >>> 5);
    const seen = this.#seen;
    const bit = 1 << (at & 31);
    if (seen[at >>> 5] & bit) return;
    seen[at >>> 5] |= bit;
    this.explored++;

    const cells = this.#cells;
    const deltas = this.#deltas;
    if (this.#covered === 0 && cells[player] !== TARGET) this.#score(player, swaps);
    let pullsToo = false;
    for (let d = 0; d < 4; d++) {
      const next = player + deltas[d];
      if (cells[next] > TARGET) continue;
      if (cells[player - deltas[d]] < BOX) this.#visit(next, depthLeft - 1, swaps, lastPulled, base);
      else {
        this.#pull(player, deltas[d], depthLeft, swaps, lastPulled);
        pullsToo = true;
      }
    }
    if (!pullsToo) return;
    for (let d = 0; d < 4; d++) {
      const next = player + deltas[d];
      if (cells[next] <= TARGET && cells[player - deltas[d]] >= BOX) {
        this.#visit(next, depthLeft - 1, swaps, lastPulled, base);
      }
    }
  }

  #pull(player: number, delta: number, depthLeft: number, swaps: number, lastPulled: number): void {
    if (depthLeft <= 2) return;
    const cells = this.#cells;
    const ground = this.#ground;
    const boxes = this.#boxes;
    const behind = player - delta;
    const occupant = cells[behind];
    const box = this.#boxOf[behind];
    const change = ground[player] - ground[behind];
    boxes[box] = player;
    this.#boxOf[player] = box;
    cells[player] = MOVED_BOX;
    cells[behind] = ground[behind];
    this.#covered += change;
    const base = this.#numberOfBoxes() * this.#area;
    this.#visit(player + delta, depthLeft - 1, box === lastPulled ? swaps : swaps + 1, box, base);
    boxes[box] = behind;
    this.#boxOf[behind] = box;
    cells[player] = ground[player];
    cells[behind] = occupant;
    this.#covered -= change;
  }

  #numberOfBoxes(): number {
    return this.#numbers.of(this.#boxes, this.#cells, this.#rank);
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

/** A number for each way in which the boxes stand: the cell of each, and whether it was ever pulled. */
interface BoxNumbers {
  /** How many bits are worth reserving at once, in ways to stand. */
  readonly count: number;
  of(boxes: readonly number[], cells: Uint8Array, rank: Uint16Array): number;
}

/**
 * Boxes are alike, so the codes of all of them, two for each floor cell, are a set; sets of a size are numbered by the
 * combinatorial number system where that is small, in the order of their appearance where it is not.
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
  if (count * area <= MOST_BITMAP_STATES) {
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
      const number = known.get(key) ?? known.size;
      known.set(key, number);
      return number;
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
