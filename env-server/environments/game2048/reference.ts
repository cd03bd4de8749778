import { randomPolicy } from '../core/actions.ts';
import type { ReferencePolicy } from '../core/environment.ts';
import type { Game2048State } from './rules.ts';
import { ACTIONS, openDirections, slide, type Tiles } from './rules.ts';

/** Moves looked ahead when few tiles can appear; one less on an open board. */
const DEPTH = 2;
/** Empty cells above which the last move is not looked ahead. */
const OPEN_BOARD = 6;
/** Falling weights along a snake from a corner keep large tiles in order there. */
const WEIGHT_RATIO = 0.5;

export const random: ReferencePolicy<Game2048State> = randomPolicy(ACTIONS);

export const heuristic: ReferencePolicy<Game2048State> = {
  title: 'Expectimax over two moves, large tiles in a snake from a corner',
  plan({ size, tiles }) {
    const snake = snakeWeights(size);
    const depth = tiles.filter(tile => tile === 0).length > OPEN_BOARD ? DEPTH - 1 : DEPTH;
    let best = -Infinity;
    let choice: string[] = [];
    for (const direction of openDirections(size, tiles)) {
      const value = expectation(size, slide(size, tiles, direction).tiles, depth, snake);
      if (value > best) {
        best = value;
        choice = [ACTIONS.names[direction]];
      }
    }
    return choice;
  },
};

/** Mean over the cells where a 2 can appear of the best move's value. */
function expectation(size: number, tiles: Tiles, depth: number, snake: Tiles): number {
  if (depth === 0) return evaluate(tiles, snake);
  let sum = 0;
  let cells = 0;
  for (let cell = 0; cell < tiles.length; cell++) {
    if (tiles[cell] !== 0) continue;
    const grown = tiles.with(cell, 2);
    let best = 0;
    for (const direction of openDirections(size, grown)) {
      best = Math.max(best, expectation(size, slide(size, grown, direction).tiles, depth - 1, snake));
    }
    sum += best;
    cells++;
  }
  return cells > 0 ? sum / cells : evaluate(tiles, snake);
}

function evaluate(tiles: Tiles, snake: Tiles): number {
  let value = 0;
  let empty = 0;
  for (let cell = 0; cell < tiles.length; cell++) {
    value += tiles[cell] * snake[cell];
    if (tiles[cell] === 0) empty++;
  }
  return value * (1 + empty / tiles.length);
}

function snakeWeights(size: number): number[] {
  return Array.from({ length: size * size }, (_, cell) => {
    const row = Math.floor(cell / size);
    const col = cell % size;
    return WEIGHT_RATIO ** (row * size + (row % 2 === 0 ? col : size - 1 - col));
  });
}
