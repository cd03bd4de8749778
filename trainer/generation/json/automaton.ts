/** Characters as UTF-16 code units, both ends included. */
export type Range = readonly [from: number, to: number];

/** The characters of a text. */
export const charactersOf = (text: string): Range[] => [...text].map(c => [c.charCodeAt(0), c.charCodeAt(0)]);

/** States of an automaton that a pattern may need. */
const MAX_STATES = 50_000;
const LAST_CHARACTER = 0xffff;
/** Any number of times. */
export const ANY = Number.POSITIVE_INFINITY;

interface Edge {
  readonly ranges: readonly Range[];
  readonly to: number;
}

/**
 * A nondeterministic automaton over characters, built in parts: each method adds a part that begins in the state `from`
 * and returns the state where it ends.
 */
export class CharacterAutomaton {
  readonly #edges: Edge[][] = [];
  readonly #empty: number[][] = [];

  /** @throws RangeError when the pattern has too many states */
  state(): number {
    if (this.#edges.length >= MAX_STATES) throw new RangeError('it takes too many states');
    this.#edges.push([]);
    this.#empty.push([]);
    return this.#edges.length - 1;
  }

  /** Connects two states without a character. */
  link(from: number, to: number): void {
    this.#empty[from].push(to);
  }

  text(from: number, text: string): number {
    let at = from;
    for (let i = 0; i < text.length; i++) at = this.set(at, [[text.charCodeAt(i), text.charCodeAt(i)]]);
    return at;
  }

  /** One of these characters. */
  set(from: number, ranges: readonly Range[]): number {
    const to = this.state();
    this.#edges[from].push({ ranges, to });
    return to;
  }

  /** One of the parts. */
  any(from: number, parts: readonly ((from: number) => number)[]): number {
    const end = this.state();
    for (const part of parts) {
      const begin = this.state();
      this.link(from, begin);
      this.link(part(begin), end);
    }
    return end;
  }

  /** The part `least` to `most` times; `most` may be infinite. */
  repeat(from: number, least: number, most: number, part: (from: number) => number): number {
    let at = from;
    for (let i = 0; i < least; i++) at = part(at);
    const end = this.state();
    if (most === ANY) {
      const loop = this.state();
      this.link(at, loop);
      this.link(part(loop), loop);
      this.link(loop, end);
      return end;
    }
    this.link(at, end);
    for (let i = least; i < most; i++) {
      at = part(at);
      this.link(at, end);
    }
    return end;
  }

  /** The states of a set and those that they reach without a character; ascending. */
  closure(states: Iterable<number>): number[] {
    const seen = new Set(states);
    for (const state of seen) for (const to of this.#empty[state]) seen.add(to);
    return [...seen].sort((a, b) => a - b);
  }

  /** First code units of classes, ascending from 0: characters of one class lead to the same states. */
  bounds(): number[] {
    const found = new Set([0]);
    for (const { ranges } of this.#edges.flat()) {
      for (const [low, high] of ranges) {
        found.add(low);
        if (high < LAST_CHARACTER) found.add(high + 1);
      }
    }
    return [...found].sort((a, b) => a - b);
  }

  /**
   * The states that one character of each class reaches from a set of states, without {@link closure}.
   * @param bounds from {@link bounds}
   */
  waysFrom(states: readonly number[], bounds: readonly number[]): readonly number[][] {
    const ways: number[][] = bounds.map(() => []);
    for (const { ranges, to } of states.flatMap(state => this.#edges[state])) {
      for (const [low, high] of ranges) {
        for (let i = indexOf(bounds, low); bounds[i] <= high; i++) ways[i].push(to);
      }
    }
    return ways;
  }
}

/** Index of a number in an ascending list that has it. */
function indexOf(bounds: readonly number[], bound: number): number {
  let least = 0;
  for (let most = bounds.length; most - least > 1; ) {
    const middle = (least + most) >> 1;
    if (bounds[middle] <= bound) least = middle;
    else most = middle;
  }
  return least;
}
