import type { Sliced } from '../core/slices.ts';
import { COLORS, type Cube, isSolved, SOLVED, STICKERS, TURNS } from './cube.ts';

/**
 * Shortest solutions by search from both ends over the sticker colors. Which color is which does not
 * matter for being solved, so colors are numbered in the order of their appearance: all ways to hold a
 * solved cube become one.
 */

/** A cube up to its colors' names: five stickers a character, three bits each. */
type Key = string;

/** Quarter turns around the solved cube that are tabulated once: 16,149 cubes, each layer some eight times the last. */
const TABLE_DEPTH = 5;
/**
 * Cubes looked at before the search is given up: what lies within five turns, so that ten are undone. RAGEN's B breaks
 * corners apart, so what is known of cubes of plastic (14 turns, 3,674,160 cubes) does not bound this search.
 */
const MAX_CUBES = 250_000;
/** Cubes turned every way before others have their turn on the event loop: some milliseconds. */
const CUBES_AT_A_TIME = 200;
const STICKERS_PER_UNIT = 5;
const BITS = 3;
/** Instead of a turn: the search began here. */
const START = -1;

let table: ReadonlyMap<Key, number> | undefined;

/** Turns to the solved cube for all cubes near it. */
function* tabulate(): Sliced<ReadonlyMap<Key, number>> {
  const start = keyOf(SOLVED);
  const distances = new Map([[start, 0]]);
  let layer: Key[] = [start];
  for (let depth = 1; depth <= TABLE_DEPTH; depth++) {
    const next: Key[] = [];
    for (const [place, key] of layer.entries()) {
      if (place % CUBES_AT_A_TIME === CUBES_AT_A_TIME - 1) yield;
      for (let index = 0; index < TURNS.length; index++) {
        const turned = turnKey(key, index);
        if (distances.has(turned)) continue;
        distances.set(turned, depth);
        next.push(turned);
      }
    }
    layer = next;
  }
  return distances;
}

/** A shortest list of turns (indices) that solves the cube, or null when none was found within the bounds. */
export function* solve(cube: Cube): Sliced<number[] | null> {
  if (isSolved(cube)) return [];
  table ??= yield* tabulate();
  const near = table;
  const start = keyOf(cube);
  const cameBy = new Map<Key, number>([[start, START]]);
  if (near.has(start)) return descend(start, near);
  for (let layer = [start]; layer.length > 0; ) {
    const next: Key[] = [];
    for (const [place, from] of layer.entries()) {
      if (place % CUBES_AT_A_TIME === CUBES_AT_A_TIME - 1) yield;
      for (let index = 0; index < TURNS.length; index++) {
        const turned = turnKey(from, index);
        if (cameBy.has(turned)) continue;
        cameBy.set(turned, index);
        if (near.has(turned)) return [...wayTo(turned, cameBy), ...descend(turned, near)];
        next.push(turned);
      }
      if (cameBy.size > MAX_CUBES) return null;
    }
    layer = next;
  }
  return null;
}

const before = new Uint8Array(STICKERS);
const after = new Uint8Array(STICKERS);
const IDENTITY = Array.from({ length: STICKERS }, (_, index) => index);

function keyOf(cube: Cube): Key {
  for (let at = 0; at < STICKERS; at++) before[at] = COLORS.indexOf(cube[at]);
  return pack(IDENTITY);
}

function turnKey(key: Key, index: number): Key {
  for (let at = 0; at < STICKERS; at++) {
    const unit = key.charCodeAt(Math.floor(at / STICKERS_PER_UNIT));
    before[at] = (unit >> (BITS * (at % STICKERS_PER_UNIT))) & 7;
  }
  return pack(TURNS[index].from);
}

const names = new Int8Array(COLORS.length);

/** Permutes `before`, renumbers the colors and packs the result. */
function pack(from: readonly number[]): Key {
  names.fill(-1);
  let count = 0;
  for (let at = 0; at < STICKERS; at++) {
    const color = before[from[at]];
    if (names[color] < 0) names[color] = count++;
    after[at] = names[color];
  }
  const unit = (start: number): number => {
    let bits = 0;
    for (let at = Math.min(start + STICKERS_PER_UNIT, STICKERS) - 1; at >= start; at--) {
      bits = (bits << BITS) | after[at];
    }
    return bits;
  };
  return String.fromCharCode(unit(0), unit(5), unit(10), unit(15), unit(20));
}

/** The turns by which the search came to a cube: undone one by one, they lead back to the start. */
function wayTo(key: Key, cameBy: ReadonlyMap<Key, number>): number[] {
  const turns: number[] = [];
  let at = key;
  for (let index = cameBy.get(at) ?? START; index !== START; index = cameBy.get(at) ?? START) {
    turns.push(index);
    at = turnKey(at, inverseOf(index));
  }
  return turns.reverse();
}

/** A turn and its inverse stand next to each other in {@link TURNS}. */
function inverseOf(index: number): number {
  return index ^ 1;
}

function descend(key: Key, near: ReadonlyMap<Key, number>): number[] {
  const turns: number[] = [];
  let at = key;
  for (let left = near.get(key) ?? 0; left > 0; left--) {
    const index = TURNS.findIndex((_, candidate) => near.get(turnKey(at, candidate)) === left - 1);
    turns.push(index);
    at = turnKey(at, index);
  }
  return turns;
}
