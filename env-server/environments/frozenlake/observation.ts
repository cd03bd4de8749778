import type { Json } from '../../../shared/json.ts';
import type { ObservationFormat } from '../environment.ts';
import { type Backdrop, backdrop, coordinate, coordinates, inForm, rowCol } from '../grid.ts';
import { render } from './render.ts';
import { type FrozenLakeState, HOLE, isHole, type Lake } from './rules.ts';

export function observe(state: FrozenLakeState, format: ObservationFormat): Json {
  return inForm(state, format === 'text' ? state.lake.form : format, FORMS);
}

const FORMS = { grid, coord, structured, render };

const backdropOf = new WeakMap<Lake, Backdrop>();

/** The lake without its player. */
function emptyLake(lake: Lake): Backdrop {
  let known = backdropOf.get(lake);
  if (!known) {
    const { symbols } = lake;
    const cells = Array.from(lake.cells, (ground, cell) => {
      if (cell === lake.goal) return symbols.goal;
      return ground === HOLE ? symbols.hole : symbols.frozen;
    });
    known = backdrop(cells, lake.cols);
    backdropOf.set(lake, known);
  }
  return known;
}

function grid({ lake, position }: FrozenLakeState): string {
  const { text, starts, ends } = emptyLake(lake);
  return text.slice(0, starts[position]) + playerSymbol(lake, position) + text.slice(ends[position]);
}

function playerSymbol(lake: Lake, position: number): string {
  if (position === lake.goal) return lake.symbols.player_on_goal;
  return isHole(lake, position) ? lake.symbols.player_in_hole : lake.symbols.player;
}

function coord({ lake, position }: FrozenLakeState): string {
  const { rows, cols } = lake;
  const place = { playing: 'Player', in_hole: 'Player in hole', on_goal: 'Player on goal' }[
    status(lake, position)
  ];
  const lines = [
    `Board size: ${rows} rows x ${cols} cols (zero-indexed).`,
    `Start: ${coordinate(lake.start, cols)}`,
    `Goal: ${coordinate(lake.goal, cols)}`,
    `${place}: ${coordinate(position, cols)}`,
  ];
  const holes = holesOf(lake);
  if (holes.length > 0) lines.push(`Holes: ${coordinates(holes, cols)}`);
  return lines.join('\n');
}

function structured({ lake, position, steps }: FrozenLakeState): Json {
  const { rows, cols } = lake;
  return {
    rows,
    cols,
    start: rowCol(lake.start, cols),
    goal: rowCol(lake.goal, cols),
    player: rowCol(position, cols),
    holes: holesOf(lake).map(cell => rowCol(cell, cols)),
    status: status(lake, position),
    steps,
  };
}

function status(lake: Lake, position: number): 'playing' | 'in_hole' | 'on_goal' {
  if (position === lake.goal) return 'on_goal';
  return isHole(lake, position) ? 'in_hole' : 'playing';
}

export function holesOf(lake: Lake): number[] {
  const holes: number[] = [];
  for (let cell = 0; cell < lake.cells.length; cell++) if (isHole(lake, cell)) holes.push(cell);
  return holes;
}
